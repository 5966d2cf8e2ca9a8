"""Sessions in processes of their own, with a real runtime; no time is asserted."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from costmodel.errors import MeasurementError
from costmodel.jobs.tuning.session_process import ProcessSession
from costmodel.jobs.tuning.trial import SessionSource
from costmodel.runtimes.base import RuntimeSettings


def test_a_process_runs_a_model(parse: Callable[..., ModelProto], tmp_path: Path) -> None:
    """A session runs as often as it is asked, at least twice."""
    path = tmp_path / "small.onnx"
    onnx.save(parse("(float[N, 8] x) => (float[N, 8] y) { y = Relu(x) }"), path)
    session = ProcessSession(SessionSource("onnxruntime", RuntimeSettings(2), path, batch=3))
    try:
        session.wait()
        for _ in range(2):
            session.start(0.0)
            assert len(session.times_us()) == 2
    finally:
        session.close()


def test_a_process_runs_the_branch_that_a_value_chooses(branches: ModelProto, tmp_path: Path) -> None:
    """A value that the input cannot have is refused by the process, which therefore knows it; others run."""
    path = tmp_path / "merged.onnx"
    onnx.save(branches, path)
    for value in (1, 0):
        session = ProcessSession(SessionSource("onnxruntime", RuntimeSettings(), path, values=(("cached", value),)))
        session.wait()
        session.start(0.0)
        assert len(session.times_us()) == 2
        session.close()
    session = ProcessSession(SessionSource("onnxruntime", RuntimeSettings(), path, values=(("cached", 2),)))
    with pytest.raises(MeasurementError, match="cannot be 2"):
        session.wait()
    session.close()


def test_a_model_that_does_not_load_is_a_sentence(tmp_path: Path) -> None:
    """The error of the process is raised here."""
    session = ProcessSession(SessionSource("onnxruntime", RuntimeSettings(), tmp_path / "absent.onnx"))
    with pytest.raises(MeasurementError, match=r"absent\.onnx"):
        session.wait()
    session.close()


def test_a_process_that_ends_says_why(tmp_path: Path) -> None:
    """A defect in the process is reported with the last line that it wrote."""
    session = ProcessSession(SessionSource("onnxruntime", RuntimeSettings(), tmp_path, shapes=((1, 2),)))  # type: ignore[arg-type]
    with pytest.raises(MeasurementError, match="ended with status 1: TypeError"):
        session.wait()
    session.close()
