"""Reading models: accepted files, warnings, and refusals in one sentence."""

import contextlib
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import given
from onnx import ModelProto, TensorProto, helper, numpy_helper

from costmodel.errors import ModelError, ModelReadError, ShapeError
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime

Parse = Callable[..., ModelProto]


def refusal(kind: type[ModelError], source: object, **given: object) -> str:
    """Returns the sentence with which a model is refused."""
    with pytest.raises(kind) as caught:
        read_model(source, **given)
    assert type(caught.value) is kind
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) > 20
    return message


@pytest.fixture
def layered(parse: Parse) -> ModelProto:
    """A convolution, a normalisation by a constant and a product, with weights of several sizes."""
    return parse(
        """(float[1,3,8,8] x) => (float y)
        <int64[2] flat = {1, -1}, float eps = {0.5}>
        { a = Conv(x, w) b = Reshape(a, flat) c = MatMul(b, v) y = Add(c, eps) }""",
        weights={"w": (16, 3, 3, 3), "v": (576, 10)},
    )


class TestFiles:
    """Files that are not models."""

    def test_a_missing_file(self, tmp_path: Path) -> None:
        """A missing file is named."""
        assert str(tmp_path / "no.onnx") in refusal(ModelReadError, tmp_path / "no.onnx")

    def test_a_directory(self, tmp_path: Path) -> None:
        """A directory is refused."""
        message = refusal(ModelReadError, tmp_path)
        assert str(tmp_path) in message
        assert "directory" in message

    def test_no_bytes(self, tmp_path: Path) -> None:
        """An empty file is refused as empty."""
        (tmp_path / "empty.onnx").touch()
        assert "empty.onnx is empty" in refusal(ModelReadError, tmp_path / "empty.onnx")

    @pytest.mark.parametrize(
        "content",
        [b"this is not a model, whatever its name says", b"\x89PNG\r\n\x1a\n" * 50, b"PK\x03\x04" * 99, b"\x00" * 99],
    )
    def test_something_else(self, tmp_path: Path, content: bytes) -> None:
        """Text, pictures, archives and zeros are refused as no ONNX."""
        (tmp_path / "other.onnx").write_bytes(content)
        assert "other.onnx is not an ONNX" in refusal(ModelReadError, tmp_path / "other.onnx")

    def test_an_archive(self, tmp_path: Path) -> None:
        """A file that PyTorch saved is an archive: the error says how to export the model."""
        with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
            archive.writestr("model/data.pkl", b"weights")
        assert "export the model with torch.onnx.export" in refusal(ModelReadError, tmp_path / "model.pt")

    @pytest.mark.parametrize("name", ["a\0b.onnx", "x" * 5000])
    def test_names_that_no_file_has(self, name: str) -> None:
        """A path that the system cannot look up is refused like a missing one."""
        refusal(ModelReadError, name)

    def test_a_pipe(self, tmp_path: Path) -> None:
        """A named pipe is refused, because reading it could block for ever."""
        os.mkfifo(tmp_path / "pipe.onnx")
        assert "pipe.onnx" in refusal(ModelReadError, tmp_path / "pipe.onnx")

    @given(cut=st.floats(0, 1, exclude_max=True))
    def test_a_truncated_file(
        self, light_models: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory, cut: float
    ) -> None:
        """A real model truncated at any position is refused."""
        data = light_models["squeezenet"].read_bytes()
        path = tmp_path_factory.mktemp("cut") / "cut.onnx"
        path.write_bytes(data[: int(cut * len(data))])
        assert "cut.onnx" in refusal(ModelReadError, path)

    @given(data=st.data())
    def test_a_damaged_file(
        self, light_models: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        """A model with overwritten bytes is either read or refused."""
        content = bytearray(light_models["zfnet512"].read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path = tmp_path_factory.mktemp("damaged") / "damaged.onnx"
        path.write_bytes(content)
        with contextlib.suppress(ModelError):
            read_model(path)


class TestGraphs:
    """Graphs that cannot be priced."""

    def test_no_layers(self, parse: Parse) -> None:
        """A model without layers is refused."""
        assert "tiny has no layers" in refusal(ModelReadError, parse("(float[2] x) => (float[2] x) { }"))

    def test_no_graph(self) -> None:
        """A protobuf message without a graph is refused."""
        refusal(ModelReadError, ModelProto(ir_version=9))

    def test_a_cycle(self, parse: Parse) -> None:
        """A cycle is refused with the names of its layers."""
        message = refusal(
            ModelReadError, parse("(float[2] x) => (float[2] c) { a = Add(x, c) b = Relu(a) c = Neg(b) }")
        )
        assert "cyclic" in message
        assert all(operator in message for operator in ("Add", "Relu", "Neg"))

    def test_a_layer_that_reads_itself(self, parse: Parse) -> None:
        """A layer that reads its own output is a cycle."""
        assert "cyclic" in refusal(ModelReadError, parse("(float[2] x) => (float[2] y) { y = Add(x, y) }"))

    def test_a_cycle_through_a_body(self, parse: Parse) -> None:
        """A subgraph that captures a value computed from its own output is a cycle."""
        model = parse(
            """(bool c) => (float[2] y)
            { y = If (c) <then_branch = g () => (float[2] a) { a = Relu(z) },
                          else_branch = h () => (float[2] b) { b = Neg(z) }>
              z = Neg(y) }"""
        )
        assert "cyclic" in refusal(ModelReadError, model)

    def test_line_breaks_in_names(self, parse: Parse) -> None:
        """Line breaks in names do not break the one-line message."""
        model = parse("(float[2] x) => (float[2] y) { y = Add(x, y) }")
        model.graph.node[0].name = "two\nlines"
        assert "two lines" in refusal(ModelReadError, model)

    @pytest.mark.parametrize("where", ["value", "operator", "body"])
    def test_names_that_are_no_text(self, where: str, parse: Parse) -> None:
        """Names of invalid text anywhere are refused as a damaged file."""
        data = parse(
            """(bool cond) => (float[2] valu)
            { valu = If (cond) <then_branch = g () => (float[2] inne) { inne = Operator() },
                                else_branch = h () => (float[2] b) { b = Operator() }> }"""
        ).SerializeToString()
        name = {"value": b"valu", "operator": b"Operator", "body": b"inne"}[where]
        damaged = ModelProto.FromString(data.replace(name, name[:-1] + b"\xff"))
        assert "damaged" in refusal(ModelReadError, damaged)


class TestShapes:
    """Input shapes: given, symbolic, impossible."""

    def test_a_symbolic_batch_is_1_with_a_warning(self, parse: Parse) -> None:
        """A symbolic batch is 1 by default, with a warning that names it."""
        model = read_model(parse("(float[N,3] x, float[N,5] z) => (float y) { y = Relu(x) }"))
        assert model.inputs == {"x": TensorType("float32", (1, 3)), "z": TensorType("float32", (1, 5))}
        (warning,) = model.warnings
        assert "N" in warning
        assert "option batch" in warning

    def test_a_batch_that_is_given(self, parse: Parse) -> None:
        """--batch sets the symbolic batch, without a warning."""
        model = read_model(parse("(float[N,3] x) => (float y) { y = Relu(x) }"), batch=7)
        assert model.inputs["x"].shape == (7, 3)
        assert model.warnings == ()
        assert model.symbols == {"N": 7}

    def test_a_batch_without_a_name(self, parse: Parse) -> None:
        """A first axis without size or name is the batch."""
        assert read_model(parse("(float[?,3] x) => (float y) { y = Relu(x) }"), batch=2).inputs["x"].shape == (2, 3)

    def test_a_batch_over_a_fixed_one(self, parse: Parse, runtime: OnnxRuntime, settings: RuntimeSettings) -> None:
        """--batch replaces a fixed first axis, and the whole model runs at that size."""
        model = read_model(parse("(float[1,3] x, float[4] w) => (float y) { y = Relu(x) }"), batch=5)
        assert [kind.shape for kind in model.inputs.values()] == [(5, 3), (4,)]
        assert model.warnings == ("the file fixes the size of the batch: the first axis of x was changed to 5",)
        assert runtime.lower(model, "all").types["y"].shape == (5, 3)
        runtime.open_model(model, settings).run()

    def test_any_other_symbol_must_be_given(self, parse: Parse) -> None:
        """Other symbolic axes are never guessed, and all of them are named."""
        message = refusal(ShapeError, parse("(float[batch,length,8] x, float[width,8] z) => (float y) { y = Relu(x) }"))
        assert all(word in message for word in ("x axis 1", "length", "z axis 0", "width", "option shape"))
        assert "batch" not in message

    def test_a_length_is_no_batch(self, parse: Parse) -> None:
        """A symbol that is also a later axis is no batch, and neither is the axis of a vector."""
        refusal(ShapeError, parse("(float[some,length] x, float[length,4] z) => (float y) { y = Relu(x) }"))
        refusal(ShapeError, parse("(float[samples] x) => (float y) { y = Relu(x) }"))
        assert read_model(parse("(float[anything,4] x) => (float y) { y = Relu(x) }")).inputs["x"].shape == (1, 4)

    def test_shapes_that_are_given(self, parse: Parse) -> None:
        """--shape sets every axis of an input, and the same symbols in other inputs."""
        proto = parse("(float[n,s] x, float[n,s,2] z) => (float y) { y = Relu(x) }")
        model = read_model(proto, shapes={"x": (3, 9)})
        assert {name: kind.shape for name, kind in model.inputs.items()} == {"x": (3, 9), "z": (3, 9, 2)}
        assert model.warnings == ()
        assert model.symbols == {"n": 3, "s": 9}

    def test_one_symbol_of_two_sizes(self, parse: Parse, runtime: OnnxRuntime, settings: RuntimeSettings) -> None:
        """Exporters name axes of several inputs alike; each input has the shape that is given, and the model runs."""
        proto = parse("(float[n,s] x, float[n,s] z, float[s] v) => (float y, float w) { y = Relu(x) w = Relu(z) }")
        given = {"x": (3, 9), "z": (3, 8)}
        assert "v axis 0 (s)" in refusal(ShapeError, proto, shapes=given)
        model = read_model(proto, shapes={**given, "v": (2,)})
        assert [kind.shape for kind in model.inputs.values()] == [(3, 9), (3, 8), (2,)]
        assert runtime.lower(model, "all").types["w"].shape == (3, 8)
        runtime.open_model(model, settings).run()

    def test_placeholders_are_no_symbols(self, parse: Parse) -> None:
        """What exporters write for a size that is open, such as PaddlePaddle's -1, may be another size on each axis."""
        proto = parse("(float[a,3,b,c] x) => (float y) { y = Relu(x) }")
        for dimension, text in zip(proto.graph.input[0].type.tensor_type.shape.dim, ("-1", "", "-1", "?"), strict=True):
            dimension.ClearField("dim_value") if not text else setattr(dimension, "dim_param", text)
        proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
        assert read_model(proto, shapes={"x": (2, 3, 48, 320)}).inputs["x"].shape == (2, 3, 48, 320)
        assert "--shape x=1,3,?,?" in refusal(ShapeError, proto)

    def test_one_letter_beside_a_batch(self, parse: Parse) -> None:
        """N is the number of samples where the first axis is another batch."""
        proto = parse("(float[batch_size,N] sound, int64[batch_size] lengths) => (float y) { y = Relu(sound) }")
        assert "sound axis 1 (N); " in refusal(ShapeError, proto)
        assert read_model(proto, shapes={"sound": (2, 16000)}).inputs["lengths"].shape == (2,)

    def test_shapes_for_no_input(self, parse: Parse) -> None:
        """An unknown input name is refused with the known ones."""
        message = refusal(
            ShapeError, parse("(float[2] pixels) => (float y) {y = Relu(pixels)}"), shapes={"pixel": (2,)}
        )
        assert "pixel:" in message
        assert "pixels" in message

    def test_shapes_of_another_rank(self, parse: Parse) -> None:
        """--shape must have as many numbers as the input has axes."""
        message = refusal(ShapeError, parse("(float[2,3] x) => (float y) { y = Relu(x) }"), shapes={"x": (2, 3, 4)})
        assert "x has 2 dimensions" in message

    def test_an_unknown_rank(self, parse: Parse) -> None:
        """An input of unknown rank needs --shape, and accepts any rank."""
        proto = parse("(float[] x) => (float y) { y = Relu(x) }")
        proto.graph.input[0].type.tensor_type.ClearField("shape")
        assert "x (rank unknown)" in refusal(ShapeError, proto)
        assert read_model(proto, shapes={"x": (2, 3)}).inputs["x"].shape == (2, 3)

    @pytest.mark.parametrize("size", [0, -1, -(2**40), 2**31, 2**40, 2**62])
    def test_impossible_sizes_in_the_file(self, parse: Parse, size: int) -> None:
        """Zero, negative and absurd sizes are refused with input and size."""
        proto = parse("(float[2,3] x) => (float y) { y = Relu(x) }")
        proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = size
        message = refusal(ShapeError, proto)
        assert "x" in message
        assert str(size) in message or "axis 1" in message

    @pytest.mark.parametrize("size", [0, -1, 2**40, 2**70])
    def test_impossible_sizes_on_the_command_line(self, parse: Parse, size: int) -> None:
        """The same sizes are refused in --shape and --batch, also beyond protobuf's range."""
        proto = parse("(float[N,3] x) => (float y) { y = Relu(x) }")
        assert str(size) in refusal(ShapeError, proto, shapes={"x": (1, size)})
        assert str(size) in refusal(ShapeError, proto, batch=size)

    def test_an_absurd_product(self, parse: Parse) -> None:
        """Dimensions with an absurd product are refused."""
        assert "absurd" in refusal(ShapeError, parse("(float[2000000,2000000] x) => (float y) { y = Relu(x) }"))

    @pytest.mark.parametrize("size", [-3, 2**40])
    def test_impossible_weights(self, parse: Parse, size: int) -> None:
        """Impossible sizes of weights are refused."""
        proto = parse("(float[2,3] x) => (float y) { y = MatMul(x, w) }")
        proto.graph.initializer.add(name="w", dims=[3, size], data_type=TensorProto.FLOAT)
        message = refusal(ShapeError, proto)
        assert "w" in message
        assert str(size) in message

    def test_inputs_that_are_no_tensors_of_numbers(self, parse: Parse) -> None:
        """Strings and sequences as inputs are refused."""
        assert "string" in refusal(ShapeError, parse("(string[2] x) => (string[2] y) { y = Identity(x) }"))
        assert "sequence" in refusal(ShapeError, parse("(seq(float[2]) x) => (float[2] y) { y = SequenceAt(x, x) }"))

    def test_an_element_type_of_a_later_onnx(self, parse: Parse) -> None:
        """An unknown element type is refused."""
        proto = parse("(float[2] x) => (float y) { y = Relu(x) }")
        proto.graph.input[0].type.tensor_type.elem_type = 99
        assert "99" in refusal(ShapeError, proto)

    def test_old_files_list_constants_as_inputs(self, parse: Parse) -> None:
        """Weights that files of IR versions below 4 list as inputs are not inputs."""
        proto = parse(
            "(float[2,3] x, float[3,4] w) => (float y) { y = MatMul(x, w) }", weights={"w": (3, 4)}, ir_version=3
        )
        assert set(read_model(proto).inputs) == {"x"}


class TestWeights:
    """Weights that are left out, external or missing."""

    def test_memory_and_file_are_the_same_model(self, layered: ModelProto, tmp_path: Path) -> None:
        """A model has the same digest read from a file or from memory."""
        onnx.save(layered, tmp_path / "m.onnx")
        assert read_model(tmp_path / "m.onnx").digest == read_model(layered).digest

    def test_every_light_model_is_the_same_in_memory(self, light_models: MappingProxyType[str, Path]) -> None:
        """Light models have the same digest read from a file or from memory."""
        for path in light_models.values():
            assert read_model(path).digest == read_model(onnx.load(path)).digest

    def test_weights_do_not_matter_and_shapes_do(self, layered: ModelProto) -> None:
        """Other weights keep the digest; another shape or small integer changes it."""
        digest = read_model(layered).digest
        by_name = {tensor.name: tensor for tensor in layered.graph.initializer}
        by_name["w"].raw_data = np.random.default_rng(1).random((16, 3, 3, 3), np.float32).tobytes()
        assert read_model(layered).digest == digest
        assert read_model(layered, batch=2).digest != digest
        by_name["flat"].CopyFrom(numpy_helper.from_array(np.array([-1, 576]), "flat"))
        assert read_model(layered).digest != digest

    def test_nothing_of_a_large_weight_is_kept(self, parse: Parse) -> None:
        """A read model is small, however large its weights."""
        proto = parse("(float[1,1000] x) => (float y) { y = MatMul(x, w) }", weights={"w": (1000, 1000)})
        assert read_model(proto).proto.ByteSize() < 1000

    @pytest.mark.parametrize("threshold", [0, 1024])
    def test_weights_in_another_file(
        self,
        layered: ModelProto,
        tmp_path: Path,
        runtime: OnnxRuntime,
        settings: RuntimeSettings,
        threshold: int,
    ) -> None:
        """External weights change neither digest nor layers, and the model runs."""
        onnx.save(
            layered, tmp_path / "m.onnx", save_as_external_data=True, location="m.weights", size_threshold=threshold
        )
        model = read_model(tmp_path / "m.onnx")
        assert not model.weights_missing
        assert model.warnings == ()
        inside = runtime.lower(read_model(layered), "all")
        assert runtime.lower(model, "all") == inside
        runtime.open_model(model, settings).run()

    def test_external_weights_stay_in_their_file_at_another_batch(
        self, layered: ModelProto, tmp_path: Path, runtime: OnnxRuntime, settings: RuntimeSettings
    ) -> None:
        """A model whose file fixes the batch runs at another one, although its weights do not fit into one message."""
        layered.graph.initializer.remove(next(t for t in layered.graph.initializer if t.name == "flat"))
        layered.graph.node[1].op_type = "Flatten"
        del layered.graph.node[1].input[1]
        onnx.save(layered, tmp_path / "m.onnx", save_as_external_data=True, location="m.weights", size_threshold=0)
        model = read_model(tmp_path / "m.onnx", batch=3)
        assert model.reshaped
        runtime.open_model(model, settings).run()

    @pytest.mark.parametrize("threshold", [0, 1024])
    def test_a_missing_weight_file(
        self,
        layered: ModelProto,
        tmp_path: Path,
        runtime: OnnxRuntime,
        settings: RuntimeSettings,
        threshold: int,
    ) -> None:
        """A missing weight file is a warning; the model is lowered alike and runs on synthetic weights."""
        if threshold == 0:  # without its shape values a Reshape cannot run
            layered.graph.initializer.remove(next(t for t in layered.graph.initializer if t.name == "flat"))
            layered.graph.node[1].op_type = "Flatten"
            del layered.graph.node[1].input[1]
        onnx.save(
            layered, tmp_path / "m.onnx", save_as_external_data=True, location="m.weights", size_threshold=threshold
        )
        (tmp_path / "m.weights").unlink()
        model = read_model(tmp_path / "m.onnx")
        assert model.weights_missing
        (warning,) = model.warnings
        assert "m.weights" in warning
        assert [layer.op_type for layer in runtime.lower(model, "all").layers] == [
            layer.op_type for layer in runtime.lower(read_model(layered), "all").layers
        ]
        runtime.open_model(model, settings).run()

    def test_a_model_in_memory_without_its_weight_file(
        self, layered: ModelProto, tmp_path: Path, runtime: OnnxRuntime, settings: RuntimeSettings
    ) -> None:
        """A proto loaded without its external weights is priced like a file without them."""
        onnx.save(layered, tmp_path / "m.onnx", save_as_external_data=True, location="m.weights", size_threshold=1024)
        model = read_model(onnx.load(tmp_path / "m.onnx", load_external_data=False))
        assert model.weights_missing
        runtime.open_model(model, settings).run()

    @pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../secret", "", "link", "a\0b"])
    def test_weights_outside_the_folder(self, parse: Parse, tmp_path: Path, location: str) -> None:
        """A weight path or link out of the model's folder is refused without accessing its target."""
        folder = tmp_path / "model"
        folder.mkdir()
        (tmp_path / "secret").write_bytes(bytes(400))
        (folder / "link").symlink_to(tmp_path / "secret")
        proto = parse("(float[1,10] x) => (float y) { y = MatMul(x, w) }")
        tensor = proto.graph.initializer.add(name="w", dims=[10, 10], data_type=TensorProto.FLOAT, data_location=1)
        tensor.external_data.add(key="location", value=location)
        (folder / "m.onnx").write_bytes(proto.SerializeToString())
        message = refusal(ModelReadError, folder / "m.onnx")
        assert "m.onnx" in message
        assert repr(location) in message

    @pytest.mark.parametrize("offset", ["-5", "many", "99999"])
    def test_weights_at_an_impossible_place(self, parse: Parse, tmp_path: Path, offset: str) -> None:
        """Small external values must lie within their file."""
        proto = parse("(float[4,3] x) => (float y) { y = Reshape(x, s) }")
        tensor = proto.graph.initializer.add(name="s", dims=[2], data_type=TensorProto.INT64, data_location=1)
        for key, value in (("location", "w.bin"), ("offset", offset)):
            tensor.external_data.add(key=key, value=value)
        (tmp_path / "w.bin").write_bytes(bytes(16))
        (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
        message = refusal(ModelReadError, tmp_path / "m.onnx")
        assert "m.onnx" in message
        assert "w.bin" in message

    def test_small_values_outside_shape_the_layers(
        self, parse: Parse, tmp_path: Path, lower: Callable[..., LayerGraph], runtime: OnnxRuntime
    ) -> None:
        """Fusions that need constant values find them in the external file, as for Gelu."""
        gelu = parse(
            """(float[4,64] x) => (float[4,64] y)
            <float root = {1.4142135}, float one = {1}, float half = {0.5}>
            { a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half) }"""
        )
        onnx.save(gelu, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
        (layer,) = runtime.lower(read_model(tmp_path / "m.onnx"), "all").layers
        assert layer.op_type == "Gelu"

    def test_sparse_weights(self, parse: Parse, lower: Callable[..., LayerGraph]) -> None:
        """A sparse weight costs as much as a dense one, which the runtime makes of it."""
        proto = parse("(float[4] x) => (float[4] y) { y = Add(x, w) }")
        values = numpy_helper.from_array(np.array([1.0, 2.0], np.float32), "w")
        indices = numpy_helper.from_array(np.array([0, 2]), "i")
        proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
        (layer,) = lower(proto).layers
        assert layer.op_type == "Add"

    def test_a_function_with_weights(self, parse: Parse, lower: Callable[..., LayerGraph]) -> None:
        """Large constants in a model's own functions are left out, and lowering still works."""
        proto = parse("(float[2,64] x) => (float[2,64] y) { y = own.F(x) }", domains=("own",))
        weight = numpy_helper.from_array(np.ones((64, 64), np.float32))
        body = [helper.make_node("Constant", [], ["w"], value=weight), helper.make_node("MatMul", ["a", "w"], ["b"])]
        proto.functions.append(helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
        assert read_model(proto).proto.ByteSize() < 1000
        assert [layer.op_type for layer in lower(proto).layers] == ["MatMul"]


def test_names(layered: ModelProto, tmp_path: Path) -> None:
    """A model is named as the caller says, else after its file, else after its graph."""
    onnx.save(layered, tmp_path / "file.onnx")
    assert read_model(layered).name == "tiny"
    assert read_model(tmp_path / "file.onnx").name == "file"
    assert read_model(str(tmp_path / "file.onnx"), name="mine").name == "mine"


def test_reading_leaves_the_source_alone(layered: ModelProto, tmp_path: Path) -> None:
    """Reading at another size changes neither proto nor file."""
    before = layered.SerializeToString()
    read_model(layered, batch=3)
    assert layered.SerializeToString() == before
    onnx.save(layered, tmp_path / "m.onnx")
    shutil.copy(tmp_path / "m.onnx", tmp_path / "copy.onnx")
    read_model(tmp_path / "m.onnx", batch=3)
    assert (tmp_path / "m.onnx").read_bytes() == (tmp_path / "copy.onnx").read_bytes()


@pytest.mark.parametrize(("first", "is_free"), [("N", True), ("", True), ("1", False), ("seconds", True)])
def test_a_batch_whose_size_is_open_is_known(parse: Callable[..., ModelProto], first: str, is_free: bool) -> None:
    """A first dimension with a symbol or without a size is a batch that may have any size; a number is not."""
    proto = parse("(float[N, 8] x) => (float[N, 8] y) { y = Relu(x) }")
    dimension = proto.graph.input[0].type.tensor_type.shape.dim[0]
    dimension.Clear()
    if first.isdigit():
        dimension.dim_value = int(first)
    elif first:
        dimension.dim_param = first
    assert read_model(proto).has_free_batch is is_free
    assert read_model(proto, batch=4).has_free_batch is is_free
    assert read_model(proto, shapes={"x": (2, 8)}).has_free_batch is is_free
