"""No file that an untrusted model names is opened, wherever in the model the name is."""

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
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

from costmodel.errors import ModelError
from costmodel.ir.constants import OMITTED
from costmodel.onnx_io.external_data import all_tensors
from costmodel.onnx_io.model import read_model, read_without_weights
from costmodel.partition.decomposition import decompose
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.serving.isolation.limits import Limits
from tests.serving.isolation.readers import started

VICTIM = "victim.onnx"
SECRET = 305_419_896
_LIBC = ctypes.CDLL(None, use_errno=True)
_IN_ACCESS, _IN_OPEN = 0x1, 0x20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who opens a file")


@contextmanager
def opened(path: Path) -> Iterator[Callable[[], bool]]:
    """Returns a function that says whether any code, Python or native, has opened or read the file."""
    watch = _LIBC.inotify_init1(os.O_NONBLOCK)
    assert watch >= 0
    assert _LIBC.inotify_add_watch(watch, bytes(path), _IN_ACCESS | _IN_OPEN) >= 0

    def was_opened() -> bool:
        try:
            return bool(os.read(watch, 1 << 16))
        except BlockingIOError:
            return False

    try:
        yield was_opened
    finally:
        os.close(watch)


def _outside(dims: tuple[int, ...], data_type: int = TensorProto.INT64, name: str = "s", **entries: str) -> TensorProto:
    """Returns a tensor whose values lie in the victim's file."""
    tensor = TensorProto(name=name, dims=dims, data_type=data_type, data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": VICTIM} | entries).items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def _indices() -> TensorProto:
    return numpy_helper.from_array(np.array([0, 1]), "i")


def _sparse(values: TensorProto, indices: TensorProto, dims: tuple[int, ...] = (2,)) -> SparseTensorProto:
    return SparseTensorProto(values=values, indices=indices, dims=dims)


def _model(
    *, initializer: TensorProto | None = None, sparse: SparseTensorProto | None = None,
    nodes: tuple[NodeProto, ...] = (),
) -> ModelProto:  # fmt: skip
    """Returns a sum of x and s; s, from an initialiser or from nodes, is part of a signature as a small integer."""
    ports = [helper.make_tensor_value_info(name, TensorProto.INT64, [4, 2]) for name in "xy"]
    graph = helper.make_graph([*nodes, helper.make_node("Add", ["x", "s"], ["y"])], "g", ports[:1], ports[1:])
    if initializer is not None:
        graph.initializer.append(initializer)
    if sparse is not None:
        graph.sparse_initializer.append(sparse)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def _constant(attribute: AttributeProto) -> ModelProto:
    return _model(nodes=(NodeProto(op_type="Constant", output=["s"], attribute=[attribute]),))


def _attribute(name: str, kind: int, **fields: object) -> AttributeProto:
    return AttributeProto(name=name, type=kind, **fields)


def _with_attribute(attribute: AttributeProto) -> ModelProto:
    """Returns a model with an additional attribute on an ordinary node."""
    model = _model(initializer=numpy_helper.from_array(np.array([3, 4]), "s"))
    model.graph.node[0].attribute.append(attribute)
    return model


def _body(*, initializer: TensorProto | None = None, sparse: SparseTensorProto | None = None,
          nodes: tuple[NodeProto, ...] = ()) -> GraphProto:  # fmt: skip
    body = GraphProto(name="body")
    body.node.extend([*nodes, helper.make_node("Identity", ["t"], ["o"])])
    if initializer is not None:
        body.initializer.append(initializer)
    if sparse is not None:
        body.sparse_initializer.append(sparse)
    body.output.append(helper.make_tensor_value_info("o", TensorProto.INT64, None))
    return body


def _if(body: GraphProto) -> ModelProto:
    """Returns a model whose shape comes from a branch of an If with a non-constant condition."""
    node = helper.make_node("If", ["c"], ["s"], then_branch=body, else_branch=body)
    model = _model(nodes=(node,))
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    return model


def _nested(body: GraphProto) -> GraphProto:
    node = helper.make_node("If", ["c"], ["t"], then_branch=body, else_branch=body)
    return _body(nodes=(node,))


def _function(*, constant: AttributeProto, default: AttributeProto | None = None) -> ModelProto:
    model = _model(nodes=(NodeProto(op_type="F", domain="own", input=["x"], output=["s"]),))
    node = NodeProto(op_type="Constant", output=["o"], attribute=[constant])
    function = helper.make_function("own", "F", ["a"], ["o"], [node], [helper.make_opsetid("", 17)])
    if default is not None:
        function.attribute_proto.append(default)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


def _trained() -> ModelProto:
    model = _model(initializer=numpy_helper.from_array(np.array([3, 4]), "s"))
    model.training_info.append(TrainingInfoProto(initialization=_body(initializer=_outside((2,), name="t"))))
    return model


def _pow() -> ModelProto:
    model = _model(initializer=_outside((1,), TensorProto.INT32, "s"))
    model.graph.node[0].op_type = "Pow"
    return model


def _filled() -> ModelProto:
    """Returns a model whose layer has a one-element tensor attribute at run time."""
    node = helper.make_node("ConstantOfShape", ["x"], ["y"], value=_outside((1,), TensorProto.FLOAT))
    ports = [
        helper.make_tensor_value_info("x", TensorProto.INT64, [2]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def _several(*locations: str) -> TensorProto:
    tensor = _outside((2,))
    del tensor.external_data[:]
    for location in locations:
        tensor.external_data.add(key="location", value=location)
    return tensor


def _carrying(**fields: object) -> TensorProto:
    tensor = _outside((2,))
    tensor.MergeFrom(TensorProto(**fields))
    return tensor


def _twice() -> bytes:
    """Returns a model in which field `t` of a Constant occurs twice, which protobuf merges."""
    inner = numpy_helper.from_array(np.array([3, 4]), "s").SerializeToString()
    outer = TensorProto(data_location=TensorProto.EXTERNAL)
    outer.external_data.add(key="location", value=VICTIM)
    attribute = _attribute("value", AttributeProto.TENSOR).SerializeToString()
    for part in (inner, outer.SerializeToString()):
        attribute += b"\x2a" + bytes([len(part)]) + part
    node = (
        NodeProto(op_type="Constant", output=["s"]).SerializeToString() + b"\x2a" + bytes([len(attribute)]) + attribute
    )
    graph = b"\x0a" + bytes([len(node)]) + node + _model().graph.SerializeToString()
    model = _model()
    model.ClearField("graph")
    return model.SerializeToString() + b"\x3a" + bytes([len(graph) & 0x7F | 0x80, len(graph) >> 7]) + graph


_KIND = AttributeProto
CASES: dict[str, Callable[[], ModelProto | bytes]] = {
    "initialiser": lambda: _model(initializer=_outside((2,))),
    "initialiser, offset": lambda: _model(initializer=_outside((2,), offset="64", length="16")),
    "initialiser, absurd offset": lambda: _model(initializer=_outside((2,), offset="-1", length="many")),
    "initialiser, many values": lambda: _model(initializer=_outside((4096,))),
    "initialiser, no values": lambda: _model(initializer=_outside((0,))),
    "initialiser with values as well": lambda: _model(initializer=_carrying(int64_data=[3, 4])),
    "initialiser with raw values as well": lambda: _model(initializer=_carrying(raw_data=struct.pack("<2q", 3, 4))),
    "initialiser that carries values, and names a file": lambda: _model(
        initializer=_carrying(int64_data=[3, 4], data_location=TensorProto.DEFAULT)
    ),
    "no entries": lambda: _model(initializer=_several()),
    "the mark of a left out tensor, then a file": lambda: _model(initializer=_several(OMITTED, VICTIM)),
    "a file, then the mark of a left out tensor": lambda: _model(initializer=_several(VICTIM, OMITTED)),
    "the mark of a left out tensor": lambda: _model(initializer=_several(OMITTED)),
    "an address in memory": lambda: _model(initializer=_outside((2,), location="*/_ORT_MEM_ADDR_/*", offset="4096")),
    "a path": lambda: _model(initializer=_outside((2,), location="{folder}/" + VICTIM)),
    "a path upwards": lambda: _model(initializer=_outside((2,), location="../{name}/" + VICTIM)),
    "exponent": _pow,
    "sparse values": lambda: _model(sparse=_sparse(_outside((2,)), _indices())),
    "sparse indices": lambda: _model(
        sparse=_sparse(numpy_helper.from_array(np.array([3, 4]), "s"), _outside((2,), name="i"))
    ),
    "sparse address in memory": lambda: _model(
        sparse=_sparse(_outside((2,), location="*/_ORT_MEM_ADDR_/*", offset="4096"), _indices())
    ),
    "constant": lambda: _constant(_attribute("value", _KIND.TENSOR, t=_outside((2,)))),
    "constant, sparse values": lambda: _constant(
        _attribute("sparse_value", _KIND.SPARSE_TENSOR, sparse_tensor=_sparse(_outside((2,)), _indices()))
    ),
    "constant, sparse indices": lambda: _constant(
        _attribute(
            "sparse_value", _KIND.SPARSE_TENSOR,
            sparse_tensor=_sparse(numpy_helper.from_array(np.array([3, 4]), "s"), _outside((2,))),
        )
    ),
    "constant, type that lies": lambda: _constant(_attribute("value", _KIND.FLOAT, t=_outside((2,)))),
    "constant, sparse, type that lies": lambda: _constant(
        _attribute("value", _KIND.TENSOR, sparse_tensor=_sparse(_outside((2,)), _indices()), t=_outside((2,)))
    ),
    "attribute twice in the file": _twice,
    "attribute of one element": _filled,
    "attribute without a type": lambda: _constant(_attribute("value", _KIND.UNDEFINED, t=_outside((2,)))),
    "unused attribute": lambda: _with_attribute(_attribute("a", _KIND.TENSOR, t=_outside((1,)))),
    "list of tensors": lambda: _with_attribute(_attribute("a", _KIND.TENSORS, tensors=[_outside((2,))])),
    "list of sparse tensors": lambda: _with_attribute(
        _attribute("a", _KIND.SPARSE_TENSORS, sparse_tensors=[_sparse(_outside((2,)), _outside((2,)))])
    ),
    "list of graphs": lambda: _with_attribute(
        _attribute("a", _KIND.GRAPHS, graphs=[_body(initializer=_outside((2,), name="t"))])
    ),
    "graph under a type that lies": lambda: _with_attribute(
        _attribute("a", _KIND.INT, g=_body(initializer=_outside((2,), name="t")))
    ),
    "subgraph": lambda: _if(_body(initializer=_outside((2,), name="t"))),
    "subgraph, constant": lambda: _if(
        _body(nodes=(NodeProto(op_type="Constant", output=["t"],
                               attribute=[_attribute("value", _KIND.TENSOR, t=_outside((2,)))]),))
    ),
    "subgraph, sparse": lambda: _if(_body(sparse=_sparse(_outside((2,), name="t"), _indices()))),
    "subgraph in a subgraph": lambda: _if(_nested(_body(initializer=_outside((2,), name="t")))),
    "subgraph in a subgraph, sparse": lambda: _if(
        _nested(_body(sparse=_sparse(_outside((2,), name="t"), _indices())))
    ),
    "function": lambda: _function(constant=_attribute("value", _KIND.TENSOR, t=_outside((2,)))),
    "function, sparse": lambda: _function(
        constant=_attribute("sparse_value", _KIND.SPARSE_TENSOR, sparse_tensor=_sparse(_outside((2,)), _indices()))
    ),
    "function, default of an attribute": lambda: _function(
        constant=AttributeProto(name="value", type=_KIND.TENSOR, ref_attr_name="d"),
        default=_attribute("d", _KIND.TENSOR, t=_outside((2,))),
    ),
    "training": _trained,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with another client's model."""
    (tmp_path / VICTIM).write_bytes(struct.pack("<q", SECRET) * 8192)
    return tmp_path


def _written(folder: Path, case: str) -> Path:
    made = CASES[case]()
    content = made if isinstance(made, bytes) else _located(made, folder).SerializeToString()
    path = folder / "mine.onnx"
    path.write_bytes(content)
    return path


def _located(model: ModelProto, folder: Path) -> ModelProto:
    for tensor in all_tensors(model):
        for entry in tensor.external_data:
            entry.value = entry.value.replace("{folder}", str(folder)).replace("{name}", folder.name)
    return model


@pytest.mark.parametrize("case", CASES)
def test_no_file_is_opened(folder: Path, runtime: OnnxRuntime, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading, lowering and decomposition open no other client's file, and the sequences contain none of it."""
    path = _written(folder, case)
    monkeypatch.chdir(folder)  # relative locations would be resolved against this folder
    with opened(folder / VICTIM) as was_opened:
        with suppress(ModelError):
            model = read_model(path, external="absent", name="mine")
            assert VICTIM.encode() not in model.proto.SerializeToString()
            graph = runtime.lower(model, "all")
            for sequence in decompose("mine", graph).unique.values():
                assert str(SECRET) not in sequence.text
                assert VICTIM not in sequence.text
        assert not was_opened()


@pytest.mark.parametrize("case", CASES)
def test_what_is_kept_names_no_file(folder: Path, case: str) -> None:
    """A stripped model marks tensors as left out and names no external file."""
    path = _written(folder, case)
    with opened(folder / VICTIM) as was_opened:
        kept = read_without_weights(path, external="absent")
        assert not was_opened()
    assert VICTIM.encode() not in kept
    for tensor in all_tensors(ModelProto.FromString(kept)):
        locations = [entry.value for entry in tensor.external_data if entry.key == "location"]
        assert locations == ([OMITTED] if tensor.data_location == TensorProto.EXTERNAL else [])


def test_a_reader_does_not_open_them_either(folder: Path) -> None:
    """A reader without confinement opens no other file, because the reading code alone prevents it."""
    limits = Limits(memory_bytes=1 << 30)
    answers = []
    with started(folder / "reader", limits, confined=False) as reader, opened(folder / VICTIM) as was_opened:
        for case in CASES:
            path = _written(folder, case)
            answers.append(reader.lower(path))
            kept = folder / "kept"
            assert reader.ask(name="mine", path=str(path), keep=str(kept)).keys() == {"digest"}
        assert not was_opened()
    assert str(SECRET) not in repr(answers)
    assert not any(str(folder) in answer.get("message", "") for answer in answers)
    assert sum("error" not in answer for answer in answers) > 0.7 * len(CASES), "these must be models that lower"


def test_the_owner_of_a_folder_still_finds_his_weights(folder: Path) -> None:
    """External files are opened where the folder is trusted, as on the command line."""
    path = _written(folder, "initialiser")
    with opened(folder / VICTIM) as was_opened:
        model = read_model(path, name="mine")
        assert was_opened()
    (tensor,) = model.proto.graph.initializer
    assert numpy_helper.to_array(tensor).tolist() == [SECRET, SECRET]
