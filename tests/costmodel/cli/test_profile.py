"""`costmodel profile` on this machine and for another one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import ModelProto

from costmodel.paths import Home
from tests.shell import Run
from tests.synthetic import SYSTEM

KEYS = [
    "model", "system", "predicted_us", "predicted_interval_us", "alone_us", "in_model_us", "measured_us",
    "measured_interval_us", "measured_stable", "profiled_us", "runs", "layers", "warnings",
]  # fmt: skip


@pytest.fixture
def pair(tmp_path: Path, parse: Callable[..., ModelProto]) -> Path:
    """A model of two layers with a symbolic batch, in a file."""
    path = tmp_path / "pair.onnx"
    path.write_bytes(parse("(float[N,1000] x) => (float[N,1000] z) { y = Relu(x) z = Tanh(y) }").SerializeToString())
    return path


def test_another_machine_is_shown_without_running_anything(run: Run, ready: Home, tmp_path: Path) -> None:
    """Predicted and stored costs stand side by side, and a note says why nothing was run."""
    trace = tmp_path / "trace.json"
    done = run(ready, "profile", "light_squeezenet", "--system", SYSTEM.name, "--trace", trace)
    assert done.code == 0
    assert f"the model was not run, because this host is not {SYSTEM.name}" in done.err
    assert "layer operator" in done.said
    assert "difference" in done.said
    assert not any(line.startswith("  measured") for line in done.out.splitlines())
    tracks = [e["args"]["name"] for e in json.loads(trace.read_text())["traceEvents"] if e["name"] == "thread_name"]
    assert tracks == ["model", "layers, predicted", "layers, measured alone"]


def test_the_document_lists_the_layers_that_differ_most_first(run: Run, ready: Home) -> None:
    """`--json` prints one document with every layer."""
    document = run(ready, "profile", "light_squeezenet", "--system", SYSTEM.name, "--json").document
    assert list(document) == KEYS
    differences = [layer["difference_us"] for layer in document["layers"]]
    assert differences == sorted(differences, reverse=True)
    assert (document["measured_us"], document["runs"]) == (None, 0)
    assert document["alone_us"] == pytest.approx(sum(layer["alone_us"] for layer in document["layers"]))


def test_this_host_runs_the_model(simulated_run: Run, tmp_path: Path, pair: Path) -> None:
    """After a benchmark, each layer has a cost alone and a time in the model, and the trace has both."""
    home, trace = tmp_path / "home", tmp_path / "trace.json"
    assert simulated_run(home, "bench", pair, "--json").document["measured"] > 0
    document = simulated_run(home, "profile", pair, "--runs", 3, "--trace", trace, "--json").document
    assert document["runs"] == 3
    assert document["in_model_us"] == pytest.approx(document["measured_us"], rel=0.05)
    assert all(layer["alone_us"] and layer["in_model_us"] for layer in document["layers"])
    assert "layers and kernels, in the model" in trace.read_text()
    said = simulated_run(home, "profile", pair, "--runs", 3).said
    assert "sum of 2 layers under the profiler" in said
    assert "measured one by one" in said


def test_a_symbolic_batch_is_set(simulated_run: Run, tmp_path: Path, pair: Path) -> None:
    """`--batch` and `--shape` change what is profiled."""
    one, two, three = (
        simulated_run(tmp_path / "home", "profile", pair, *options, "--runs", 1, "--json").document["in_model_us"]
        for options in ((), ("--batch", 2), ("--shape", "x=3,1000"))
    )
    assert (two, three) == (pytest.approx(one + 4), pytest.approx(one + 8))


def test_several_models_are_wrong_usage(run: Run, ready: Home) -> None:
    """One model has one profile."""
    done = run(ready, "profile", "light")
    assert done.code == 2
    assert "light is 9 models: name one file" in " ".join(done.err.split())


def test_a_system_that_nobody_knows_is_refused(run: Run, ready: Home) -> None:
    """A misspelt system is not this host under a new name."""
    assert "mad.up" in run(ready, "profile", "light_squeezenet", "--system", "mad.up").sentence
