"""What ties the graph that ONNX Runtime wrote to the model that it was made from.

ONNX Runtime names what it makes after what it replaces: a blocked layer is called "<tensor>_nchwc", and fused nodes
keep the name of their last output. Where it numbers names ("reorder_token_17"), the numbers and the order of the
nodes differ from run to run; order and names are therefore taken from the source model.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from onnx import ModelProto, NodeProto

from costmodel.attributes import captured_names
from costmodel.blocked import BLOCKED_DOMAIN
from costmodel.errors import LoweringError

__all__ = ["Trace", "is_channels_last", "origins_of", "reads", "sorted_nodes", "source_order"]

_BLOCKED_NAME = re.compile(r"^(?P<tensor>.+)_nchwc(?:_token_\d+)?$")


def reads(node: NodeProto) -> tuple[str, ...]:
    """Names of the values that a node needs, those that its subgraphs capture included."""
    return tuple(n for n in (*node.input, *captured_names(node)) if n)


def sorted_nodes(model: ModelProto) -> list[NodeProto]:
    """Nodes in an order in which each comes after what it reads; the runtime's own order where it is one."""
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
    """`nodes`, given in a valid order, in the order of the source nodes whose results they make.

    What the runtime added comes right after what it reads.
    """
    places = {n: place for place, node in enumerate(source.graph.node) for n in node.output if n}
    producer = {n: i for i, node in enumerate(nodes) for n in node.output if n}
    needs = [{producer[n] for n in reads(node) if n in producer} for node in nodes]
    keys: list[tuple[int, str, str, int]] = []
    for i, node in enumerate(nodes):
        made = next(n for n in node.output if n)
        inherited = max((keys[before][0] for before in needs[i]), default=-1)
        place = places.get(origins.get(made, made), inherited)
        attributes = "".join(repr(a) for a in node.attribute) if place == inherited else ""
        keys.append((place, node.op_type, attributes, i))
    followers: list[list[int]] = [[] for _ in nodes]
    for i, before in enumerate(needs):
        for j in before:
            followers[j].append(i)
    waiting = [len(before) for before in needs]
    ready = [keys[i] for i, count in enumerate(waiting) if count == 0]
    heapify(ready)
    ordered = []
    while ready:
        *_, i = heappop(ready)
        ordered.append(nodes[i])
        for follower in followers[i]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heappush(ready, keys[follower])
    return ordered


def origins_of(nodes: Iterable[NodeProto], source: ModelProto) -> dict[str, str]:
    """For each value that the runtime renamed, the source tensor that it stands for."""
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
            if tensor not in made:  # a normalisation or product turned into a convolution says so in its name
                tensor = tensor.removesuffix("_bn").removesuffix("_mul")
            origins[node.output[0]] = _fused_output(node, tensor, readers)
        elif node.domain == BLOCKED_DOMAIN and node.op_type == "ReorderInput":
            if is_channels_last(node):
                continue  # the source has its transpose, if anything
            origins[node.output[0]] = origins.get(node.input[0], node.input[0])
        elif node.output[0].startswith("reorder") and node.name in by_node:
            origins[node.output[0]] = by_node[node.name].output[0]
    return origins


def is_channels_last(node: NodeProto) -> bool:
    """Whether a reorder reads, or writes, plain tensors with the channels last."""
    return any(a.name == "channels_last" and a.i for a in node.attribute)


def _fused_output(node: NodeProto, tensor: str, readers: Mapping[str, Sequence[NodeProto]]) -> str:
    """Where a blocked layer that swallowed a Sum, and the activation after it, really ends in the source."""
    if node.op_type != "Conv" or len(node.input) < 4:
        return tensor
    wanted: list[tuple[str, ...]] = [("Sum", "Add")]
    wanted += [(a.s.decode(),) for a in node.attribute if a.name == "activation"]
    for op_types in wanted:
        following = [reader for reader in readers.get(tensor, ()) if reader.op_type in op_types]
        if len(following) != 1:
            break
        tensor = following[0].output[0]
    return tensor


class Trace:
    """Finds the source nodes that a layer replaces: those between the values it reads and the ones it makes."""

    def __init__(self, source: ModelProto) -> None:
        self._producers = {n: node for node in source.graph.node for n in node.output if n}
        self._by_name = {node.name: node for node in source.graph.node if node.name}
        self._constants = {t.name for t in source.graph.initializer}
        self._inputs = {p.name for p in source.graph.input} - self._constants

    def sources(self, node: NodeProto, inputs: Iterable[str], outputs: Sequence[str]) -> tuple[str, ...]:
        """Names of the source nodes that a layer reading `inputs` and making `outputs` stands for."""
        stops = set(inputs)
        found: dict[str, None] = {}
        waiting = [n for n in outputs if n in self._producers]
        while waiting:
            name = waiting.pop()
            if name in stops or name in self._constants:
                continue
            if name in self._inputs or len(found) > len(stops) + 64:
                # the names lead elsewhere, for example because equal layers were merged: keep what is certain
                found = dict.fromkeys(_label(self._producers[n]) for n in outputs if n in self._producers)
                break
            producer = self._producers.get(name)
            if producer is not None and _label(producer) not in found:
                found[_label(producer)] = None
                waiting.extend(n for n in (*producer.input, *captured_names(producer)) if n)
        if not found:
            # the layer's own name, or what it was before a fusion was written behind it
            own = next((n for n in (node.name, node.name.rpartition("/")[0]) if n in self._by_name), None)
            found = {own: None} if own else {}
        return tuple(reversed(found))


def _label(node: NodeProto) -> str:
    return node.name or node.output[0]
