"""Mutates ONNX files through protobuf, which reaches code that flipped bytes seldom reach, and byte by byte."""

from collections.abc import Callable
from random import Random

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TrainingInfoProto,
    helper,
    numpy_helper,
)

__all__ = ["mutated_model", "rich_model"]

_LOCATIONS = (
    "weights.bin", "model.onnx", "a" * 64 + ".onnx", "../model.onnx", "/etc/passwd", "/proc/self/environ", "/dev/zero",
    "costmodel:omitted", "*/_ORT_MEM_ADDR_/*", "", ".", "a\0b", "x" * 5000, "data/../../../../etc/passwd", "file:///etc",
)  # fmt: skip
_NUMBERS = (0, 1, -1, 2, 7, 64, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
_FLOATS = (float("nan"), float("inf"), float("-inf"), 3.4e38, -0.0, 1e-45)
_NAMES = ("", "x", "\0", "\x1b[2J", "‮evil", "n" * 100_000, "../..", "costmodel:omitted", "'\"<script>", "a\nb")
_OPERATORS = (
    "Conv", "ConvTranspose", "MatMul", "Gemm", "Reshape", "Expand", "Tile", "ConstantOfShape", "Range", "Loop", "If",
    "Scan", "Resize", "Pad", "Slice", "Gather", "OneHot", "TopK", "LSTM", "Einsum", "Upsample", "NonMaxSuppression",
    "SequenceAt", "Optional", "StringSplit", "EPContext", "TreeEnsembleRegressor", "LabelEncoder", "QLinearConv",
)  # fmt: skip
_EXTREMES = (b"\xff" * 9 + b"\x01", b"\x80" * 9 + b"\x01", b"\x00", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08")


def rich_model() -> ModelProto:
    """Makes a small model with rare features: branches, a loop, a function, constants in attributes, sparse ones."""
    dense = numpy_helper.from_array(np.full((4, 4), 0.5, np.float32), "w")
    values = numpy_helper.from_array(np.array([0.5, 0.25], np.float32), "sparse")
    indices = numpy_helper.from_array(np.array([1, 6]), "sparse_indices")

    def branch(name: str, operator: str) -> GraphProto:
        nodes = [
            helper.make_node("Constant", [], [f"{name}_c"], value=numpy_helper.from_array(np.float32([2.0]), "c")),
            helper.make_node(operator, ["a", f"{name}_c"], [f"{name}_t"]),
            helper.make_node("Add", [f"{name}_t", f"{name}_w"], [f"{name}_o"]),
        ]
        weight = numpy_helper.from_array(np.ones((4, 4), np.float32), f"{name}_w")
        return helper.make_graph(nodes, name, [], [_port(f"{name}_o", [4, 4])], [weight])

    body_ports = [_port("i", [], TensorProto.INT64), _port("go", [], TensorProto.BOOL), _port("state", [4, 4])]
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Mul", ["state", "w"], ["next"])],
        "body", body_ports, [_port("on", [], TensorProto.BOOL), _port("next", [4, 4])],
    )  # fmt: skip
    function = helper.make_function(
        "own", "Twice", ["p"], ["r"],
        [
            helper.make_node("Constant", [], ["two"], value=numpy_helper.from_array(np.float32([2.0]), "two")),
            helper.make_node("Mul", ["p", "two"], ["r"]),
        ],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "sparse"], ["a"]),
        helper.make_node("If", ["c"], ["b"], then_branch=branch("then", "Mul"), else_branch=branch("other", "Add")),
        helper.make_node("Loop", ["trips", "", "b"], ["l"], body=body),
        helper.make_node("Twice", ["l"], ["f"], domain="own"),
        helper.make_node("Reshape", ["f", "shape"], ["r"]),
        helper.make_node(
            "Constant", [], ["k"], sparse_value=SparseTensorProto(values=values, indices=indices, dims=[16])
        ),
        helper.make_node("Add", ["r", "k"], ["y"]),
    ]
    constants = [dense, numpy_helper.from_array(np.array([16]), "shape"), numpy_helper.from_array(np.int64(3), "trips")]
    graph = helper.make_graph(
        nodes, "rich", [_port("x", [4, 4]), _port("c", [], TensorProto.BOOL)], [_port("y", [16])], constants
    )
    graph.sparse_initializer.append(SparseTensorProto(values=values, indices=indices, dims=[4, 4]))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets, functions=[function])


def _port(name: str, shape: list[int], kind: int = TensorProto.FLOAT) -> object:
    return helper.make_tensor_value_info(name, kind, shape)


def mutated_model(content: bytes, chance: Random) -> tuple[bytes, list[str]]:
    """Applies one to four mutations to a valid file; returns the content, and the names of the mutations."""
    applied = []
    if chance.random() < 0.85:
        model = ModelProto.FromString(content)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):  # mostly one: a file with one mutation is processed furthest
            name = chance.choice(list(MUTATIONS))
            MUTATIONS[name](model, chance)
            applied.append(name)
        content = model.SerializeToString()
    if not applied or chance.random() < 0.1:
        content = _with_other_bytes(content, chance)
        applied.append("bytes")
    return content, applied


def _graphs(model: ModelProto) -> list[GraphProto]:
    found = [model.graph]
    for graph in found:
        found += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return found


def _nodes(model: ModelProto) -> list[NodeProto]:
    return [n for graph in _graphs(model) for n in graph.node] + [n for f in model.functions for n in f.node]


def _tensors(model: ModelProto) -> list[TensorProto]:
    found = [tensor for graph in _graphs(model) for tensor in graph.initializer]
    found += [part for graph in _graphs(model) for s in graph.sparse_initializer for part in (s.values, s.indices)]
    for node in _nodes(model):
        for attribute in node.attribute:
            found += [attribute.t] if attribute.HasField("t") else []
            if attribute.HasField("sparse_tensor"):
                found += [attribute.sparse_tensor.values, attribute.sparse_tensor.indices]
    return found


def _external(tensor: TensorProto, chance: Random) -> TensorProto:
    if chance.random() < 0.7:
        for field in ("raw_data", "float_data", "int64_data", "int32_data"):
            tensor.ClearField(field)
    tensor.data_location = TensorProto.EXTERNAL if chance.random() < 0.95 else TensorProto.DEFAULT
    for _ in range(chance.choice((0, 1, 1, 1, 2))):
        tensor.external_data.add(key="location", value=chance.choice(_LOCATIONS))
    for key in ("offset", "length", "checksum"):
        if chance.random() < 0.4:
            tensor.external_data.add(key=key, value=str(chance.choice((*_NUMBERS, "many", "", "9" * 400))))
    return tensor


def _small(chance: Random) -> TensorProto:
    kind, values = chance.choice(
        ((np.int64, [1, 2]), (np.float32, [0.5]), (np.bool_, [True]), (np.float32, [0.1] * 999))
    )
    return numpy_helper.from_array(np.array(values, kind), chance.choice(_NAMES))


def _some_tensor(chance: Random) -> TensorProto:
    tensor = _small(chance)
    return _external(tensor, chance) if chance.random() < 0.7 else tensor


def _some_sparse(chance: Random) -> SparseTensorProto:
    dims = [chance.choice((1, 4, 16, *_NUMBERS)) for _ in range(chance.randint(0, 3))]
    return SparseTensorProto(values=_some_tensor(chance), indices=_some_tensor(chance), dims=dims)


def _some_graph(chance: Random) -> GraphProto:
    graph = GraphProto(name="g", initializer=[_some_tensor(chance)])
    graph.node.append(helper.make_node("Identity", [graph.initializer[0].name or "x"], ["made"]))
    graph.output.append(helper.make_tensor_value_info("made", 1, None))
    if chance.random() < 0.5:
        graph.sparse_initializer.append(_some_sparse(chance))
    return graph


def _external_data(model: ModelProto, chance: Random) -> None:
    tensors = _tensors(model)
    for tensor in chance.sample(tensors, min(len(tensors), chance.randint(1, 5))):
        _external(tensor, chance)


def _sparse_tensor(model: ModelProto, chance: Random) -> None:
    graph = chance.choice(_graphs(model))
    sparse = _some_sparse(chance)
    if graph.initializer and chance.random() < 0.7:  # in place of a dense one, under its name
        tensor = graph.initializer.pop(chance.randrange(len(graph.initializer)))
        sparse.values.name = tensor.name
        sparse.dims[:] = tensor.dims
    graph.sparse_initializer.append(sparse)


def _tensor_in_attribute(model: ModelProto, chance: Random) -> None:
    node = chance.choice(_nodes(model) or [model.graph.node.add(op_type="Constant", output=["made"])])
    fields: dict[str, object] = chance.choice(
        (
            {"t": _some_tensor(chance)}, {"tensors": [_some_tensor(chance)]}, {"sparse_tensor": _some_sparse(chance)},
            {"sparse_tensors": [_some_sparse(chance)]}, {"g": _some_graph(chance)}, {"graphs": [_some_graph(chance)]},
        )
    )  # fmt: skip
    name = chance.choice(("value", "sparse_value", "body", "then_branch", "extra"))
    node.attribute.append(AttributeProto(name=name, type=chance.randrange(15), **fields))


def _attribute_type(model: ModelProto, chance: Random) -> None:
    attributes = [attribute for node in _nodes(model) for attribute in node.attribute]
    if attributes:
        chance.choice(attributes).type = chance.randrange(15)


def _attribute_value(model: ModelProto, chance: Random) -> None:
    attributes = [attribute for node in _nodes(model) for attribute in node.attribute]
    if not attributes:
        return
    attribute = chance.choice(attributes)
    many = chance.choice((0, 1, 3, 1000, 30_000))
    if attribute.ints:
        attribute.ints[:] = [chance.choice(_NUMBERS) for _ in range(many)]
    elif attribute.floats:
        attribute.floats[:] = [chance.choice(_FLOATS) for _ in range(many)]
    elif attribute.HasField("f"):
        attribute.f = chance.choice(_FLOATS)
    elif attribute.HasField("s"):
        attribute.s = chance.choice((b"", b"\0", b"\xff\xfe", b"SAME_UPPER", b"s" * 100_000))
    else:
        attribute.i = chance.choice(_NUMBERS)


def _subgraph(model: ModelProto, chance: Random) -> None:
    inner = _some_graph(chance)
    for _ in range(chance.choice((1, 2, 5, 30))):
        node = helper.make_node(chance.choice(("If", "Loop", "Scan")), [chance.choice(("c", "x", ""))], ["made"])
        node.attribute.append(AttributeProto(name="then_branch", type=AttributeProto.GRAPH, g=inner))
        node.attribute.append(
            AttributeProto(name=chance.choice(("else_branch", "body")), type=5, g=_some_graph(chance))
        )
        inner = GraphProto(name="outer", node=[node], initializer=[_some_tensor(chance)])
        inner.output.append(helper.make_tensor_value_info("made", 1, None))
    model.graph.node.append(inner.node[0])


def _function(model: ModelProto, chance: Random) -> None:
    depth = chance.choice((1, 2, 8))
    for level in range(depth):
        called = f"F{level + 1}" if level + 1 < depth else chance.choice(("Relu", "F0"))
        node = helper.make_node(called, ["p"], ["r"], domain="own" if called.startswith("F") else "")
        constant = helper.make_node("Constant", [], ["k"], value=_some_tensor(chance))
        made = helper.make_function(
            "own", f"F{level}", ["p"], ["r"], [constant] + [node] * chance.choice((1, 1, 1, 3)), []
        )
        made.opset_import.append(helper.make_opsetid("", 17))
        made.attribute_proto.append(helper.make_attribute("d", _some_tensor(chance)))
        model.functions.append(made)
    if all(opset.domain != "own" for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node.append(helper.make_node("F0", [model.graph.input[0].name], ["called"], domain="own"))


def _dimension(model: ModelProto, chance: Random) -> None:
    tensors = _tensors(model)
    if tensors and chance.random() < 0.6:
        tensor = chance.choice(tensors)
        tensor.dims[:] = [chance.choice(_NUMBERS) for _ in range(chance.choice((0, 1, 4, 40, 5000)))]
    else:
        ports = [port for graph in _graphs(model) for port in (*graph.input, *graph.output, *graph.value_info)]
        dims = chance.choice(ports).type.tensor_type.shape.dim if ports else []
        for dim in dims:
            dim.dim_value = chance.choice(_NUMBERS)


def _data(model: ModelProto, chance: Random) -> None:
    for tensor in _tensors(model)[:1]:
        tensor.data_type = chance.randrange(30)
        tensor.raw_data = chance.randbytes(chance.choice((0, 1, 7, 1000)))


def _name(model: ModelProto, chance: Random) -> None:
    for node in chance.choices(_nodes(model), k=3) if _nodes(model) else []:
        names = chance.choice((node.input, node.output))
        if names and chance.random() < 0.7:
            names[chance.randrange(len(names))] = chance.choice((*_NAMES, chance.choice(_nodes(model)).name))
        else:
            node.name = chance.choice(_NAMES)


def _operator(model: ModelProto, chance: Random) -> None:
    for node in chance.choices(_nodes(model), k=2) if _nodes(model) else []:
        node.op_type = chance.choice(_OPERATORS)
        node.domain = chance.choice(("", "", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "own"))


def _wiring(model: ModelProto, chance: Random) -> None:
    names = [name for node in model.graph.node for name in node.output] or ["x"]
    for node in chance.choices(model.graph.node, k=3) if model.graph.node else []:
        if node.input:
            node.input[chance.randrange(len(node.input))] = chance.choice(names)
    if model.graph.node and chance.random() < 0.3:
        del model.graph.node[chance.randrange(len(model.graph.node))]


def _version(model: ModelProto, chance: Random) -> None:
    model.ir_version = chance.choice((0, 1, 3, 9, 13, 2**31, -1))
    for opset in model.opset_import:
        opset.version = chance.choice((0, 1, 6, 13, 25, 1000, -1))


def _training(model: ModelProto, chance: Random) -> None:
    model.training_info.append(TrainingInfoProto(initialization=_some_graph(chance), algorithm=_some_graph(chance)))


def _metadata(model: ModelProto, chance: Random) -> None:
    for number in range(chance.choice((1, 1000))):
        model.metadata_props.add(key=f"ort_config{number}", value=chance.choice(_NAMES[:5]))


MUTATIONS: dict[str, Callable[[ModelProto, Random], None]] = {
    "external data": _external_data,
    "sparse tensor": _sparse_tensor,
    "tensor in attribute": _tensor_in_attribute,
    "type of attribute": _attribute_type,
    "value of attribute": _attribute_value,
    "subgraph": _subgraph,
    "function": _function,
    "dimension": _dimension,
    "data": _data,
    "name": _name,
    "operator": _operator,
    "wiring": _wiring,
    "version": _version,
    "training": _training,
    "metadata": _metadata,
}


def _with_other_bytes(content: bytes, chance: Random) -> bytes:
    """Changes a file in one to eight random places."""
    data = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(max(1, len(data)))
        kind = chance.random()
        if kind < 0.5:
            data[place] ^= 1 << chance.randrange(8)
        elif kind < 0.6:
            data[place] = chance.randrange(256)
        elif kind < 0.7:
            del data[place : place + chance.randint(1, 64)]
        elif kind < 0.8:
            end = place + chance.randint(1, 256)
            data[place:place] = data[place:end]
        elif kind < 0.9:
            data[place : place + 1] = chance.choice(_EXTREMES)
        else:
            other = chance.randrange(max(1, len(data)))
            data[place : place + 32] = data[other : other + 32]
        if not data:
            data = bytearray(b"\x00")
    return bytes(data)
