"""Bad input gets one clear sentence and exit code 1, and leaves nothing behind."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from costmodel.paths import Home
from tests.shell import Run
from tests.synthetic import SYSTEM

Parse = Callable[..., ModelProto]
RELU = "(float[{}] x) => (float[{}] y) {{ y = Relu(x) }}"


def _relu(parse: Parse, *shape: int) -> ModelProto:
    """Returns a layer with a shape that ONNX's text form would refuse."""
    model = parse(RELU.format("1", "1"))
    for port in (*model.graph.input, *model.graph.output):
        port.CopyFrom(helper.make_tensor_value_info(port.name, TensorProto.FLOAT, shape))
    return model


def _cyclic(parse: Parse) -> ModelProto:
    model = parse("(float[1] x) => (float[1] y) { a = Add(x, b) b = Relu(x) y = Relu(b) }")
    model.graph.node[1].input[0] = "a"
    return model


def _outside(parse: Parse) -> ModelProto:
    model = parse("(float[1, 4] x) => (float[1, 4] y) { y = MatMul(x, w) }", weights={"w": (4, 4)})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret.bin")
    return model


def _no_layers(parse: Parse) -> ModelProto:
    model = parse(RELU.format("1", "1"))
    del model.graph.node[:]
    return model


MODELS: Mapping[str, tuple[Callable[[Parse], ModelProto], str]] = {
    "unknown domain": (
        lambda parse: parse("(float[1] x) => (float[1] y) { y = my.own.Operator(x) }", domains=("my.own",)),
        "my.own",
    ),
    "unknown operator": (lambda parse: parse("(float[1] x) => (float[1] y) { y = Fly(x) }"), "Fly"),
    "opset of the future": (lambda parse: parse(RELU.format("1", "1"), opset=999), "999"),
    "cyclic": (_cyclic, "cycl"),
    "weights outside": (_outside, "secret.bin"),
    "no layers": (_no_layers, "has no layers"),
    "zero dimension": (lambda parse: _relu(parse, 1, 0), "0"),
    "negative dimension": (lambda parse: _relu(parse, 1, -3), "-3"),
    "absurd dimension": (lambda parse: _relu(parse, 1, 1 << 40), str(1 << 40)),
    "open dimension": (lambda parse: parse(RELU.format("1, T", "1, T")), "T"),
}


@pytest.fixture
def refused(run: Run, ready: Home) -> Callable[[Path], str]:
    """Function that returns the sentence with which `costmodel predict` refuses a file."""
    return lambda path: run(ready, "predict", path, "--system", SYSTEM.name).sentence


@pytest.mark.parametrize("model", MODELS)
def test_a_model_that_cannot_be_priced(
    refused: Callable[[Path], str], parse: Parse, tmp_path: Path, model: str
) -> None:
    """The sentence names the model and its fault."""
    make, subject = MODELS[model]
    path = tmp_path / "strange.onnx"
    path.write_bytes(make(parse).SerializeToString())
    sentence = refused(path)
    assert "strange" in sentence
    assert subject in sentence


@pytest.mark.parametrize("contents", [b"", b"hello", b"\x08\x07\xff\xff", b"\0" * 100], ids=len)
def test_a_file_that_is_no_model(refused: Callable[[Path], str], tmp_path: Path, contents: bytes) -> None:
    """Files of arbitrary bytes, also empty ones, are refused."""
    path = tmp_path / "strange.onnx"
    path.write_bytes(contents)
    assert str(path) in refused(path)


@pytest.mark.parametrize("kept", [0.01, 0.5, 0.99])
def test_a_truncated_model(
    refused: Callable[[Path], str], light_models: Mapping[str, Path], tmp_path: Path, kept: float
) -> None:
    """A model truncated at any position is refused."""
    whole = light_models["squeezenet"].read_bytes()
    path = tmp_path / "strange.onnx"
    path.write_bytes(whole[: int(len(whole) * kept)])
    assert str(path) in refused(path)


def test_what_is_not_a_file(refused: Callable[[Path], str], tmp_path: Path) -> None:
    """A missing path, a folder without models and a device are refused."""
    assert "neither a corpus" in refused(tmp_path / "absent.onnx")
    (tmp_path / "folder.onnx").mkdir()
    assert "has no .onnx file in it" in refused(tmp_path / "folder.onnx")
    assert "/dev/null" in refused(Path("/dev/null"))


def test_one_bad_model_among_good_ones(run: Run, ready: Home, light_models: Mapping[str, Path], tmp_path: Path) -> None:
    """One bad model among good ones is named beside their estimates; if all are bad, there is an error."""
    (tmp_path / "strange.onnx").touch()
    asked = (tmp_path / "strange.onnx", "--system", SYSTEM.name, "--json")
    done = run(ready, "predict", light_models["vgg19"], *asked)
    document = json.loads(done.out)
    assert done.code == 1
    assert [one["model"] for one in document["models"]] == ["light_vgg19"]
    assert "strange.onnx is empty" in document["failed"]["strange"]
    assert "strange.onnx is empty" in run(ready, "predict", *asked).sentence


@pytest.mark.parametrize("command", ["bench", "decompose"])
def test_other_commands_refuse_alike(run: Run, tmp_path: Path, command: str) -> None:
    """A model that cannot be priced cannot be decomposed or benchmarked either, and nothing is stored."""
    (tmp_path / "strange.onnx").write_bytes(b"hello")
    done = run(tmp_path / "home", command, tmp_path / "strange.onnx")
    assert (done.code, done.out) == (1, "")
    assert "strange.onnx is not an ONNX" in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


def test_a_missing_weight_file_is_a_warning(run: Run, ready: Home, parse: Parse, tmp_path: Path) -> None:
    """A missing weight file is a warning, because only the shapes of weights matter."""
    model = _outside(parse)
    model.graph.initializer[0].external_data[0].value = "weights.bin"
    onnx.save(model, tmp_path / "strange.onnx")
    done = run(ready, "predict", tmp_path / "strange.onnx", "--system", SYSTEM.name, "--json")
    assert any("weights.bin is absent" in warning for warning in done.document["warnings"])


@pytest.mark.parametrize(
    "command",
    [("systems",), ("predict", "light_squeezenet"), ("train",), ("evaluate",), ("export", "results.parquet")],
    ids=lambda command: command[0],
)
def test_a_store_that_is_not_there_is_not_made_by_reading(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    """A missing store in --store is an error, because it is probably misspelt."""
    refused = run(tmp_path, *command, "--store", f"sqlite:///{tmp_path / 'slip.db'}")
    assert "there is no store at" in refused.sentence
    assert not (tmp_path / "slip.db").exists()
