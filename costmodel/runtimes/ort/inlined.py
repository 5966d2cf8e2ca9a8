"""Puts back the operators for which ONNX Runtime has no kernel, and in whose place it has written what they consist of.

ONNX defines some operators, such as HardSwish, by others. ONNX Runtime replaces each of them that it has no kernel for
when it loads a model, whatever the level of optimisation. Another runtime may have a kernel, so that it would run other
layers in the model as it is than in the model that ONNX Runtime folded.
"""

from collections import defaultdict
from collections.abc import Mapping

from onnx import ModelProto, NodeProto

from costmodel.runtimes.ort.provenance import reads

__all__ = ["restore_inlined"]

# Beginning of the names that ONNX Runtime gives to the values inside an operator that it replaces.
_PREFIX = "_inlfunc_"


def restore_inlined(folded: ModelProto, source: ModelProto) -> None:
    """Replaces the parts of operators of the main graph that ONNX Runtime inlined by these operators, in place.

    An operator stays inlined if one of its inputs is not in the folded model any more, or if what it consists of is
    used elsewhere as well.

    Args:
        folded: Model that ONNX Runtime wrote.
        source: Model that it was made from.
    """
    nodes = dict(enumerate(folded.graph.node))
    producers = {name: position for position, node in nodes.items() for name in node.output}
    readers = defaultdict(set)
    for position, node in nodes.items():
        for name in reads(node):
            readers[name].add(position)
    known = {"", *producers, *(t.name for t in folded.graph.initializer), *(i.name for i in folded.graph.input)}
    for node in source.graph.node:
        if node.domain or not known.issuperset(node.input) or not producers.keys() >= set(node.output):
            continue
        parts = _parts_of(node, folded, producers)
        inside = {name for part in parts for name in folded.graph.node[part].output} - set(node.output)
        if inside and all(readers[name] <= parts for name in inside):
            last = max(parts)
            for part in parts - {last}:
                del nodes[part]
            nodes[last] = node
    ordered = [nodes[position] for position in sorted(nodes)]
    del folded.graph.node[:]
    folded.graph.node.extend(ordered)


def _parts_of(node: NodeProto, folded: ModelProto, producers: Mapping[str, int]) -> set[int]:
    """Returns the positions of the nodes in the place of one of the source model, which may still be itself."""
    prefix = f"{_PREFIX}{node.op_type}_"
    parts: set[int] = set()
    waiting = {producers[name] for name in node.output if name}
    while waiting:
        part = waiting.pop()
        parts.add(part)
        inner = {name for name in folded.graph.node[part].input if name.startswith(prefix) and name in producers}
        waiting |= {producers[name] for name in inner} - parts
    return parts
