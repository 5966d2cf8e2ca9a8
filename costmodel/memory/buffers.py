"""Assigns the values of a model to buffers, as ONNX Runtime's allocation planner does.

A value takes the buffer of an input that it is a view of (Reshape), or that its layer may overwrite (Relu); else a
buffer that no later layer reads, of the same shape in memory and with elements of the same size; else a new one. An
output of the model always gets a new one. A buffer is freed after the last use of its last value.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

from costmodel.ir.graph import ITEM_BYTES, Layer, LayerGraph, TensorType
from costmodel.ir.nchwc import padded
from costmodel.memory.workspaces import workspace_bytes

__all__ = ["NARROW", "WIDE", "BufferEvent", "buffer_events", "stored_bytes"]

# Operators whose output is a view of their first input.
_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"})
# Operators that may write their output over an input of the same size, with the position of that input.
_OVERWRITES = dict.fromkeys((
    "Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu", "Elu", "Selu", "Celu", "Softplus", "Softsign", "ThresholdedRelu",
    "HardSigmoid", "Softmax", "LogSoftmax", "Cast", "Sin", "Cos", "ScatterND", "ScatterElements", "Trilu",
), 0) | {"FusedConv": 3, "Conv": 3}  # fmt: skip
BufferKind = Literal["value", "output", "workspace"]
# Channels in a block of the NCHWc layout, to which blocked tensors are padded: without AVX-512, and with it.
NARROW, WIDE = 8, 16


@dataclass(frozen=True, slots=True)
class BufferEvent:
    """Allocation or release of a buffer while a model runs.

    Attributes:
        buffer: Number of the buffer.
        nbytes: Size of the buffer in bytes.
        kind: "value" for a buffer that lives within a run, "output" for one that the caller receives,
            "workspace" for one that lives while its layer runs.
        allocated: Whether the buffer is allocated; if not, it is freed.
    """

    buffer: int
    nbytes: int
    kind: BufferKind
    allocated: bool


def stored_bytes(kind: TensorType, block: int) -> int:
    """Returns the size of a tensor in memory in bytes; one in a blocked layout is padded to `block` channels."""
    if not kind.blocked or not kind.elements:
        return kind.nbytes
    return kind.nbytes // kind.elements * prod(_stored_shape(kind, block))


def _stored_shape(kind: TensorType, block: int) -> tuple[int, ...]:
    """Returns the shape of a tensor in memory; the channels of a blocked one fill whole blocks."""
    if not kind.blocked or len(kind.shape) < 2:
        return kind.shape
    return kind.shape[0], padded(kind.shape[1], block), *kind.shape[2:]


def buffer_events(graph: LayerGraph, block: int) -> Iterator[BufferEvent]:
    """Yields the allocations and releases of one run of a model, in order.

    Args:
        graph: Layers of the model in the order of execution.
        block: Number of channels in a block of the NCHWc layout.
    """
    made = {name for layer in graph.layers for name in layer.outputs if name}
    owner = {name: buffer for name, buffer in _owners(graph, block).items() if buffer in made}
    last_use: dict[str, int] = {}
    for position, layer in enumerate(graph.layers):
        for name in (*layer.inputs, *layer.outputs):
            if name in owner:
                last_use[owner[name]] = position
    returned = {owner[name] for name in graph.outputs if name in owner}
    dying: dict[int, list[str]] = {}
    for name, position in last_use.items():
        if name not in returned:
            dying.setdefault(position, []).append(name)
    numbers = {name: number for number, name in enumerate(last_use)}
    for position, layer in enumerate(graph.layers):
        for name in filter(None, layer.outputs):
            if owner.get(name) == name:
                kind: BufferKind = "output" if name in returned else "value"
                yield BufferEvent(numbers[name], stored_bytes(graph.types[name], block), kind, True)
        if workspace := workspace_bytes(layer, graph):
            yield BufferEvent(len(numbers) + position, workspace, "workspace", True)
            yield BufferEvent(len(numbers) + position, workspace, "workspace", False)
        for name in dying.get(position, ()):
            yield BufferEvent(numbers[name], stored_bytes(graph.types[name], block), "value", False)


def _owners(graph: LayerGraph, block: int) -> dict[str, str]:
    """Returns, for each value that a layer makes, the value whose buffer it takes: itself or an earlier value.

    That is an input or a constant of the graph if the value is a view of it.
    """
    uses: dict[str, int] = {}
    for layer in graph.layers:
        for name in layer.inputs:
            uses[name] = uses.get(name, 0) + 1
    outputs = set(graph.outputs)
    for name in outputs:
        uses[name] = uses.get(name, 0) + 1
    owner: dict[str, str] = {}
    remaining: dict[str, int] = {}  # uses of the values in each buffer that are still to come
    free: dict[tuple[float, tuple[int, ...]], list[str]] = {}
    for layer in graph.layers:
        for slot, name in enumerate(layer.outputs):
            if not name:
                continue
            size = _size(graph.types[name], block)
            found = None
            if name not in outputs:
                found = _overwritten(layer, slot, graph, owner, remaining, block)
                if found is None and size is not None and free.get(size):
                    found = free[size].pop()
            owner[name] = name if found is None else found
            remaining[owner[name]] = remaining.get(owner[name], 0) + uses.get(name, 0)
        released = []
        for name in layer.inputs:
            if name in owner:
                remaining[owner[name]] -= 1
                released.append(owner[name])
        released += [owner[name] for name in layer.outputs if name and not uses.get(name)]
        for name in dict.fromkeys(released):
            if (
                remaining[name] == 0
                and owner.get(name) == name
                and (size := _size(graph.types[name], block)) is not None
            ):
                free.setdefault(size, []).append(name)
    return owner


def _size(kind: TensorType, block: int) -> tuple[float, tuple[int, ...]] | None:
    """Returns what two tensors must have in common to use one buffer: size of an element, and shape in memory.

    It is None for single numbers, strings and sequences, which take no buffer that another value has left.
    """
    return None if kind.opaque or not kind.shape else (ITEM_BYTES[kind.dtype], _stored_shape(kind, block))


def _overwritten(
    layer: Layer, slot: int, graph: LayerGraph, owner: dict[str, str], remaining: dict[str, int], block: int
) -> str | None:
    """Returns the buffer of an input that the output at `slot` takes, if any."""
    if slot:
        return None
    if layer.op_type in _VIEWS and layer.inputs:
        return owner.get(layer.inputs[0], layer.inputs[0])
    position = _OVERWRITES.get(layer.op_type, len(layer.inputs))
    source = layer.inputs[position] if position < len(layer.inputs) else ""
    buffer = owner.get(source)
    overwritten = (
        buffer is not None
        and owner.get(buffer) == buffer  # not the model's own input or constant, of which `source` is a view
        and remaining[buffer] == 1
        and _size(graph.types[source], block) == _size(graph.types[layer.outputs[0]], block)
    )
    return buffer if overwritten else None
