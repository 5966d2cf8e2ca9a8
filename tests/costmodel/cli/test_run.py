"""`costmodel run` in simulated time: evaluations, their folders, and their verification."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import ModelProto

from costmodel.cli.context import Tools
from costmodel.paths import Home
from tests.fakes import FakeRuntime, fake_sessions
from tests.shell import Run
from tests.synthetic import SYSTEM, copied

SPEC = """
name = "small"
title = "Two small models"

[models]
include = ["{folder}"]

[layers]
granularities = [1, 2]
"""


@pytest.fixture
def models(tmp_path: Path, parse: Callable[..., ModelProto]) -> Path:
    """A folder of three small models with a symbolic batch."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name, size in (("narrow", 1000), ("wide", 4000), ("wide_int8", 2000)):
        text = f"(float[N,{size}] x) => (float[N,{size}] z) {{ y = Relu(x) z = Tanh(y) }}"
        (folder / f"{name}.onnx").write_bytes(parse(text).SerializeToString())
    return folder


@pytest.fixture
def spec(tmp_path: Path, models: Path) -> Callable[[str], Path]:
    """Function that writes a spec of these models with additional lines, and returns its path."""

    def spec(more: str = "") -> Path:
        path = tmp_path / "small.toml"
        path.write_text(SPEC.format(folder=models) + more)
        return path

    return spec


@pytest.fixture
def simulated(run_with: Callable[[Tools], Run]) -> Callable[[FakeRuntime], Run]:
    """Function that returns a function which runs commands with a fake runtime."""
    return lambda runtime: run_with(Tools(runtime, fake_sessions(runtime)))


def test_an_evaluation_fills_a_folder(simulated_run: Run, tmp_path: Path, spec: Callable[[str], Path]) -> None:
    """Spec, versions, host, digests and results are in the folder, as JSON and as a table."""
    path, out = spec(""), tmp_path / "out"
    document = simulated_run(tmp_path / "home", "run", path, "--out", out, "--json").document
    assert {file.name for file in out.iterdir()} == {
        "evaluation.toml", "results.json", "results.csv", "environment.json", "requirements.txt"
    }  # fmt: skip
    assert (out / "evaluation.toml").read_text() == path.read_text()
    assert any(line.startswith("onnx==") for line in (out / "requirements.txt").read_text().splitlines())
    environment = json.loads((out / "environment.json").read_text())
    assert {"python", "platform", "packages", "host"} == environment.keys()
    results = json.loads((out / "results.json").read_text())
    assert [model["name"] for model in results["models"]] == ["narrow", "wide", "wide_int8"]
    assert all(len(model["file_sha256"]) == len(model["digest"]) == 64 for model in results["models"])
    (system,) = results["systems"]
    assert (system["here"], system["regressor"], len(system["measurements_fingerprint"])) == (True, "none", 64)
    rows = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    assert len(rows) == len(results["cases"]) == len(document["cases"]) == 6
    assert [(row["granularity"], row["sequences"]) for row in rows[:2]] == [("1", "2"), ("2", "1")]
    assert all(float(row["composed_us"]) > 0 and float(row["measured_us"]) > 0 for row in rows)
    assert [row["geometric_mean"] for row in document["accuracy"]] == [pytest.approx(1.0, rel=0.1)] * 2


def test_an_evaluation_is_resumed(
    simulated: Callable[[FakeRuntime], Run], tmp_path: Path, spec: Callable[[str], Path]
) -> None:
    """A run measures only what the store lacks, even in another folder."""
    runtime = FakeRuntime()
    run, home = simulated(runtime), tmp_path / "home"
    first = run(home, "run", spec(""), "--out", tmp_path / "first")
    assert ": 9 measured" in first.err
    ran = len(runtime.ran)
    second = run(home, "run", spec(""), "--out", tmp_path / "second")
    assert " 0 measured" in second.err
    assert "within" not in second.err
    assert len(runtime.ran) - ran < ran / 4  # opening a session runs the reference kernel and the probes
    assert (tmp_path / "first/results.csv").read_text() == (tmp_path / "second/results.csv").read_text()


def test_each_seed_is_a_pass(
    simulated: Callable[[FakeRuntime], Run], tmp_path: Path, spec: Callable[[str], Path]
) -> None:
    """A second seed measures everything a second time, and a second run of it nothing."""
    runtime = FakeRuntime()
    run, home = simulated(runtime), tmp_path / "home"
    path = spec("")
    path.write_text("seeds = [0, 1]\n" + path.read_text())
    assert "measured twice" in run(home, "run", path, "--out", tmp_path / "out").err
    assert "measured twice" not in run(home, "run", path, "--out", tmp_path / "out").err


def test_a_verification_agrees_on_the_same_machine(
    simulated_run: Run, tmp_path: Path, spec: Callable[[str], Path]
) -> None:
    """Everything is measured anew, into a store in the folder, and the intervals overlap."""
    home, out = tmp_path / "home", tmp_path / "out"
    simulated_run(home, "run", spec(""), "--out", out)
    done = simulated_run(home, "run", "--verify", out, "--json")
    assert done.document["beyond_noise"] == 0
    assert done.document["changes"] == []
    assert len(done.document["latencies"]) == 9  # measured latencies do not depend on the granularity
    assert {one["verdict"] for one in done.document["latencies"]} == {"agrees"}
    assert (out / "verification-1" / "measurements.db").exists()
    assert " 0 measured" not in done.err
    assert "9 latencies: 9 agree" in simulated_run(home, "run", "--verify", out).said
    assert (out / "verification-2" / "results.json").exists()


def test_a_verification_fails_where_latencies_differ(
    simulated: Callable[[FakeRuntime], Run], tmp_path: Path, spec: Callable[[str], Path], models: Path
) -> None:
    """Exit code 1, and a list of what differs; what else changed is said."""
    home, out = tmp_path / "home", tmp_path / "out"
    simulated(FakeRuntime())(home, "run", spec(""), "--out", out)
    environment = json.loads((out / "environment.json").read_text())
    environment["packages"]["onnx"] = "0.1"
    (out / "environment.json").write_text(json.dumps(environment))
    (models / "narrow.onnx").unlink()
    slower = simulated(FakeRuntime(noise=lambda _: 1.3))
    done = slower(home, "run", "--verify", out)
    assert done.code == 1
    assert "changed: package onnx is" in done.said
    assert "instead of 0.1" in done.said
    assert "changed: narrow was not evaluated" in done.said
    assert "+30.0%" in done.said
    assert "9 differ beyond noise" in done.said
    failed = slower(home, "run", "--verify", out, "--json")
    assert failed.code == 1
    assert json.loads(failed.out)["beyond_noise"] == 9


def test_a_tolerance_is_part_of_the_spec(
    simulated: Callable[[FakeRuntime], Run], tmp_path: Path, spec: Callable[[str], Path]
) -> None:
    """A difference below the tolerance is noise."""
    home, out = tmp_path / "home", tmp_path / "out"
    simulated(FakeRuntime())(home, "run", spec("[verify]\ntolerance = 0.5\n"), "--out", out)
    done = simulated(FakeRuntime(noise=lambda _: 1.3))(home, "run", "--verify", out)
    assert done.code == 0
    assert "0 agree, 9 differ by less than the tolerance, 0 differ beyond noise" in done.said


def test_threads_and_batches_and_names_are_compared(
    simulated_run: Run, tmp_path: Path, spec: Callable[[str], Path]
) -> None:
    """The summary compares latencies with those at the first value, or without the suffix."""
    home = tmp_path / "home"
    threads = '[systems]\nthreads = [1, 2]\n[compare]\nby = "threads"\n'
    said = simulated_run(home, "run", spec(threads), "--out", tmp_path / "threads").said
    assert "threads 2 against 1 3 1.000 1.000 1.000" in said
    batches = '[scenario]\nbatches = [1, 4]\n[compare]\nby = "batch"\n'
    document = simulated_run(home, "run", spec(batches), "--out", tmp_path / "batches", "--json").document
    (row,) = document["comparisons"]
    assert (row["what"], row["models"]) == ("batch 4 against 1", 3)
    assert 2 < row["lowest"] <= row["geometric_mean"] <= row["highest"] <= 4
    suffix = '[compare]\nby = "suffix"\nsuffix = "_int8"\n[measure]\nwhat = ["models"]\n[predict]\nsources = []\n'
    document = simulated_run(home, "run", spec(suffix), "--out", tmp_path / "suffix", "--json").document
    (row,) = document["comparisons"]
    assert (row["models"], row["lowest"]) == (1, pytest.approx(10 / 18, rel=0.05))


def test_a_stored_system_is_predicted_and_not_measured(run: Run, ready: Home, tmp_path: Path) -> None:
    """Estimates for another machine come from the store and its regressor, whose fingerprint is recorded."""
    path, out = tmp_path / "elsewhere.toml", tmp_path / "out"
    path.write_text(
        'name = "elsewhere"\n[models]\ninclude = ["light"]\nmatch = ["*squeezenet", "*resnet50"]\n'
        f'[systems]\nnames = ["{SYSTEM.name}"]\n[predict]\nsources = ["measured", "predicted"]\n'
    )
    home = copied(ready, tmp_path / "home")
    document = run(home, "run", path, "--out", out, "--json").document
    resnet, squeezenet = document["cases"]
    assert (resnet["model"], resnet["measured"], squeezenet["stable"]) == ("light_resnet50", None, True)
    assert resnet["composed"]["latency_us"] > 0 < resnet["predicted"]["latency_us"]
    assert squeezenet["measured_share"] == 1
    (system,) = json.loads((out / "results.json").read_text())["systems"]
    assert (system["here"], len(system["regressor_fingerprint"])) == (False, 64)
    assert run(home, "run", "--verify", out, "--json").document["changes"] == []


def test_what_cannot_be_evaluated_is_said(
    simulated: Callable[[FakeRuntime], Run], tmp_path: Path, spec: Callable[[str], Path]
) -> None:
    """A model that does not load is named, and the others are evaluated."""
    runtime = FakeRuntime(refused={"wide"})
    path = spec('[predict]\nsources = ["measured", "predicted"]\n')
    done = simulated(runtime)(tmp_path / "home", "run", path, "--out", tmp_path / "out")
    assert done.code == 0
    assert "wide does not load" in done.err
    assert "narrow, predicted: narrow has 2 layers without a cost" in done.err


def test_mistakes_are_answered(simulated_run: Run, tmp_path: Path, spec: Callable[[str], Path]) -> None:
    """Wrong usage has exit code 2; an unusable file or folder is named in one sentence."""
    home, out = tmp_path / "home", tmp_path / "out"
    assert simulated_run(home, "run").code == 2
    assert simulated_run(home, "run", "threads", "--list").code == 2
    assert simulated_run(home, "run", "--verify", out, "--out", out).code == 2
    assert "is no folder of results" in simulated_run(home, "run", "--verify", out).sentence
    assert simulated_run(home, "run", spec(""), "--out", out).code == 0
    assert "has the results of another spec" in simulated_run(home, "run", spec("# changed"), "--out", out).sentence
    (out / "evaluation.toml").write_text(spec("").read_text() + "# changed\n")
    assert "was changed after the evaluation" in simulated_run(home, "run", "--verify", out).sentence
    (out / "results.json").write_text("{}")
    assert "has no results of an evaluation" in simulated_run(home, "run", "--verify", out).sentence


def test_models_are_selected_by_patterns(simulated_run: Run, tmp_path: Path, models: Path) -> None:
    """`match` keeps models by name and `exclude` leaves some out; nothing left is an error."""
    path = tmp_path / "some.toml"
    head = f'name = "some"\n[models]\ninclude = ["{models}"]\n'
    path.write_text(head + 'match = ["wide*"]\nexclude = ["*_int8"]\n')
    document = simulated_run(tmp_path / "home", "run", path, "--out", tmp_path / "out", "--json").document
    assert [case["model"] for case in document["cases"]] == ["wide"]
    path.write_text(head + 'match = ["tall*"]\n')
    assert (
        "some selects none of the 3 models" in simulated_run(tmp_path / "home", "run", path, "--out", models).sentence
    )


def test_the_library_is_listed(simulated_run: Run, tmp_path: Path) -> None:
    """`--list` names the evaluations that come with costmodel and says what they show."""
    said = simulated_run(tmp_path / "home", "run", "--list").said
    assert "dlbricks" in said
    assert "Latency on two threads against one" in said
    names = [one["name"] for one in simulated_run(tmp_path / "home", "run", "--list", "--json").document]
    assert names == ["batches", "dlbricks", "int8", "modern", "threads"]
