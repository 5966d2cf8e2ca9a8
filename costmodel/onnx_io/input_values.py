"""Turns inputs that control what a model does, such as `use_cache_branch`, into constants."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from costmodel.errors import ModelReadError
from costmodel.ir.constants import data_type_of
from costmodel.ir.graph import TensorType
from costmodel.onnx_io.branches import inline_branches

__all__ = ["branching_inputs", "constants_for", "with_constants"]

# An input that controls a model is a flag, a length or a rate for each sample. A constant in place of data would let
# the runtime compute, while it loads the model, what it computes in each run.
_MAX_ELEMENTS = 64


def constants_for(title: str, inputs: Mapping[str, TensorType], values: Mapping[str, float]) -> list[TensorProto]:
    """Returns the constants that take the place of inputs: tensors of the shape of the input, filled with one number.

    Args:
        title: Name of the model, for error messages.
        inputs: Type of every input of the model.
        values: The number for each of these inputs, by name; 0 and 1 for booleans.

    Raises:
        ModelReadError: There is no input of that name, it has more than 64 elements, or its element type does not have
            that number.
    """
    return [_constant(title, name, inputs, value) for name, value in values.items()]


def with_constants(proto: ModelProto, constants: Sequence[TensorProto]) -> None:
    """Replaces inputs of a model, in place, by the constants that have their names, and Ifs that they decide."""
    if not constants:
        return
    replaced = {tensor.name for tensor in constants}
    if proto.ir_version >= 4:  # before, constants are listed among the inputs
        kept = [port for port in proto.graph.input if port.name not in replaced]
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
    proto.graph.initializer.extend(constants)
    inline_branches(proto)


def branching_inputs(graph: GraphProto, inputs: Mapping[str, TensorType]) -> list[str]:
    """Returns the inputs that alone decide which branch of an If runs, and that can be given a value.

    Args:
        graph: Graph of a model without cycles. Subgraphs, which may have If nodes of their own, are not searched.
        inputs: Type of every input of the model.
    """
    # What is computed from the shape of an input does not depend on its value.
    nodes = [node for node in graph.node if node.op_type not in ("Shape", "Size")]
    producers = {name: node for node in nodes for name in node.output}
    found: dict[str, None] = {}
    for node in graph.node:
        if node.op_type != "If":
            continue
        seen, waiting = set(), list(node.input[:1])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting.extend(producers[name].input if name in producers else ())
        deciding = [name for name in inputs if name in seen]
        if all(math.prod(inputs[name].shape) <= _MAX_ELEMENTS for name in deciding):
            found.update(dict.fromkeys(deciding))
    return list(found)


def _constant(title: str, name: str, inputs: Mapping[str, TensorType], value: float) -> TensorProto:
    kind = inputs.get(name)
    if kind is None:
        raise ModelReadError(f"{title} has no input named {name}: its inputs are {', '.join(inputs)}")
    elements = math.prod(kind.shape)
    if elements > _MAX_ELEMENTS:
        raise ModelReadError(
            f"{title}: input {name} has {elements:,} elements: only inputs that control what the model does, of at "
            f"most {_MAX_ELEMENTS} elements, can be given a value"
        )
    dtype = helper.tensor_dtype_to_np_dtype(data_type_of(kind.dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        number = np.array(value).astype(dtype)
    # A fraction may be rounded to the precision of the input; a flag or an integer is what was given, or wrong.
    if not np.isclose(float(number), value, rtol=0 if dtype.kind in "biu" else 0.01, atol=0):
        raise ModelReadError(f"{title}: input {name} has elements of {kind.dtype}, which cannot be {value:g}")
    return numpy_helper.from_array(np.full(kind.shape, number), name)
