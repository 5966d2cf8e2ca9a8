"""Simulates what ONNX Runtime allocates while it loads a model: parsing, converting, rewriting and packing weights."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from costmodel.ir.attributes import integer
from costmodel.ir.graph import Layer, LayerGraph
from costmodel.ir.nchwc import BLOCKED_DOMAIN, padded
from costmodel.ir.source_weights import SMALLEST_STORED_BYTES, SourceWeights
from costmodel.memory.arena import Arena
from costmodel.memory.execution_order import order_of_addition
from costmodel.memory.heap import Block, Heap
from costmodel.memory.small_blocks import NORMALISATION, PACKING, REORDERING, Tensor, allocate_dimensions, play

__all__ = ["Loaded", "load"]

# Buffer through which the parser reads a file.
_PARSE_BUFFER_BYTES = 4 << 20
# The parser reads a longer weight in steps, and copies the first step when it makes room for the second.
_PARSE_STEP_BYTES = 50_000_000
# What the runtime allocates for the nodes between parsing and converting weights; its size does not matter.
_NODES_BYTES = 3_000_000
# Sizes of the blocks in the cache when the first weight is converted, and how many there are, in every process seen.
_CACHED = {32: 5, 48: 1, 64: 0, 80: 1, 96: 4, 112: 0, 128: 2, 144: 0, 160: 4, 176: 0}
# Names up to this length need no block of their own.
_LONGEST_INLINE_NAME = 15
# Blocks while a weight is converted: those that are freed in between, those that are freed at the end with the order,
# and those of its entry in the graph.
_BRIEF = (33, 152, 29)
_TEMPORARY = (40, 32, 33, 32, 32, 40, 32, 32, 40, 32, 32)
_TEMPORARY_ORDER = (1, 2, 3, 0, 6, 7, 5, 9, 10, 8, 4)
_ENTRY = (32, 40, 32, 32, 33, 40, 32, 32, 40, 32, 32, 32)
# How many weights make the table of weights grow, and to how many buckets.
_BUCKETS = {0: 13, 13: 29, 29: 59, 59: 127, 127: 257, 257: 541, 541: 1109, 1109: 2357, 2357: 5087, 5087: 10273}
# Blocks for each layer: those that its optimisation makes and keeps, and those that it frees before weights are packed.
# Sizes as seen; numbers so that neither kind runs short, as none did.
_KEPT_BY_OPTIMISING = (24, 40, 56, 72)
_FREED_BY_OPTIMISING = (40, 40, 40, 56, 72)
# Sizes of which the optimisation frees so many blocks that the cache of the thread is full.
_SEEN_OFTEN = (24, 40, 56, 72, 88, 104)
# Smaller values are not folded here, and smaller weights not rewritten.
_SMALLEST_BYTES = 1 << 10
# Operators that keep a packed copy of constant weights: positions of these inputs, and how many dimensions the matrices
# have; None where the weights are transposed instead, whatever their dimensions.
_PACKING = {
    "MatMul": ((1,), 2), "Gemm": ((1,), 2), "FusedMatMul": ((1,), 2), "FusedGemm": ((1,), 2),
    "LSTM": ((1, 2), 3), "GRU": ((1, 2), 3), "ConvTranspose": ((1,), None),
}  # fmt: skip
# The same for quantised weights, whatever their dimensions.
_QUANTISED_PACKING = {
    "MatMulInteger": 1, "MatMulIntegerToFloat": 1, "DynamicQuantizeMatMul": 1, "QLinearMatMul": 3, "QLinearConv": 3,
    "QGemm": 3,
}  # fmt: skip
_PACKED_COLUMNS = 16


@dataclass(frozen=True, slots=True)
class Loaded:
    """Work that loading a model was, in bytes.

    Attributes:
        stored_bytes: Size of the weights in the model's file.
        rewritten_bytes: Size of the weights that are folded from others, or reordered in blocks.
        packed_bytes: Size of the matrices that are packed, once for each layer that packs one.
    """

    stored_bytes: int
    rewritten_bytes: int
    packed_bytes: int


@dataclass(frozen=True, slots=True)
class _Stored:
    """A weight in the model's file: its name, the length of its name, its number of dimensions, its size in bytes."""

    name: str
    name_length: int
    rank: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A weight as the parser leaves it: its data, and starts of the small blocks of its name, data and dimensions."""

    data: Block
    name: list[int]
    of_data: int
    dimensions: list[int]


def load(heap: Heap, arena: Arena, graph: LayerGraph, *, offset: int) -> Loaded:
    """Simulates a session that loads a model.

    Args:
        heap: Heap of the process.
        arena: Arena of the session.
        graph: Layers after optimisation.
        offset: How far the end of the heap is shifted when weights are converted, in bytes; a multiple of 16.
    """
    weights = {name: graph.types[name].nbytes for name in graph.constants}
    stored = _stored(graph, weights)
    nodes = []
    for _ in graph.layers:
        for size in _FREED_BY_OPTIMISING:
            nodes.append(heap.unaligned(size))
            heap.unaligned(24)  # what keeps it from its neighbours when it is freed
    parsed = _parse(heap, stored)
    heap.fill(_NODES_BYTES + offset, _CACHED)
    tensors = _convert(heap, stored, parsed)
    for _ in graph.layers:
        for size in _KEPT_BY_OPTIMISING:
            heap.unaligned(size)
    for start in [heap.unaligned(size) for size in _SEEN_OFTEN for _ in range(8)]:
        heap.release(start)
    rewritten = _rewrite(heap, graph, weights, tensors)
    for tensor in tensors.values():
        tensor.free_entry(heap)
    for start in nodes:
        heap.release(start)
    packed = _pack(heap, arena, graph, tensors)
    return Loaded(sum(one.nbytes for one in stored), rewritten, packed)


def _stored(graph: LayerGraph, weights: Mapping[str, int]) -> list[_Stored]:
    """Returns the weights of the model's file; if it is not known, those of the layers, before they were reordered."""
    source = graph.source_weights
    if source is not None:
        return [_Stored(name, *source.labels.get(name, (0, 1)), nbytes) for name, nbytes in source.stored_bytes.items()]
    reordered = {name for layer in graph.layers if layer.domain == BLOCKED_DOMAIN for name in layer.inputs}
    return [
        _Stored(f"{name} before" if name in reordered else name, 0, len(graph.types[name].shape), nbytes)
        for name, nbytes in weights.items()
        if nbytes >= SMALLEST_STORED_BYTES
    ]


def _parse(heap: Heap, stored: list[_Stored]) -> list[_Parsed]:
    """Reads the weights of a file."""
    buffer = heap.allocate(_PARSE_BUFFER_BYTES, aligned=False)
    parsed = []
    for one in stored:
        heap.unaligned(256)
        dimensions = [allocate_dimensions(heap, one.rank)] if one.rank > 1 else []
        name = [heap.unaligned(32), *_allocate_name(heap, one)]
        of_data = heap.unaligned(32)
        step = heap.allocate(_PARSE_STEP_BYTES, aligned=False) if one.nbytes > _PARSE_STEP_BYTES else None
        parsed.append(_Parsed(heap.allocate(one.nbytes + 1, aligned=False), name, of_data, dimensions))
        if step is not None:
            heap.free(step)
    heap.free(buffer)
    return parsed


def _convert(heap: Heap, stored: list[_Stored], parsed: list[_Parsed]) -> dict[str, Tensor]:
    """Converts what was parsed to tensors one by one; returns them by name."""
    tensors = {}
    table = None
    for number, (one, read) in enumerate(zip(stored, parsed, strict=True)):
        tensor = Tensor(heap.allocate(one.nbytes))
        shared = heap.unaligned(32)
        name = [heap.unaligned(32), *_allocate_name(heap, one)]
        dimensions = [allocate_dimensions(heap, one.rank)] if one.rank > 1 else []
        brief = [heap.unaligned(size) for size in _BRIEF]
        temporary = [heap.unaligned(size) for size in _TEMPORARY]
        for start in reversed(brief):
            heap.release(start)
        if one.rank > 1:
            tensor.entry.append(heap.unaligned(32 if one.rank <= 3 else 8 + 8 * one.rank))
        tensor.entry += [heap.unaligned(size) for size in _ENTRY] + _allocate_name(heap, one)
        heap.release(heap.unaligned(33))
        tensor.entry += [heap.unaligned(72), *_allocate_name(heap, one)]
        if number in _BUCKETS:
            larger = heap.unaligned(8 * _BUCKETS[number])
            if table is not None:
                heap.release(table)
            table = larger
        for start in reversed(read.name):
            heap.release(start)
        heap.free(read.data)
        for start in (read.of_data, *read.dimensions, *reversed(name)):
            heap.release(start)
        for start in (*(temporary[place] for place in _TEMPORARY_ORDER), *dimensions):
            heap.release(start)
        tensor.owners = [heap.unaligned(160), shared]
        tensors[one.name] = tensor
    return tensors


def _allocate_name(heap: Heap, one: _Stored) -> list[int]:
    """Allocates a copy of the name of a weight; none if it is so short that it needs no block."""
    return [heap.unaligned(one.name_length + 1)] if one.name_length > _LONGEST_INLINE_NAME else []


def _rewrite(heap: Heap, graph: LayerGraph, weights: Mapping[str, int], tensors: dict[str, Tensor]) -> int:
    """Folds constants and frees those that nothing else reads, then reorders the weights of blocked convolutions.

    A weight into which a normalisation was folded becomes that of the same size which a plain layer reads. What no
    layer reads is freed at the end. The copies of what a value is folded from are taken to be unaligned, so that no
    piece is cut off and the next one fits into the hole: the small blocks beside them are not simulated. Where it is
    not known what they are, one of the size of the value is.

    Returns the bytes that were folded or reordered.

    Args:
        heap: Heap of the process.
        graph: Layers after optimisation.
        weights: Size in bytes of each weight that the layers read.
        tensors: Weights of the source model by name; becomes those that the layers read.
    """
    rewritten = 0
    source = graph.source_weights or SourceWeights({}, {})
    for name, nbytes in source.folded_bytes.items():
        if name in tensors:
            continue
        copied = [size for size in source.copied_bytes.get(name, (nbytes,)) if size >= _SMALLEST_BYTES]
        copies = [heap.allocate(size, aligned=False) for size in copied]
        if nbytes >= _SMALLEST_BYTES:
            tensors[name] = Tensor(heap.allocate(nbytes))
            rewritten += nbytes
        for copy in copies:
            heap.free(copy)
    for name in [name for name in tensors if name in source.dropped]:
        tensors.pop(name).free(heap)
    # A normalised weight has a name of the runtime's own in the layers, and is found by its size.
    renamed: dict[int, list[str]] = {}
    for name, nbytes in source.folded_bytes.items():
        if name in tensors and name not in weights:
            renamed.setdefault(nbytes, []).append(name)
    kept = set()
    for layer in graph.layers:
        blocked = layer.domain == BLOCKED_DOMAIN
        parameters = _parameters_of_normalisation(layer, graph)
        if parameters and not tensors.keys() & set(parameters) and weights[parameters[0]] >= _SMALLEST_BYTES:
            made = play(NORMALISATION, heap, weights[parameters[0]])
            tensors.update(zip(parameters, made, strict=True))
            rewritten += 2 * weights[parameters[0]]
        for name in layer.inputs:
            nbytes = weights.get(name, 0)
            kept.add(name)
            if name in tensors or nbytes < _SMALLEST_BYTES:
                continue
            if blocked:
                (tensors[name],) = play(REORDERING, heap, nbytes)
            elif renamed.get(nbytes):
                tensors[name] = tensors.pop(renamed[nbytes].pop(0))
                continue
            else:
                tensors[name] = Tensor(heap.allocate(nbytes))
            rewritten += nbytes
    for name in [name for name in tensors if name not in kept]:
        tensors.pop(name).free(heap)
    return rewritten


def _parameters_of_normalisation(layer: Layer, graph: LayerGraph) -> tuple[str, ...]:
    """Returns the weight and bias of a layer that looks like a normalisation made a blocked convolution, else nothing.

    A convolution of each channel alone with a window of one element looks so, too, unless its weights are those of the
    file.
    """
    parameters = layer.inputs[1:3]
    is_scaling = (
        layer.domain == BLOCKED_DOMAIN
        and layer.op_type == "Conv"
        and len(parameters) == 2
        and all(name in graph.constants for name in parameters)
        and graph.types[parameters[0]].shape == (integer(layer.attributes, "group", 1), 1, 1, 1)
    )
    return parameters if is_scaling else ()


def _pack(heap: Heap, arena: Arena, graph: LayerGraph, tensors: dict[str, Tensor]) -> int:
    """Packs constant weights for the kernels; returns the bytes that are packed, dropped copies included.

    Each layer that reads a matrix packs it, and all but the first drop their copy for that of the first. The original
    is freed when the last of its readers has packed it; one that a layer reads as it is stays. Transposed convolutions
    keep their transposed weights in the arena.
    """
    total = 0
    packed = set()
    readers = Counter(name for layer in graph.layers for name in layer.inputs)
    for tensor in tensors.values():
        tensor.entry = [heap.unaligned(40), heap.unaligned(40)]  # now in two tables of the session
    for layer in order_of_addition(graph):
        for name, nbytes in _packed_bytes(layer, graph):
            if layer.op_type == "ConvTranspose":
                arena.allocate(nbytes)
            elif name in packed:
                heap.free(heap.allocate(nbytes))
            else:
                packed.add(name)
                play(PACKING, heap, nbytes)
            total += nbytes
            readers[name] -= 1
            if not readers[name] and name in tensors:
                tensors.pop(name).free(heap)
    return total


def _packed_bytes(layer: Layer, graph: LayerGraph) -> Iterator[tuple[str, int]]:
    """Yields the constants that a layer packs, and the size of the packed copy of each in bytes."""
    if layer.op_type in _QUANTISED_PACKING:
        for quantised in layer.inputs[_QUANTISED_PACKING[layer.op_type] :][:1]:
            if quantised in graph.constants and graph.types[quantised].dtype in ("int8", "uint8"):
                yield quantised, graph.types[quantised].nbytes
        return
    slots, dimensions = _PACKING.get(layer.op_type, ((), None))
    for slot in slots:
        name = layer.inputs[slot] if slot < len(layer.inputs) else ""
        if name not in graph.constants:
            continue
        kind = graph.types[name]
        if kind.dtype != "float32" or not kind.elements:
            continue
        if dimensions == len(kind.shape):
            columns = kind.shape[-2 if dimensions == 3 or integer(layer.attributes, "transB", 0) else -1]
            yield name, kind.nbytes // columns * padded(columns, _PACKED_COLUMNS)
        elif dimensions is None and len(kind.shape) > 2:
            rows, columns = kind.shape[0] // max(1, integer(layer.attributes, "group", 1)), prod(kind.shape[1:])
            if min(rows, columns) > 1:  # one row or one column is its own transpose
                yield name, kind.nbytes
