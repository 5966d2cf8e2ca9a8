"""Processes that serve a release, with a fake runtime."""

import sys
from pathlib import Path

import pytest

from costmodel.errors import CostModelError, MeasurementError
from costmodel.jobs.runtime_comparison.release import LocalRelease
from costmodel.jobs.runtime_comparison.release_process import ReleaseProcess
from costmodel.measure.groups import Group
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose, whole_model
from tests.fakes import FakeRuntime, fake_sessions, fake_system

PROGRAM = (sys.executable, "-m", "tests.release_program")


def test_a_process_lowers_and_measures_like_this_one(target: Path) -> None:
    """The same layers and the same simulated times come back, and the system learns its capabilities."""
    runtime = FakeRuntime(version="2.5")
    model = read_model(target / "pooled.onnx")
    with (
        ReleaseProcess([*PROGRAM, "2.5"], "fake", "2.5".__eq__) as process,
        LocalRelease(runtime, fake_sessions(runtime)) as local,
    ):
        assert (process.name, process.version, process.fingerprint()) == ("fake", "2.5", runtime.fingerprint())
        graph = process.lower(model, "all")
        assert graph == local.lower(model, "all")
        cut, whole = decompose("m", graph), whole_model(graph)
        group = Group("m", tuple(cut.unique.values()), whole, model, footprint_bytes=1 << 20)
        system = fake_system(runtime=runtime)
        assert process.open(system).capabilities == local.open(system).capabilities != {}
        there, here = process.measure(group, model.path), local.measure(group, model.path)
        assert {one.signature: one.kind for one in there.measurements} == dict.fromkeys(cut.unique, "layer") | {
            whole.signature: "model"
        }
        assert [one.times_us for one in there.measurements] == [one.times_us for one in here.measurements]
        assert there.failed == {}
        system = process.close() or system
        assert any(name.startswith("quiet_") for name in system.capabilities)


def test_errors_come_back(target: Path, tmp_path: Path) -> None:
    """What the process reports is raised here, and it goes on afterwards."""
    (tmp_path / "broken.onnx").write_bytes((target / "plain.onnx").read_bytes())
    model = read_model(tmp_path / "broken.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with ReleaseProcess([*PROGRAM, "2.5"], "fake") as process:
        with pytest.raises(CostModelError, match=r"broken\.onnx"):
            process.lower(model, "all")
        assert process.lower(read_model(target / "plain.onnx"), "all").layers


def test_another_release_is_refused() -> None:
    """A process that runs another version than the one that was asked for is ended."""
    with pytest.raises(CostModelError, match=r"runs fake 2\.5, which is another release"):
        ReleaseProcess([*PROGRAM, "2.5"], "fake", "2.6".__eq__)


def test_the_end_of_a_process_is_reported() -> None:
    """The error has the last line of what the process wrote; a program that is missing is an error too."""
    with (
        ReleaseProcess([*PROGRAM, "2.5", "--die"], "fake") as process,
        pytest.raises(MeasurementError, match="ended with status 1: the machine is on fire"),
    ):
        process.open(fake_system())
    with pytest.raises(MeasurementError, match="cannot be started"):
        ReleaseProcess(["no/such/python"], "fake")
