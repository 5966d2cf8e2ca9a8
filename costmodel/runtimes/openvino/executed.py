"""Reads the executed graph of a compiled OpenVINO model: its primitives, their layouts and their operators."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.errors import LoweringError

__all__ = ["Primitive", "added_inputs", "adds_result_of", "executed_graph", "is_plain", "is_view", "overwritten_inputs"]

# Kinds of primitives that move the elements of a tensor, or none of them.
_MOVING = ("Reorder", "Reshape", "Transpose")
# Kinds of primitives that write their result to the memory of their first input.
_IN_PLACE = ("MVN", "NormalizeL2", "ScatterElementsUpdate", "ScatterNDUpdate", "ScatterUpdate", "Softmax")


@dataclass(frozen=True, slots=True)
class Primitive:
    """One node of the executed graph.

    Attributes:
        name: Name of the node, which OpenVINO's profiler uses as well.
        kind: OpenVINO's type of the node, such as "Convolution", "Subgraph" or "Reorder".
        implementation: Name of the kernel, such as "brgconv_avx512_f32".
        operators: Names of the operators of the source model that OpenVINO says the node was made from. The list is not
            complete: names of operators that a transformation replaced are lost.
        layouts: Layout of each output, such as "abcd" (plain) or "acdb" (channels last).
        dtypes: OpenVINO's name of the element type of each output, such as "f32" or "u8".
        shapes: Shape of each output.
        inputs: For each input, the position of the node that produces it, and the output of that node.
    """

    name: str
    kind: str
    implementation: str
    operators: tuple[str, ...]
    layouts: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    inputs: tuple[tuple[int, int], ...]

    @property
    def dtype(self) -> str:
        """Element type of the first output, or "" if there is none."""
        return next(iter(self.dtypes), "")


def executed_graph(compiled: Any) -> list[Primitive]:
    """Returns the executed graph of an `openvino.CompiledModel`, in execution order.

    Raises:
        LoweringError: The shape of a tensor depends on the values of others.
    """
    nodes = compiled.get_runtime_model().get_ordered_ops()
    position = {node.get_friendly_name(): i for i, node in enumerate(nodes)}
    return [_primitive(node, position) for node in nodes]


def _primitive(node: Any, position: Mapping[str, int]) -> Primitive:
    facts = {name: str(getattr(value, "value", value)) for name, value in node.get_rt_info().items()}
    layouts, dtypes = (facts.get(key, "").split(",") for key in ("outputLayouts", "outputPrecisions"))
    sources = [port.get_source_output() for port in node.inputs()]
    if any(port.get_partial_shape().is_dynamic for port in node.outputs()):
        raise LoweringError(
            f"OpenVINO knows the shape of {node.get_friendly_name()} only when it runs: fix it in the model"
        )
    return Primitive(
        name=node.get_friendly_name(),
        kind=facts.get("layerType", ""),
        implementation=facts.get("primitiveType", ""),
        operators=tuple(filter(None, facts.get("originalLayersNames", "").split(","))),
        layouts=tuple(layouts[min(i, len(layouts) - 1)] for i, _ in enumerate(node.outputs())),
        dtypes=tuple(dtypes[min(i, len(dtypes) - 1)] for i, _ in enumerate(node.outputs())),
        shapes=tuple(tuple(port.get_shape()) for port in node.outputs()),
        inputs=tuple((position[s.get_node().get_friendly_name()], s.get_index()) for s in sources),
    )


def is_plain(layout: str, shape: tuple[int, ...]) -> bool:
    """Returns whether a tensor lies in memory as numpy would store it, which layouts of the same memory do, too.

    Args:
        layout: OpenVINO's name of the layout, "" or "undef" if it has none.
        shape: Shape of the tensor.
    """
    if not re.fullmatch("[a-z]+", layout) or layout == "undef" or len(shape) < 3:
        return re.search("[A-Z0-9]", layout) is None
    varying = [axis for axis in layout if shape[ord(axis) - ord("a")] != 1] if len(layout) == len(shape) else []
    return varying == sorted(varying)


def is_view(primitive: Primitive) -> bool:
    """Returns whether a primitive only gives memory another layout, in the place of a transposition."""
    return primitive.kind == "Reorder" and primitive.name.endswith("_fake")


def added_inputs(graph: Sequence[Primitive]) -> set[str]:
    """Returns the names of the inputs of a network to which a convolution adds its result, in their memory."""
    return {
        _origin(graph[source], graph).name
        for primitive in graph
        for source in _added(primitive, graph)
        if _origin(graph[source], graph).kind == "Input"
    }


def overwritten_inputs(graph: Sequence[Primitive]) -> set[str]:
    """Returns the names of the inputs of a network to whose memory a primitive would write its result.

    A request may not overwrite what it is given, so that OpenVINO copies these inputs first.
    """
    first = (_origin(graph[one.inputs[0][0]], graph, ("Reshape",)) for one in graph if one.kind in _IN_PLACE)
    return {primitive.name for primitive in first if primitive.kind == "Input"}


def adds_result_of(primitive: Primitive, graph: Sequence[Primitive], name: str) -> bool:
    """Returns whether a primitive is a convolution that adds its result to a pooling of one that reads `name`."""
    through = (*_MOVING, "Pooling", "Convolution")
    return any(
        graph[source].kind == "Pooling" and _origin(graph[source], graph, through).name == name
        for source in _added(primitive, graph)
    )


def _added(primitive: Primitive, graph: Sequence[Primitive]) -> list[int]:
    """Returns the positions of what a primitive, if it is a convolution, reads besides its input and its weights."""
    read = [source for source, _ in primitive.inputs if graph[source].kind not in ("Const", "Reshape")]
    return read[1:] if primitive.kind in ("Convolution", "Deconvolution") else []


def _origin(primitive: Primitive, graph: Sequence[Primitive], through: Sequence[str] = _MOVING) -> Primitive:
    """Returns the primitive that a chain of primitives of the given kinds begins at."""
    while primitive.kind in through and primitive.inputs:
        primitive = graph[primitive.inputs[0][0]]
    return primitive
