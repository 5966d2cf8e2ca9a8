"""Replaces each If whose condition is constant by the layers of its branch.

ONNX Runtime does so, too, but its release 1.31 ends the process if the branch has conditions that depend on shapes, as
that of Silero's VAD.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from costmodel.ir.attributes import bind_captured

__all__ = ["inline_branches"]

_Known = dict[str, np.ndarray]

# Operators that leave a single number as it is.
_SAME = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_FUNCTIONS: Mapping[str, Callable[..., np.ndarray]] = MappingProxyType({
    "And": np.logical_and, "Equal": np.equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal,
    "Less": np.less, "LessOrEqual": np.less_equal, "Not": np.logical_not, "Or": np.logical_or, "Xor": np.logical_xor,
})  # fmt: skip


def inline_branches(proto: ModelProto) -> None:
    """Replaces, in place, each If whose condition is computed from constants of one number by its branch's layers.

    An If in a body of a Loop, of a Scan or of an If that remains is left as it is.
    """
    graph = proto.graph
    names = Counter(_names(graph))
    known: _Known = {}
    _learn(known, graph.initializer)
    waiting = list(reversed(graph.node))
    nodes: list[NodeProto] = []
    while waiting:
        node = waiting.pop()
        branch = _branch(node, known)
        if branch is None:
            value = None
            with suppress(ValueError, TypeError, KeyError, IndexError):  # damaged nodes are for the runtime to refuse
                value = _value(node, known)
            if value is not None and len(node.output) == 1:
                known[node.output[0]] = value
            nodes.append(node)
            continue
        for attribute in node.attribute:
            names.subtract(_names(attribute.g))
        _make_unique(branch, names)
        names.update(_names(branch))
        _learn(known, branch.initializer)
        graph.initializer.extend(branch.initializer)
        outputs = zip(branch.output, node.output, strict=True)
        copies = [helper.make_node("Identity", [port.name], [name], name) for port, name in outputs if name]
        waiting += [*reversed(copies), *reversed(branch.node)]
    del graph.node[:]
    graph.node.extend(nodes)


def _branch(node: NodeProto, known: _Known) -> GraphProto | None:
    """Returns a copy of the branch of an If that always runs; None for other nodes, and if the condition is unknown."""
    if node.op_type != "If" or not node.input or node.input[0] not in known:
        return None
    wanted = "then_branch" if known[node.input[0]] else "else_branch"
    found = next((attribute.g for attribute in node.attribute if attribute.name == wanted), None)
    if found is None or found.sparse_initializer or len(found.output) != len(node.output):
        return None
    branch = GraphProto()
    branch.CopyFrom(found)
    return branch


def _learn(known: _Known, constants: Iterable[TensorProto]) -> None:
    for tensor in constants:
        if math.prod(tensor.dims) == 1 and tensor.data_location != TensorProto.EXTERNAL:
            with suppress(ValueError, TypeError, KeyError):  # values that were left out, or are damaged
                known[tensor.name] = numpy_helper.to_array(tensor).reshape(())


def _value(node: NodeProto, known: _Known) -> np.ndarray | None:
    """Returns the single number that a node computes from known ones; None if it is not known."""
    given = {attribute.name: attribute for attribute in node.attribute}
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Constant":
        if "value" in given and math.prod(given["value"].t.dims) == 1:
            constants: _Known = {}
            _learn(constants, [given["value"].t])
            return next(iter(constants.values()), None)
        single = given.get("value_int") or given.get("value_float")
        return None if single is None else np.array(helper.get_attribute_value(single))
    operands = [known.get(name) for name in node.input]
    if node.op_type in _SAME:
        return operands[0]
    if any(operand is None for operand in operands):
        return None
    if node.op_type in _FUNCTIONS:
        return np.asarray(_FUNCTIONS[node.op_type](*operands))
    if node.op_type == "Cast" and operands[0] is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            return operands[0].astype(helper.tensor_dtype_to_np_dtype(given["to"].i))
    return None


def _make_unique(branch: GraphProto, names: Counter[str]) -> None:
    """Renames, in place, what a branch defines under a name that the rest of the model, which has `names`, has, too."""
    defined = [tensor.name for tensor in branch.initializer]
    defined += [name for node in branch.node for name in node.output if name]
    own = set(_names(branch))
    renamed = {}
    for name in defined:
        new = name
        while names[new] or (new != name and new in own):
            new += "_"
        own.add(new)
        if new != name:
            renamed[name] = new
    for tensor in branch.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for node in branch.node:
        node.output[:] = [renamed.get(name, name) for name in node.output]
    bind_captured(branch, renamed)


def _names(graph: GraphProto) -> Iterator[str]:
    """Yields the names of the values that a graph and its subgraphs define, each as often as it is defined."""
    yield from (port.name for port in (*graph.input, *graph.initializer))
    for node in graph.node:
        yield from node.output
        for attribute in node.attribute:
            yield from _names(attribute.g)
