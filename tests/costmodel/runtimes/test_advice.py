"""Lines of Python that apply settings: they run as they are shown."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from costmodel.runtimes.advice import levels_of, snippet_of, spins
from costmodel.runtimes.base import LEVELS, RuntimeSettings


@pytest.fixture
def path(parse: Callable[..., ModelProto], tmp_path: Path) -> Path:
    """A small model."""
    path = tmp_path / "small's.onnx"
    onnx.save(parse("(float[1, 8] x) => (float[1, 8] y) { y = Relu(x) }"), path)
    return path


def test_lines_for_onnx_runtime_run(path: Path) -> None:
    """The session has the threads, the level and the spinning of the settings."""
    found: dict[str, object] = {}
    text = snippet_of("onnxruntime", RuntimeSettings(2, "basic", spinning=False), str(path), batch=4, sessions=2)
    exec(text, found)
    options = found["options"]
    assert options.intra_op_num_threads == 2  # type: ignore[attr-defined]
    assert options.graph_optimization_level.name == "ORT_ENABLE_BASIC"  # type: ignore[attr-defined]
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"  # type: ignore[attr-defined]
    assert text.splitlines()[0] == "# Start 2 processes, each of which runs these lines."
    assert text.splitlines()[-1] == "# Give each run a batch of 4."
    assert "allow_spinning" not in snippet_of("onnxruntime", RuntimeSettings(), str(path))


@pytest.mark.skipif(find_spec("openvino") is None, reason="OpenVINO is not installed")
def test_lines_for_openvino_run(path: Path) -> None:
    """The compiled model has the threads of the settings, pinned unless other processes would pin theirs as well."""
    for sessions in (1, 2):
        found: dict[str, object] = {}
        exec(snippet_of("openvino", RuntimeSettings(2), str(path), sessions=sessions), found)
        assert found["compiled"].get_property("INFERENCE_NUM_THREADS") == 2  # type: ignore[attr-defined]
        assert found["compiled"].get_property("ENABLE_CPU_PINNING") == (sessions == 1)  # type: ignore[attr-defined]


def test_lines_for_any_runtime_use_costmodel(path: Path) -> None:
    """A runtime that costmodel knows nothing about is opened through costmodel."""
    text = snippet_of("mine", RuntimeSettings(3), str(path))
    compile(text, "snippet", "exec")
    assert "RuntimeSettings(3, 'all', spinning=True)" in text


def test_settings_without_an_effect_are_not_varied() -> None:
    """OpenVINO has one level and does not spin; one thread has no others that could."""
    assert levels_of("onnxruntime") == tuple(reversed(LEVELS))
    assert levels_of("openvino") == ("all",)
    assert [spins("onnxruntime", 1), spins("onnxruntime", 2), spins("openvino", 2)] == [False, True, False]
