"""Relates the graph that ONNX Runtime wrote to the source model that it was made from.

ONNX Runtime names new nodes after those that they replace: a blocked layer is called "<tensor>_nchwc", and fused nodes
keep the name of their last output. Where it numbers names ("reorder_token_17"), the numbers and the order of the
nodes differ from run to run; order and names are therefore taken from the source model.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from onnx import ModelProto, NodeProto

from costmodel.errors import LoweringError
from costmodel.ir.attributes import captured_names
from costmodel.ir.nchwc import BLOCKED_DOMAIN
from costmodel.ir.topological_order import topological_order

__all__ = [
    "Trace",
    "is_channels_last",
    "name_nodes",
    "origins_of",
    "permuted_origins_of",
    "reads",
    "sorted_nodes",
    "source_order",
]

_BLOCKED_NAME = re.compile(r"^(?P<tensor>.+)_nchwc(?:_token_\d+)?$")


def name_nodes(model: ModelProto) -> None:
    """Gives each node of the main graph a name of its own, by which the nodes of the lowered graph are traced to it."""
    names: set[str] = set()
    given = {node.name for node in model.graph.node}
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in names:
            name = next((name for name in node.output if name), "")
            node.name = name if name not in given else f"{name}_{number}"
        names.add(node.name)


def reads(node: NodeProto) -> tuple[str, ...]:
    """Returns the names of the values that a node reads, including those that its subgraphs capture."""
    return tuple(n for n in (*node.input, *captured_names(node)) if n)


def sorted_nodes(model: ModelProto) -> list[NodeProto]:
    """Returns the nodes of `model` in topological order, which is their given order if that is topological already.

    Raises:
        LoweringError: A node reads a value that no node produces.
    """
    waiting = list(model.graph.node)
    made = {t.name for t in model.graph.initializer} | {p.name for p in model.graph.input} | {""}
    ordered: list[NodeProto] = []
    while waiting:
        rest = []
        for node in waiting:
            if all(n in made for n in (*node.input, *captured_names(node))):
                ordered.append(node)
                made |= set(node.output)
            else:
                rest.append(node)
        if len(rest) == len(waiting):
            raise LoweringError(f"layer {rest[0].name or rest[0].op_type} reads a value that nothing makes")
        waiting = rest
    return ordered


def source_order(nodes: Sequence[NodeProto], source: ModelProto, origins: Mapping[str, str]) -> list[NodeProto]:
    """Returns the nodes of a lowered graph in the order of the source nodes whose results they produce.

    A node that the runtime added follows the nodes that it reads from.

    Args:
        nodes: Nodes of the lowered graph in topological order.
        source: The source model.
        origins: Name in the source model of each value that the runtime renamed, as `origins_of` returns it.
    """
    positions = {n: position for position, node in enumerate(source.graph.node) for n in node.output if n}
    producer = {n: i for i, node in enumerate(nodes) for n in node.output if n}
    predecessors = [{producer[n] for n in reads(node) if n in producer} for node in nodes]
    keys: list[tuple[int, str, str, int]] = []
    for i, node in enumerate(nodes):
        made = next(n for n in node.output if n)
        inherited = max((keys[before][0] for before in predecessors[i]), default=-1)
        position = positions.get(origins.get(made, made), inherited)
        attributes = "".join(repr(a) for a in node.attribute) if position == inherited else ""
        keys.append((position, node.op_type, attributes, i))
    return [nodes[i] for i in topological_order(predecessors, keys.__getitem__)]


def origins_of(nodes: Iterable[NodeProto], source: ModelProto) -> dict[str, str]:
    """Returns the name in the source model of each value that the runtime renamed, by its name in the lowered graph."""
    by_node = {node.name: node for node in source.graph.node if node.name}
    readers: dict[str, list[NodeProto]] = {}
    for node in source.graph.node:
        for n in node.input:
            readers.setdefault(n, []).append(node)
    made = {n for node in source.graph.node for n in node.output}
    origins: dict[str, str] = {}
    for node in nodes:
        match = _BLOCKED_NAME.match(node.name) if node.domain == BLOCKED_DOMAIN else None
        if match:
            tensor = match["tensor"]
            if tensor not in made:  # a normalisation or product that became a convolution has a suffix in its name
                tensor = tensor.removesuffix("_bn").removesuffix("_mul")
            origins[node.output[0]] = _fused_output(node, tensor, readers)
        elif node.domain == BLOCKED_DOMAIN and node.op_type == "ReorderInput":
            if is_channels_last(node):
                continue  # the source may have the transposed tensor, but not this one
            origins[node.output[0]] = origins.get(node.input[0], node.input[0])
        elif node.output[0].startswith("reorder") and node.name in by_node:
            origins[node.output[0]] = by_node[node.name].output[0]
    return origins


def permuted_origins_of(nodes: Iterable[NodeProto], source: ModelProto) -> dict[str, str]:
    """Returns names of the source model for values of blocked layers that the runtime made by moving a transposition.

    It names such a value after the node that makes it. The source model's value has the same dimensions in another
    order, such as the channels last, as TensorFlow has them.
    """
    by_node = {node.name: node.output[0] for node in source.graph.node if node.name}
    made = {n for node in source.graph.node for n in node.output}
    found: dict[str, str] = {}
    for node in nodes:
        match = _BLOCKED_NAME.match(node.name) if node.domain == BLOCKED_DOMAIN else None
        if match and match["tensor"] not in made and match["tensor"] in by_node:
            found[node.output[0]] = by_node[match["tensor"]]
    return found


def is_channels_last(node: NodeProto) -> bool:
    """Returns whether a layout reorder reads or writes its plain tensor with the channels last."""
    return any(a.name == "channels_last" and a.i for a in node.attribute)


def _fused_output(node: NodeProto, tensor: str, readers: Mapping[str, Sequence[NodeProto]]) -> str:
    """Returns the source tensor that a blocked layer produces: `tensor`, or the result of a fused Sum or activation."""
    if node.op_type != "Conv" or len(node.input) < 4:
        return tensor
    fused: list[tuple[str, ...]] = [("Sum", "Add")]
    fused += [(a.s.decode(),) for a in node.attribute if a.name == "activation"]
    for op_types in fused:
        following = [reader for reader in readers.get(tensor, ()) if reader.op_type in op_types]
        if len(following) != 1:
            break
        tensor = following[0].output[0]
    return tensor


class Trace:
    """Search for the source nodes that a layer replaces: those between the values that it reads and produces."""

    def __init__(self, source: ModelProto) -> None:
        self._producers = {n: node for node in source.graph.node for n in node.output if n}
        self._by_name = {node.name: node for node in source.graph.node if node.name}
        self._constants = {t.name for t in source.graph.initializer}
        self._inputs = {p.name for p in source.graph.input} - self._constants

    def sources(self, node: NodeProto, inputs: Iterable[str], outputs: Sequence[str]) -> tuple[str, ...]:
        """Returns the names of the source nodes that the layer `node` replaces.

        Args:
            node: Node of the lowered graph.
            inputs: Names in the source model of the values that it reads.
            outputs: Names in the source model of the values that it produces.
        """
        stops = set(inputs)
        replaced: dict[str, None] = {}
        waiting = [n for n in outputs if n in self._producers]
        while waiting:
            name = waiting.pop()
            if name in stops or name in self._constants:
                continue
            if name in self._inputs or len(replaced) > len(stops) + 64:
                # the search left the layer, for example because equal layers were merged: keep only the producers
                replaced = dict.fromkeys(_label(self._producers[n]) for n in outputs if n in self._producers)
                break
            producer = self._producers.get(name)
            if producer is not None and _label(producer) not in replaced:
                replaced[_label(producer)] = None
                waiting.extend(n for n in (*producer.input, *captured_names(producer)) if n)
        if not replaced:
            # use the layer's own name, or its name before a fusion appended a suffix
            own = next((n for n in (node.name, node.name.rpartition("/")[0]) if n in self._by_name), None)
            replaced = {own: None} if own else {}
        return tuple(reversed(replaced))


def _label(node: NodeProto) -> str:
    return node.name or node.output[0]
