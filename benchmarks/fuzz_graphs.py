"""Mutates graphs of layers in JSON, both the document and its bytes."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

__all__ = ["mutated_graph"]

_NUMBERS = (0, -1, 1, 2, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400)
_FLOATS = (1e308, -1e308, 5e-324, 0.5, float("nan"), float("inf"), float("-inf"))
_TEXTS = ("", "\0", "\ud800", "a\udc00b", "‮", "x" * 20_000, "\x1b[2J", "float32", "NaN", "../..", "'\"<script>")
_LISTS: tuple[Any, ...] = ([], [0], [1] * 30_000, [-1] * 3, [[[[]]]], [None], ["1"], [1.5], [2**63] * 4)
_OPERATORS = (
    "Conv", "FusedConv", "ConvTranspose", "MatMul", "Gemm", "MaxPool", "ReduceMean", "Softmax", "Resize", "Pad",
    "Slice", "Gather", "Transpose", "Concat", "Split", "LSTM", "GRU", "Attention", "MultiHeadAttention", "Einsum",
    "TopK", "TreeEnsembleRegressor", "If", "Loop", "ReorderInput", "Unknown", "Constant", "ConstantOfShape", "RoiAlign",
)  # fmt: skip
_ATTRIBUTES = (
    "strides",
    "pads",
    "dilations",
    "kernel_shape",
    "group",
    "axes",
    "axis",
    "perm",
    "alpha",
    "num_heads",
    "g",
)
_DTYPES = ("float32", "float16", "int4", "string", "sequence", "bfloat16", "complex64", "object", "", None, 1)


def mutated_graph(graph: dict[str, Any], chance: Random, system: str) -> tuple[bytes, list[str]]:
    """Applies one to four mutations to a valid graph; returns the body of a request, and the names of the mutations."""
    graph = json.loads(json.dumps(graph))
    applied = []
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        name = chance.choice(list(MUTATIONS))
        MUTATIONS[name](graph, chance)
        applied.append(name)
    body = json.dumps({"graph": graph, "system": system}).encode()
    if chance.random() < 0.2:
        name = chance.choice(list(_OF_TEXT))
        body = _OF_TEXT[name](body, chance)
        applied.append(name)
    return body, applied


def _junk(chance: Random) -> Any:
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: chance.choice(_NUMBERS), lambda: chance.choice(_FLOATS), lambda: chance.choice(_TEXTS),
        lambda: chance.choice(_LISTS), lambda: None, lambda: True, dict, lambda: {"i": chance.choice(_NUMBERS)},
        lambda: _deep(chance.choice((10, 100, 600))),
    )  # fmt: skip
    return chance.choice(kinds)()


def _deep(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def _places(value: Any, chance: Random) -> tuple[Any, Any] | None:
    """Chooses a random container in the document and one of its keys; None if there is none."""
    found = None
    while isinstance(value, dict | list) and value:
        key = chance.choice(list(value)) if isinstance(value, dict) else chance.randrange(len(value))
        found = (value, key)
        if chance.random() < 0.25:
            break
        value = value[key]
    return found


def _anything(graph: dict[str, Any], chance: Random) -> None:
    place = _places(graph, chance)
    if place:
        place[0][place[1]] = _junk(chance)


def _missing(graph: dict[str, Any], chance: Random) -> None:
    place = _places(graph, chance)
    if place:
        del place[0][place[1]]


def _extra(graph: dict[str, Any], chance: Random) -> None:
    place = _places(graph, chance)
    if place and isinstance(place[0], dict):
        place[0][chance.choice(_TEXTS)] = _junk(chance)
    elif place:
        place[0].insert(place[1], place[0][place[1]])


def _layer(graph: dict[str, Any], chance: Random) -> dict[str, Any]:
    layers = graph.get("layers")
    found = chance.choice(layers) if isinstance(layers, list) and layers else {}
    return found if isinstance(found, dict) else {}


def _operator(graph: dict[str, Any], chance: Random) -> None:
    layer = _layer(graph, chance)
    layer["op"] = chance.choice(_OPERATORS)
    layer["domain"] = chance.choice(("", "com.microsoft", "com.microsoft.nchwc", "ai.onnx.ml"))
    layer["since"] = chance.choice((1, 13, 21, *_NUMBERS))


def _attribute(graph: dict[str, Any], chance: Random) -> None:
    layer = _layer(graph, chance)
    attributes = layer.get("attrs")
    if not isinstance(attributes, dict):
        attributes = layer["attrs"] = {}
    name = chance.choice([*_ATTRIBUTES, *(name for name in attributes if isinstance(name, str))])
    kind = chance.choice(("i", "f", "s", "ints", "floats", "strings", "t", "g", "x"))
    tensor = {"dtype": chance.choice(_DTYPES), "shape": chance.choice(_LISTS), "data": chance.choice(_LISTS)}
    attributes[name] = {kind: chance.choice((_junk(chance), chance.choice(_LISTS), tensor, chance.choice(_NUMBERS)))}


def _long_list(graph: dict[str, Any], chance: Random) -> None:
    attributes = _layer(graph, chance).get("attrs")
    if isinstance(attributes, dict):
        attributes[chance.choice(_ATTRIBUTES)] = {"ints": [chance.choice((0, 1, -1))] * chance.choice((1000, 50_000))}


def _shape(graph: dict[str, Any], chance: Random) -> None:
    types = graph.get("types")
    if not isinstance(types, dict) or not types:
        return
    name = chance.choice(list(types))
    rank = chance.choice((0, 1, 2, 3, 4, 5, 32, 33, 1000))
    shape = [chance.choice((1, 2, 3, 8, *_NUMBERS[:8])) for _ in range(rank)]
    types[name] = [chance.choice(("float32", *_DTYPES)), shape, chance.choice((False, True, 0, "no"))]


def _rank(graph: dict[str, Any], chance: Random) -> None:
    types = graph.get("types")
    if isinstance(types, dict) and types:
        kind = types[chance.choice(list(types))]
        if isinstance(kind, list) and len(kind) > 1 and isinstance(kind[1], list):
            kind[1] = kind[1][1:] if chance.random() < 0.5 else [*kind[1], 2]


def _inputs(graph: dict[str, Any], chance: Random) -> None:
    layer = _layer(graph, chance)
    for side in ("in", "out"):
        names = layer.get(side)
        if isinstance(names, list) and names and chance.random() < 0.6:
            way = chance.randrange(4)
            if way == 0:
                names.pop()
            elif way == 1:
                names[0] = ""
            elif way == 2:
                names.extend(names * chance.choice((1, 100)))
            else:
                names[0] = chance.choice(list(graph["types"])) if isinstance(graph.get("types"), dict) else "nobody"


def _constant(graph: dict[str, Any], chance: Random) -> None:
    constants = graph.get("constants")
    if isinstance(constants, dict) and constants:
        constants[chance.choice(list(constants))] = chance.choice((*_LISTS, None, _junk(chance)))


MUTATIONS: dict[str, Callable[[dict[str, Any], Random], None]] = {
    "anything": _anything,
    "missing": _missing,
    "extra": _extra,
    "operator": _operator,
    "attribute": _attribute,
    "long list": _long_list,
    "shape": _shape,
    "rank": _rank,
    "inputs": _inputs,
    "constant": _constant,
}


def _duplicate_keys(body: bytes, chance: Random) -> bytes:
    return body.replace(b'"layers": ', b'"layers": [], "layers": ', chance.randint(1, 2)).replace(
        b'"attrs": {', b'"attrs": {"group": {"i": 1}, "group": {"i": 2}, "group": {"i": 3, "i": 4}, ', 1
    )


def _large_number(body: bytes, chance: Random) -> bytes:
    return body.replace(b"1,", chance.choice((b"1e999,", b"-1e999,", b"1" * 5000 + b",", b"0001,", b"1_0,")), 1)


def _other_bytes(body: bytes, chance: Random) -> bytes:
    data = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def _cut(body: bytes, chance: Random) -> bytes:
    return body[: chance.randrange(len(body))]


def _nested(body: bytes, chance: Random) -> bytes:
    levels = chance.choice((500, 5000, 100_000))
    return b'{"graph": ' + b"[" * levels + b"]" * levels + b', "system": "s"}'


_OF_TEXT: dict[str, Callable[[bytes, Random], bytes]] = {
    "duplicate keys": _duplicate_keys,
    "large number": _large_number,
    "bytes": _other_bytes,
    "cut": _cut,
    "nested": _nested,
}
