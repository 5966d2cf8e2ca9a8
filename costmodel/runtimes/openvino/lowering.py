"""Makes the canonical graph of the layers that OpenVINO executes from a folded model and its executed graph."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from onnx import ModelProto, TensorProto, numpy_helper

from costmodel.ir.constants import scalar_value
from costmodel.ir.fused import fuse
from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.runtimes.openvino.executed import Primitive, is_plain, is_view
from costmodel.runtimes.openvino.grouping import Group, grouped

__all__ = ["REORDER_DOMAIN", "REVISION", "layers_of_primitives", "lowered_graph"]

REORDER_DOMAIN = "openvino"
# Incremented when models have other layers than before, so that a store keeps both decompositions of a model.
REVISION = 3

_ZERO_POINT = 100  # fits into int8 and uint8


def lowered_graph(folded: ModelProto, graph: LayerGraph, primitives: Sequence[Primitive]) -> LayerGraph:
    """Returns the graph of the layers that OpenVINO executes, with its reorders as layers of their own.

    Args:
        folded: The model that was compiled, as ONNX's own operators; its nodes are named after the layers of `graph`.
        graph: The same model as a graph of layers in plain layout.
        primitives: The executed graph.
    """
    groups = grouped(graph, primitives)
    layouts = _Layouts(graph, groups, primitives)
    constants = {**graph.constants, **_scalars(folded)}
    readers: dict[str, set[int]] = {}
    for number, group in enumerate(groups):
        for layer in group.layers:
            for name in layer.inputs:
                readers.setdefault(name, set()).add(number)
    types, layers = dict(graph.types), list[Layer]()
    for number, group in enumerate(groups):
        renamed = {}
        for name in dict.fromkeys(n for layer in group.layers for n in layer.inputs if n):
            if layouts.produced(name) == layouts.read(name, number) or name in graph.constants:
                continue
            reordered = f"{name}_reordered"
            renamed[name] = reordered
            if reordered not in types:
                types[reordered] = replace(types[name], blocked=layouts.read(name, number))
                layers.append(Layer(_reorder_of(name), "Reorder", REORDER_DOMAIN, 1, {}, (name,), (reordered,)))
        for layer in group.layers:
            for name in layer.outputs:
                if name:
                    types[name] = replace(types[name], blocked=layouts.produced(name))
        outside = {
            n for layer in group.layers for n in layer.outputs if n in graph.outputs or readers.get(n, set()) - {number}
        }
        layers.append(_layer(group, renamed, types, constants, outside))
    used = {n for layer in layers for n in (*layer.inputs, *layer.outputs) if n}
    return LayerGraph(
        layers=tuple(layers),
        types={n: kind for n, kind in types.items() if n in used},
        constants={n: data for n, data in constants.items() if n in used},
        inputs=graph.inputs,
        outputs=graph.outputs,
        opset=graph.opset,
        data_dependent=frozenset(n for n in graph.data_dependent if n in used),
    )


def layers_of_primitives(lowered: LayerGraph, graph: LayerGraph, primitives: Sequence[Primitive]) -> dict[str, str]:
    """Returns the name of the layer that each primitive executes, by the name of the primitive.

    Args:
        lowered: The layers that OpenVINO executes, as `lowered_graph` returns them for the other two.
        graph: The model that was compiled as a graph of layers in plain layout.
        primitives: The executed graph.
    """
    groups = grouped(graph, primitives)
    names = {primitives[p].name: group.layers[-1].name for group in groups for p in group.primitives}
    layers = {layer.name for layer in lowered.layers}
    for p, (values, reader) in _Layouts(graph, groups, primitives).reorders.items():
        own = (name for name in map(_reorder_of, values) if name in layers)
        names[primitives[p].name] = next(own, groups[reader].layers[-1].name)
    return names


def _reorder_of(value: str) -> str:
    """Returns the name of the layer that brings a value into another layout."""
    return f"Reorder_{value}"


def _layer(
    group: Group,
    renamed: Mapping[str, str],
    types: Mapping[str, TensorType],
    constants: Mapping[str, tuple[Any, ...] | None],
    outside: set[str],
) -> Layer:
    layers = [replace(x, inputs=tuple(renamed.get(n, n) for n in x.inputs)) for x in group.layers]
    if len(layers) == 1:
        return layers[0]
    return fuse(layers[-1].name, layers, types, constants, outside)


def _scalars(folded: ModelProto) -> dict[str, tuple[Any, ...]]:
    """Returns the constants by whose values OpenVINO recognises operators: single numbers, and ones and zeros.

    An InstanceNormalization whose scale is ones and whose bias is zeros takes half as long as another. Scales of
    quantisation are left out, because every layer has others, and the time does not depend on them. Of zero points it
    matters only whether they are zero: all others become the same number.
    """
    quantising = [node for node in folded.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    scales = {node.input[1] for node in quantising}
    zero_points = {node.input[2] for node in quantising if len(node.input) > 2}
    scalars: dict[str, tuple[Any, ...]] = {}
    trivial = {
        name: value
        for node in folded.graph.node
        if node.op_type == "InstanceNormalization"
        for name, value in zip(node.input[1:], (1, 0), strict=False)
    }
    for tensor in folded.graph.initializer:
        if tensor.name in trivial and tensor.data_location != TensorProto.EXTERNAL:
            values = numpy_helper.to_array(tensor)
            if (values == trivial[tensor.name]).all():
                scalars[tensor.name] = tuple(values.tolist())
        if tensor.name in scales or tensor.data_location == TensorProto.EXTERNAL or list(tensor.dims) not in ([], [1]):
            continue
        if tensor.name in zero_points:
            scalars[tensor.name] = (_ZERO_POINT if numpy_helper.to_array(tensor).any() else 0,)
        elif tensor.data_type == TensorProto.FLOAT and (value := scalar_value(tensor)) is not None:
            scalars[tensor.name] = value
    return scalars


class _Layouts:
    """In which layout each value is produced, and in which each group reads it: whether the layout is not plain.

    Attributes:
        reorders: For each reorder that belongs to no group, by its position in the executed graph, the values that it
            may bring into another layout, and the number of a group that reads the result.
    """

    def __init__(self, graph: LayerGraph, groups: Sequence[Group], primitives: Sequence[Primitive]) -> None:
        owner = {p: number for number, group in enumerate(groups) for p in group.primitives}
        maker = {n: number for number, group in enumerate(groups) for x in group.layers for n in x.outputs if n}
        inputs = set(graph.inputs)
        # Groups with a transposition that none of their primitives executes.
        self._transposing = {
            number
            for number, group in enumerate(groups)
            if any(layer.op_type == "Transpose" for layer in group.layers)
            and not any(primitives[p].kind == "Transpose" for p in group.primitives)
        }
        self._read: dict[tuple[str, int], bool] = {}
        self._produced: dict[str, bool] = {}
        self.reorders: dict[int, tuple[tuple[str, ...], int]] = {}
        names: dict[tuple[int, int], list[str]] = {}
        for number, group in enumerate(groups):
            for layer in group.layers:
                for name in layer.inputs:
                    if name in inputs:
                        names.setdefault((-1, number), []).append(name)
                    elif name in maker and maker[name] != number:
                        names.setdefault((maker[name], number), []).append(name)
        for number, group in enumerate(groups):
            for p in group.primitives:
                for source, port in primitives[p].inputs:
                    self._edge(graph, owner, primitives, names, number, source, port)

    def _edge(
        self,
        graph: LayerGraph,
        owner: Mapping[int, int],
        primitives: Sequence[Primitive],
        names: Mapping[tuple[int, int], list[str]],
        number: int,
        source: int,
        port: int,
    ) -> None:
        """Records the layouts of the value that a primitive of the group `number` reads from an output of another."""
        origin, origin_port = source, port
        passed = []
        while primitives[origin].kind == "Reorder" and origin not in owner and primitives[origin].inputs:
            passed.append(origin)
            origin, origin_port = primitives[origin].inputs[0]
        made_by = owner.get(origin, -1)
        for reorder in passed:
            self.reorders.setdefault(reorder, (tuple(names.get((made_by, number), ())), number))
        if made_by == number:
            return
        shape, shape_read = primitives[origin].shapes[origin_port], primitives[source].shapes[port]
        produced = not is_plain(primitives[origin].layouts[origin_port], shape)
        read = not is_plain(primitives[source].layouts[port], shape_read)
        # Nothing moves where a reorder stands for a transposition, which belongs to the reader or else to the producer.
        view = any(is_view(primitives[reorder]) for reorder in passed)
        transposed = view and made_by in self._transposing
        for name in names.get((made_by, number), ()):
            if graph.types[name].shape == shape_read and transposed:
                self._read[name, number] = read
                self._produced.setdefault(name, read)
            elif _is_flattened_last(graph.types[name].shape, shape):
                self._read[name, number] = True
                self._produced.setdefault(name, True)
            elif graph.types[name].shape == shape:
                self._read[name, number] = produced if view or shape_read != shape else read
                self._produced.setdefault(name, produced)

    def produced(self, name: str) -> bool:
        """Returns whether a value is produced in another layout than the plain one."""
        return self._produced.get(name, False)

    def read(self, name: str, group: int) -> bool:
        """Returns whether a group reads a value in another layout than the plain one."""
        return self._read.get((name, group), self.produced(name))


def _is_flattened_last(shape: tuple[int, ...], executed: tuple[int, ...]) -> bool:
    """Returns whether a primitive leaves a tensor with its channels last and the other axes flattened."""
    if len(shape) < 4:
        return False
    batch, channels, *sizes = shape
    return executed == (batch, prod(sizes), channels)
