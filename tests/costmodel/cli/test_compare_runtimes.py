"""`costmodel compare-runtimes`, with two releases of the fake runtime."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from onnx import ModelProto

from costmodel.cli.context import Tools
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.runtime_comparison.release import LocalRelease
from tests.fakes import FakeRuntime, fake_sessions
from tests.shell import Run


class _Slower(FakeRuntime):
    def cost_us(self, sequence: LayerSequence) -> float:
        slow = 1.5 if sequence.kind == "MaxPool" else 1.0
        return slow * super().cost_us(sequence)


def _release(text: str) -> Callable[[], LocalRelease]:
    """Returns a function that starts a release: from 1.31 on, one operator is slower."""
    version = text.partition("==")[2]
    runtime = (_Slower if version >= "1.31" else FakeRuntime)(version=f"{version}.0", name="onnxruntime")
    return partial(LocalRelease, runtime, fake_sessions(runtime))


@pytest.fixture
def model(tmp_path: Path, parse: Callable[..., ModelProto]) -> Path:
    """A model with two operators."""
    path = tmp_path / "pooled.onnx"
    text = """(float[1,3,64,64] x) => (float[1,3,32,32] y) {
        r = Relu(x)
        y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
    }"""
    path.write_bytes(parse(text).SerializeToString())
    return path


@pytest.fixture
def compare(run_with: Callable[[Tools], Run], tmp_path: Path, model: Path) -> Run:
    """Function that runs the command on the model, with more arguments."""
    run = run_with(Tools(release=_release, lock=nullcontext))
    return partial(run, tmp_path / "home", "compare-runtimes", model)


def test_the_command_prints_and_stores_what_changed(compare: Run, run: Run, tmp_path: Path) -> None:
    """Tables mark what is slower, the document has all ratios, and the releases are two systems."""
    arguments = ("--from", "onnxruntime==1.30", "--to", "1.31", "--rounds", "3")
    printed = compare(*arguments)
    assert printed.code == 0
    assert "from onnxruntime 1.30.0 (" in printed.said
    assert "MaxPool slower" in printed.said
    assert "of 2 layers that both execute, 1 did not change beyond noise." in printed.said
    document = compare(*arguments, "--json").document
    assert document["measured_turns"] == 0
    ratios = {change["name"]: change["ratio"] for change in document["changes"] if change["kind"] == "operator"}
    assert ratios == {"MaxPool": pytest.approx(1.5), "Relu": pytest.approx(1.0)}
    systems = run(tmp_path / "home", "systems", "--json").document["systems"]
    assert {document["from"]["system"], document["to"]["system"]} <= {system["name"] for system in systems}


def test_a_spent_budget_is_said(compare: Run) -> None:
    """The last line says how to go on."""
    printed = compare("--from", "1.30", "--to", "1.31", "--budget", "0s")
    assert "run the same command again to go on" in printed.said


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("onnxruntime", "1.31", "names no release"),
        ("1.30", "openvino==2026.4", "another runtime"),
        ("1.31", "1.31", "choose two different ones"),
        ("1.1", "1.31", "older than costmodel can use"),
    ],
)
def test_bad_releases_are_one_sentence(compare: Run, old: str, new: str, part: str) -> None:
    """One sentence says what is wrong, and nothing is measured."""
    assert part in compare("--from", old, "--to", new).sentence
