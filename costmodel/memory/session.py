"""Simulates what a session of ONNX Runtime allocates while it loads a model and runs it (docs/adr/0023)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from costmodel.ir.attributes import integer
from costmodel.ir.graph import Layer, LayerGraph
from costmodel.ir.nchwc import BLOCKED_DOMAIN, padded
from costmodel.ir.source_weights import SourceWeights
from costmodel.memory.arena import Arena, pattern_bytes
from costmodel.memory.buffers import BufferEvent, buffer_events, stored_bytes
from costmodel.memory.execution_order import execution_order
from costmodel.memory.heap import Block, Heap

__all__ = ["MemoryDemand", "memory_demand"]

# The time of a simulation grows faster than the number of layers and weights.
_MOST_LAYERS = 5_000
_MOST_WEIGHTS = 10_000
_SMALLEST_BYTES = 1 << 10
# Buffer through which the parser reads a file.
_PARSE_BUFFER_BYTES = 4 << 20
# The parser reads a longer weight in steps, and copies the first step when it makes room for the second.
_PARSE_STEP_BYTES = 50_000_000
# Operators that keep a packed copy of constant weights: positions of these inputs, and how many dimensions the matrices
# have; None where the weights are transposed instead, whatever their dimensions.
_PACKING = {
    "MatMul": ((1,), 2), "Gemm": ((1,), 2), "FusedMatMul": ((1,), 2), "FusedGemm": ((1,), 2),
    "LSTM": ((1, 2), 3), "GRU": ((1, 2), 3), "ConvTranspose": ((1,), None),
}  # fmt: skip
_MATMUL = ("MatMul", "FusedMatMul")
_PACKED_COLUMNS = 16
# Runs after the first: the second one allocates the block of the memory pattern, the third one finds it free.
_LATER_RUNS = 2


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """Memory that a session allocates for a model, and the work of starting it, as simulated.

    Attributes:
        load_bytes: Peak while the model is loaded: parsed, optimised, and its weights packed.
        run_bytes: Peak while the model runs several times, weights included.
        fragmented_load_bytes: `load_bytes` if small blocks settle beside the weights, so that what is packed does not
            fit into the holes that the weights leave.
        fragmented_run_bytes: `run_bytes` in that case.
        layers: Number of layers; each takes memory that is not simulated.
        source_nodes: Number of nodes of the source model; None if it is not known.
        stored_bytes: Size of the weights in the model's file.
        rewritten_bytes: Size of the weights that are folded from others, or reordered in blocks.
        reordered_bytes: Size of the weights that blocked layers read, which were reordered for them.
        packed_bytes: Size of the matrices that are packed, once for each layer that packs one.
        matmul_bytes: The part of `packed_bytes` that is packed by MatMul and FusedMatMul, as opposed to Gemm.
        normalisations: Number of batch normalisations in the source model; 0 if it is not known.
        load_touched_bytes: Memory that becomes resident while the model is loaded.
        first_run_touched_bytes: Memory that becomes resident during the first run.
        from_source: Whether the sizes of the weights before the runtime rewrote them were known.
    """

    load_bytes: int
    run_bytes: int
    fragmented_load_bytes: int
    fragmented_run_bytes: int
    layers: int
    source_nodes: int | None
    stored_bytes: int
    rewritten_bytes: int
    reordered_bytes: int
    packed_bytes: int
    matmul_bytes: int
    normalisations: int
    load_touched_bytes: int
    first_run_touched_bytes: int
    from_source: bool

    @property
    def peak_bytes(self) -> int:
        """Peak over loading and running, in bytes."""
        return max(self.load_bytes, self.run_bytes)

    @property
    def fragmented_peak_bytes(self) -> int:
        """Peak over loading and running if small blocks settle beside the weights, in bytes."""
        return max(self.fragmented_load_bytes, self.fragmented_run_bytes)


def memory_demand(graph: LayerGraph) -> MemoryDemand | None:
    """Returns the memory that a session allocates for a model; None if it has too many layers or weights."""
    source = graph.source_weights
    num_weights = len(graph.constants) + (0 if source is None else len(source.stored_bytes) + len(source.folded_bytes))
    if len(graph.layers) > _MOST_LAYERS or num_weights > _MOST_WEIGHTS:
        return None
    events = list(buffer_events(replace(graph, layers=execution_order(graph))))
    usual, fragmented = _simulate(graph, events, fragmented=False), _simulate(graph, events, fragmented=True)
    return MemoryDemand(
        load_bytes=usual.load_bytes,
        run_bytes=usual.run_bytes,
        fragmented_load_bytes=fragmented.load_bytes,
        fragmented_run_bytes=fragmented.run_bytes,
        layers=len(graph.layers),
        source_nodes=None if source is None else source.nodes,
        stored_bytes=usual.stored_bytes,
        rewritten_bytes=usual.rewritten_bytes,
        reordered_bytes=sum(
            stored_bytes(graph.types[name])
            for name in {name for layer in graph.layers if layer.domain == BLOCKED_DOMAIN for name in layer.inputs}
            if name in graph.constants
        ),
        packed_bytes=usual.packed_bytes,
        matmul_bytes=sum(
            nbytes for layer in graph.layers if layer.op_type in _MATMUL for _, nbytes in _packed_bytes(layer, graph)
        ),
        normalisations=0 if source is None else source.normalisations,
        load_touched_bytes=usual.load_touched_bytes,
        first_run_touched_bytes=usual.first_run_touched_bytes,
        from_source=source is not None,
    )


class _Simulated(NamedTuple):
    """What one simulation found; the names are those of `MemoryDemand`."""

    load_bytes: int
    run_bytes: int
    stored_bytes: int
    rewritten_bytes: int
    packed_bytes: int
    load_touched_bytes: int
    first_run_touched_bytes: int


def _simulate(graph: LayerGraph, events: list[BufferEvent], *, fragmented: bool) -> _Simulated:
    """Simulates a session that loads a model and runs it, whose buffers `events` allocates and frees."""
    heap, source = Heap(fragmented=fragmented), graph.source_weights
    weights = {name: stored_bytes(graph.types[name]) for name in graph.constants}
    stored = _assumed(graph, weights) if source is None else source.stored_bytes
    blocks = _parse(heap, stored)
    rewritten = _optimise(heap, graph, weights, blocks)
    arena = Arena(heap)
    packed = _pack(heap, arena, graph, blocks)
    load_bytes, load_touched = heap.peak_bytes, heap.touched_bytes
    heap.peak_bytes = heap.resident_bytes
    first_run_touched = _run(heap, arena, events)
    return _Simulated(
        load_bytes, heap.peak_bytes, sum(stored.values()), rewritten, packed, load_touched, first_run_touched
    )


def _assumed(graph: LayerGraph, weights: Mapping[str, int]) -> dict[str, int]:
    """Returns the likely constants of an unknown source: those of the layers, before they were reordered in blocks."""
    reordered = {name for layer in graph.layers if layer.domain == BLOCKED_DOMAIN for name in layer.inputs}
    return {f"{name} before" if name in reordered else name: nbytes for name, nbytes in weights.items()}


def _parse(heap: Heap, stored: Mapping[str, int]) -> dict[str, Block]:
    """Reads the weights of a file and converts them to tensors one by one; returns the tensors by name."""
    large = {name: nbytes for name, nbytes in stored.items() if nbytes >= _SMALLEST_BYTES}
    buffer = heap.allocate(_PARSE_BUFFER_BYTES, aligned=False)
    parsed = {}
    for name, nbytes in large.items():
        step = heap.allocate(_PARSE_STEP_BYTES, aligned=False) if nbytes > _PARSE_STEP_BYTES else None
        parsed[name] = heap.allocate(nbytes, aligned=False)
        if step is not None:
            heap.free(step)
    heap.free(buffer)
    tensors = {}
    for name, block in parsed.items():
        tensors[name] = heap.allocate(large[name])
        heap.free(block)
    return tensors


def _optimise(heap: Heap, graph: LayerGraph, weights: Mapping[str, int], blocks: dict[str, Block]) -> int:
    """Folds constants and frees those that nothing else reads, then reorders the weights of blocked convolutions.

    A weight into which a normalisation was folded becomes that of the same size which a plain layer reads. What no
    layer reads is freed at the end.

    Returns the bytes that were folded or reordered.

    Args:
        heap: Heap of the process.
        graph: Layers after optimisation.
        weights: Size in bytes of each weight that the layers read.
        blocks: Tensors of the source model by name; becomes those that the layers read.
    """
    rewritten = 0
    source = graph.source_weights or SourceWeights({}, {})
    fragmented = heap.fragmented
    heap.fragmented = False
    for name, nbytes in source.folded_bytes.items():
        if nbytes >= _SMALLEST_BYTES and name not in blocks:
            blocks[name] = heap.allocate(nbytes)
            heap.free(heap.allocate(nbytes))
            rewritten += nbytes
    for name in [name for name in blocks if name in source.dropped]:
        heap.free(blocks.pop(name))
    # A normalised weight has a name of the runtime's own in the layers, and is found by its size.
    renamed = [name for name in source.folded_bytes if name in blocks and name not in weights]
    kept = set()
    for layer in graph.layers:
        for name in layer.inputs:
            nbytes = weights.get(name, 0)
            if nbytes < _SMALLEST_BYTES:
                continue
            kept.add(name)
            if name in blocks:
                continue
            same = (old for old in renamed if source.folded_bytes[old] == nbytes)
            if layer.domain != BLOCKED_DOMAIN and (old := next(same, None)) is not None:
                renamed.remove(old)
                blocks[name] = blocks.pop(old)
                continue
            # A reordered weight exists in three more copies until it is stored in the graph. The runtime makes small
            # blocks meanwhile, which may settle beside them.
            heap.fragmented = fragmented and layer.domain == BLOCKED_DOMAIN
            copies = (True, False, False) if layer.domain == BLOCKED_DOMAIN else ()
            transient = [heap.allocate(nbytes, aligned=aligned) for aligned in copies]
            blocks[name] = heap.allocate(nbytes)
            for block in reversed(transient):
                heap.free(block)
            rewritten += nbytes
    heap.fragmented = fragmented
    for name in [name for name in blocks if name not in kept]:
        heap.free(blocks.pop(name))
    return rewritten


def _pack(heap: Heap, arena: Arena, graph: LayerGraph, blocks: dict[str, Block]) -> int:
    """Packs constant weights for the kernels; returns the bytes that are packed, dropped copies included.

    Each layer that reads a matrix packs it, and all but the first drop their copy for that of the first. The original
    is freed when the last of its readers has packed it; one that a layer reads as it is stays. Transposed convolutions
    keep their transposed weights in the arena.
    """
    total, fragmented = 0, heap.fragmented
    packed = set()
    readers = Counter(name for layer in graph.layers for name in layer.inputs)
    for layer in graph.layers:
        for name, nbytes in _packed_bytes(layer, graph):
            if layer.op_type == "ConvTranspose":
                arena.allocate(nbytes)
            elif name in packed:
                heap.fragmented = False  # nothing settles beside a copy that is dropped at once
                heap.free(heap.allocate(nbytes))
                heap.fragmented = fragmented
            else:
                packed.add(name)
                heap.allocate(nbytes)
            total += nbytes
            readers[name] -= 1
            if not readers[name] and name in blocks:
                heap.free(blocks.pop(name))
    return total


def _packed_bytes(layer: Layer, graph: LayerGraph) -> Iterator[tuple[str, int]]:
    """Yields the constants that a layer packs, and the size of the packed copy of each in bytes."""
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


def _run(heap: Heap, arena: Arena, events: list[BufferEvent]) -> int:
    """Runs the model several times: first buffer by buffer, later with all buffers of values in one block.

    Returns the bytes that became resident during the first run.
    """
    before, first = heap.touched_bytes, 0
    kept = Counter(event.buffer for event in events)
    returned = [event.buffer for event in events if event.allocated and kept[event.buffer] == 1]
    block = pattern_bytes(events)
    for run in range(1 + _LATER_RUNS):
        pattern = arena.allocate(block) if run and block else None
        chunks = {}
        for event in events:
            if run and event.kind == "value":
                continue
            if event.allocated:
                chunks[event.buffer] = arena.allocate(event.nbytes)
            else:
                arena.free(chunks.pop(event.buffer))
        for number in returned:
            if number in chunks:
                arena.free(chunks.pop(number))
        if pattern is not None:
            arena.free(pattern)
        if not run:
            first = heap.touched_bytes - before
    return first
