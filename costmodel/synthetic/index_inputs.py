"""Finds the inputs of a network that are indices into tables, and how large these indices may be.

Token ids and the ids of recommendation models decide which rows of a table a run reads, and so from which cache they
come. Synthetic ids are therefore spread over the whole table, as real ones are, even where a network splits, reshapes
or offsets them before it looks them up.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from costmodel.onnx_io.external_data import omitted_bytes

__all__ = ["index_limits"]

# Operators whose outputs have no other values than some of their inputs: Concat all of them, Where the last two, the
# others the first one.
_PASSED_ON = {
    "Cast", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice",
    "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
_LOOKUPS = {"Gather", "GatherElements"}
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)


def index_limits(graph: GraphProto) -> dict[str, int]:
    """Returns the number of rows that each integer input may choose from, by the name of the input.

    Inputs that are not looked up in a table whose size is known are left out. If an input is looked up in several
    tables, the smallest one counts.

    Args:
        graph: Main graph of a model. Its weights may have been left out.
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for port in (*graph.input, *graph.value_info):
        if port.type.tensor_type.HasField("shape"):
            shapes.setdefault(port.name, tuple(dim.dim_value for dim in port.type.tensor_type.shape.dim))
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = node.attribute[0].t
            shapes[node.output[0]] = tuple(node.attribute[0].t.dims)
    readers = defaultdict(list)
    for node in graph.node:
        for slot, name in enumerate(node.input):
            readers[name].append((node, slot))
    limits = {}
    for port in graph.input:
        if port.type.tensor_type.elem_type in _INTEGERS and port.name not in constants:
            found = list(_limits_of(port.name, readers, shapes, constants))
            if found and min(found) > 0:
                limits[port.name] = min(found)
    return limits


def _limits_of(
    name: str,
    readers: Mapping[str, list[tuple[NodeProto, int]]],
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, TensorProto],
) -> Iterator[int]:
    """Yields, for each table in which a value is looked up, the number of rows less what is added to the value."""
    waiting, visited = [(name, 0)], set()
    while waiting:
        name, added = waiting.pop()
        if (name, added) in visited:
            continue
        visited.add((name, added))
        for node, slot in readers[name]:
            if node.op_type in _LOOKUPS and slot == 1:
                table = shapes.get(node.input[0], ())
                axis = next((helper.get_attribute_value(a) for a in node.attribute if a.name == "axis"), 0)
                if -len(table) <= axis < len(table) and table[axis]:
                    yield table[axis] - added
            elif node.op_type == "Add" and node.input[1 - slot] in constants:
                offset = constants[node.input[1 - slot]]
                if not omitted_bytes(offset):
                    largest = int(np.max(numpy_helper.to_array(offset), initial=0))
                    waiting.append((node.output[0], added + largest))
            elif node.op_type in _PASSED_ON and _passes_on(node.op_type, slot):
                waiting.extend((output, added) for output in node.output)


def _passes_on(op_type: str, slot: int) -> bool:
    return {"Concat": True, "Where": slot > 0}.get(op_type, slot == 0)
