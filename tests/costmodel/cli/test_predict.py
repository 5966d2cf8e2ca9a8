"""`costmodel predict`: documents for programs, tables for people, and models with unusual names."""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from costmodel.cli.estimates import print_estimate
from costmodel.estimate.estimate import Estimate, PredictorId
from costmodel.paths import Home
from costmodel.store.store import Store
from tests.fakes import elementwise, measured
from tests.shell import Run
from tests.synthetic import SYSTEM

KEYS = [
    "model", "system", "latency_us", "interval_us", "interval_level", "quantiles_us", "composition", "granularity",
    "cover", "coverage", "layers", "predictor", "peak_memory_bytes", "peak_memory_interval_bytes",
    "load_time_us", "load_time_interval_us", "first_run_us", "first_run_interval_us", "beside",
    "slowdown", "slowdown_interval", "warnings",
]  # fmt: skip


@pytest.fixture
def predict(run: Run, ready: Home) -> Run:
    """Function that runs `costmodel predict` for the synthetic system."""
    return lambda *arguments: run(ready, "predict", *arguments, "--system", SYSTEM.name)


@pytest.fixture
def resnet(light_models: Mapping[str, Path]) -> Path:
    """A model that was not measured."""
    return light_models["resnet50"]


def test_one_model_is_one_document(predict: Run, resnet: Path) -> None:
    """The document has the documented keys in order, and standard output contains nothing else."""
    document = predict(resnet, "--json").document
    assert list(document) == KEYS
    assert document["model"] == "light_resnet50"
    assert sum(document["coverage"].values()) == pytest.approx(1)
    low, high = document["interval_us"]
    assert low < document["latency_us"] < high
    low, high = document["peak_memory_interval_bytes"]
    assert resnet.stat().st_size < low < document["peak_memory_bytes"] < high
    low, high = document["load_time_interval_us"]
    assert 0 < low < document["load_time_us"] < high
    low, high = document["first_run_interval_us"]
    assert low < document["first_run_us"] < high
    assert document["first_run_us"] > document["latency_us"]
    text = predict(resnet).out
    assert " MB at its peak, 90% interval " in text
    assert " to load, " in text


def test_several_models_are_one_document_too(predict: Run, light_models: Mapping[str, Path]) -> None:
    """Files, corpora and folders are priced in order, each as if alone."""
    documents = predict(light_models["vgg19"], "light_squeezenet", "--json").document["models"]
    assert [d["model"] for d in documents] == ["light_vgg19", "light_squeezenet"]
    assert documents[0] == predict(light_models["vgg19"], "--json").document
    assert len(predict("light", "--json").document["models"]) == 9


def test_models_of_the_same_file_name_are_both_priced(
    predict: Run, light_models: Mapping[str, Path], tmp_path: Path
) -> None:
    """Models with the same file name are distinguished by their paths."""
    for name in ("vgg19", "squeezenet"):
        (tmp_path / name).mkdir()
        shutil.copy(light_models[name], tmp_path / name / "model.onnx")
    paths = [tmp_path / name / "model.onnx" for name in ("vgg19", "squeezenet")]
    documents = predict(*paths, "--json").document["models"]
    assert [d["model"] for d in documents] == [str(path) for path in paths]
    assert documents[0]["latency_us"] > 10 * documents[1]["latency_us"]


def test_options_reach_the_estimate(predict: Run, resnet: Path) -> None:
    """Granularity, composition and ignoring measurements take effect."""
    plain = predict(resnet, "--json").document
    coarse = predict(resnet, "-G", "3", "--compose", "parallel", "--json").document
    assert (coarse["granularity"], coarse["composition"]) == (3, "parallel")
    assert coarse["coverage"]["measured"] == 0
    predicted = predict(resnet, "--predict-all", "--json").document
    assert plain["coverage"]["measured"] > predicted["coverage"]["measured"] == 0


def test_the_rule_of_the_documentation(
    predict: Run, light_models: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's own rule, written as in docs/how-to/rules.md, is applied."""
    text = (Path(__file__).parents[3] / "docs" / "how-to" / "rules.md").read_text()
    (tmp_path / "overlap.py").write_text(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1])
    monkeypatch.chdir(tmp_path)
    plain = predict(light_models["shufflenet"], "--json").document
    hidden = predict(light_models["shufflenet"], "--compose", "overlap:hidden_moves", "--json").document
    assert hidden["composition"] == "overlap:hidden_moves"
    assert hidden["latency_us"] == pytest.approx(sum(one["share"] * one["latency_us"] for one in hidden["layers"]))
    assert hidden["latency_us"] < plain["latency_us"]
    assert {one["op_type"] for one in hidden["layers"] if one["share"] < 1} <= {
        "Transpose",
        "Concat",
        "Reshape",
        "Slice",
    }


def test_batch_and_shape(predict: Run, parse: Callable[..., ModelProto], tmp_path: Path) -> None:
    """A symbolic batch is 1 by default; other open dimensions must be given, and the error names them."""
    relu = parse("(float[N, 16, T] x) => (float[N, 16, T] y) { y = Relu(x) }")
    onnx.save(relu, tmp_path / "relu.onnx")
    assert "T" in predict(tmp_path / "relu.onnx").sentence
    one = predict(tmp_path / "relu.onnx", "--shape", "x=1,16,5000", "--json").document
    many = predict(tmp_path / "relu.onnx", "--shape", "x=64,16,5000", "--json").document
    assert many["latency_us"] > one["latency_us"]
    assert "y" in predict(tmp_path / "relu.onnx", "--shape", "y=1,16,8").sentence


def test_the_value_of_an_input_chooses_the_branch(predict: Run, branches: ModelProto, tmp_path: Path) -> None:
    """A flag becomes a constant, so that the layers of its branch are priced; without it, a note asks for it."""
    path = tmp_path / "merged.onnx"
    onnx.save(branches, path)
    asked = (path, "--partial", "--predict-all", "--json")
    cached = predict(*asked, "--value", "cached=true").document
    whole = predict(*asked, "--value", "cached=0").document
    assert [layer["op_type"] for layer in cached["layers"]] == ["Tanh"]
    assert [layer["op_type"] for layer in whole["layers"]] == ["MatMul", "Tanh"]
    assert "which layers run depends on the input cached" in predict(*asked).document["warnings"][0]
    assert "write it like use_cache_branch=1" in predict(path, "--value", "cached").err
    assert "its inputs are x, cached" in predict(path, "--value", "flag=1").sentence


def test_a_model_without_an_estimate_does_not_stop_the_others(predict: Run, resnet: Path, tmp_path: Path) -> None:
    """A folder with a broken file has estimates of the others; the broken file is named, alone it is an error."""
    shutil.copy(resnet, tmp_path / "good.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"bad")
    done = predict(tmp_path, "--json")
    document = json.loads(done.out)
    (good,) = document["models"]
    assert (done.code, good["model"]) == (1, "good")
    assert "is not an ONNX file" in document["failed"]["bad"]
    shown = predict(tmp_path)
    assert (shown.code, predict(tmp_path / "good.onnx").code) == (1, 0)
    assert "good on" in shown.out
    assert "bad has no estimate: " in " ".join(shown.err.split())
    assert "bad.onnx is not an ONNX file" in predict(tmp_path / "bad.onnx").sentence


def test_a_system_without_data_says_how_to_get_some(run: Run, ready: Home, resnet: Path, tmp_path: Path) -> None:
    """A system without data is refused with how to get some, named or not, in old and new homes."""
    for home, options in ((ready, ["--system", "a.machine"]), (tmp_path / "new", ["--system", "x"]), (ready, [])):
        assert "run `costmodel bench" in run(home, "predict", resnet, *options).sentence


@pytest.mark.parametrize(
    "name", ["a/b", "", "..", ".hidden", "con", "NUL.txt", "naïve", "two words", "$(rm -rf)", "x" * 65, "a\nb", "a;b"]
)
def test_odd_system_names_are_refused(run: Run, ready: Home, name: str) -> None:
    """Invalid system names are refused before any file access."""
    for command in (["predict", "light"], ["train"], ["evaluate"], ["export", "x.parquet"], ["bench"]):
        assert "cannot name a system" in run(ready, *command, f"--system={name}").sentence
    assert {path.name for path in ready.bundles.iterdir()} == {SYSTEM.name}


def test_holes_are_refused_unless_a_part_will_do(run: Run, own: Home, resnet: Path) -> None:
    """Without a regressor, the error names unpriced layers; a partial estimate warns of them."""
    shutil.rmtree(own.bundles)
    arguments = ("predict", resnet, "--system", SYSTEM.name)
    assert "layers without a cost on made.up: " in run(own, *arguments).sentence
    done = run(own, *arguments, "--partial", "--json")
    sources = [layer["source"] for layer in done.document["layers"]]
    assert {"measured", "unpriced"} == set(sources)
    (warning,) = done.document["warnings"]
    assert warning.startswith(f"{sources.count('unpriced')} layers have no cost and count as 0")


def test_an_artefact_of_another_schema_is_refused(run: Run, own: Home, resnet: Path) -> None:
    """A regressor of another feature schema is refused."""
    (card,) = own.bundles.rglob("card.json")
    card.write_text(re.sub(r'"schema_fingerprint": "\w+"', '"schema_fingerprint": "0000"', card.read_text()))
    assert "train again with `costmodel train`" in run(own, "predict", resnet, "--system", SYSTEM.name).sentence


def test_people_see_the_total_its_sources_and_the_slowest_layers(predict: Run, resnet: Path, tmp_path: Path) -> None:
    """The table has total, sources and slowest layers in 80 columns; notes are on standard error."""
    model = onnx.load(resnet)
    (images,) = (one for one in model.graph.input if one.name == "gpu_0/data_0")
    images.type.tensor_type.shape.dim[0].dim_param = "batch"
    path = tmp_path / "light_resnet50.onnx"
    onnx.save(model, path)
    done = predict(path)
    lines = done.out.splitlines()
    assert lines[0] == "light_resnet50 on made.up"
    assert re.search(r"latency +\S+ ms +90% interval \S+ ms to \S+ ms", lines[1])
    assert any(re.search(r"made of +\d+% measured, \d+% predicted", line) for line in lines)
    assert max(map(len, lines)) <= 80
    table = lines[lines.index("") + 1 :]
    assert len(table) == 9
    assert re.fullmatch(r"slowest layers +operator +source +latency +share *", table[0])
    assert all(re.fullmatch(r"\S+ +\w+ +(measured|predicted|extrapolated) +\S+ ms +\S+%", row) for row in table[1:])
    assert done.err.startswith("note: the batch (batch) is symbolic")


@pytest.mark.parametrize("columns", [80, 120])
def test_many_models_are_a_table(predict: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Several models are a table of one row each at any width."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = predict("light").out.splitlines()
    assert len(lines) == 10
    assert max(map(len, lines)) <= columns
    assert all(line.startswith("light_") for line in lines[1:])


STRANGE = "[bold]x[/bold][/red] :smile: \x1b[31m\x07 [0]"


def test_names_are_never_markup_or_control_codes(
    predict: Run, parse: Callable[..., ModelProto], tmp_path: Path
) -> None:
    """Names in an untrusted model cannot send control codes or markup to the terminal."""
    path = tmp_path / "[green]m :bomb:.onnx"
    model = parse("(float[1, 64, 28, 28] x) => (float[1, 64, 28, 28] y) { y = Relu(x) }")
    model.graph.node[0].name = STRANGE
    onnx.save(model, path)
    done = predict(path)
    assert done.code == 0
    assert done.out.splitlines()[0] == "[green]m :bomb: on made.up"
    assert "[bold]x[/bold][/red] :smile: ?[31m? [0]"[:39] in done.out
    assert "\x1b" not in done.out + done.err
    assert predict(path, "--json").document["layers"][0]["name"] == STRANGE
    error = predict(tmp_path / "\x1b[2Jnone.onnx").sentence
    assert "\x1b" not in error


def test_a_store_of_another_place_is_used(run: Run, ready: Home, resnet: Path, tmp_path: Path) -> None:
    """A store given by option or variable is used, with its own regressors."""
    arguments = ("predict", resnet, "--system", SYSTEM.name, "--json")
    url = f"sqlite:///{tmp_path / 'other.db'}"
    Store(url).close()
    assert "none is known yet" in run(ready, *arguments, "--store", url).sentence
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSTMODEL_STORE", url)
        assert "none is known yet" in run(ready, *arguments).sentence
    assert json.loads(run(tmp_path / "new", *arguments, "--partial", "--store", ready.store_url).out)
    (tmp_path / "notes.txt").write_text("not a store, but a text that is long enough to be taken for one" * 20)
    assert "it is not a database" in run(ready, *arguments, "--store", f"sqlite:///{tmp_path / 'notes.txt'}").sentence


@pytest.mark.parametrize("stable", [True, False])
def test_an_uncertain_measurement_is_called_one(capsys: pytest.CaptureFixture[str], stable: bool) -> None:
    """Beside an estimate stands the interval of the measurement, and whether the measurement can be trusted."""
    measurement = measured(elementwise(2), [90.0, 100.0, 130.0], stable=stable)
    estimate = Estimate("m", "s", 80.0, (70.0, 95.0), 0.9, {}, "sequential", 1, (), PredictorId("none", "none"))
    print_estimate(estimate, measurement)
    out = capsys.readouterr().out
    assert "measured  100 µs" in out
    assert "-20.0% off" in out
    assert ("measure again when it is quiet" in out) is not stable
