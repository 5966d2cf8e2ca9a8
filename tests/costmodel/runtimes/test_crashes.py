"""A runtime that ends the process at a model does not end every later process at it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel.errors import LoweringError
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.crashes import refusing_after_crashes
from costmodel.runtimes.lowering_cache import lower_cached
from tests.fakes import FakeRuntime

CRASHING = """
import os, signal, sys
from pathlib import Path
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.lowering_cache import lower_cached
from tests.fakes import FakeRuntime

class Crashing(FakeRuntime):
    def lower(self, model, level):
        os.kill(os.getpid(), signal.SIGSEGV)

lower_cached(Crashing(), read_model(Path(sys.argv[1])), "all", Path(sys.argv[2]))
"""


def _crash(model: Path, cache: Path) -> int:
    return subprocess.run([sys.executable, "-c", CRASHING, model, cache], cwd=Path(__file__).parents[3]).returncode


def test_a_model_that_crashes_the_runtime_is_refused_from_the_third_time_on(
    light_models: dict[str, Path], tmp_path: Path
) -> None:
    """Two processes crash; the third one gets an error that names the runtime, the model and the file to remove."""
    path = light_models["squeezenet"]
    model = read_model(path)
    assert _crash(path, tmp_path) < 0
    assert _crash(path, tmp_path) < 0
    with pytest.raises(LoweringError, match=rf"ended 2 times while .* lowered {model.name}.*: remove") as caught:
        lower_cached(FakeRuntime(), model, "all", tmp_path)
    found = re.search(r"remove (\S+)", str(caught.value))
    assert found is not None
    Path(found[1]).unlink()
    assert lower_cached(FakeRuntime(), model, "all", tmp_path) == FakeRuntime().lower(model, "all")


def test_one_crash_is_forgotten_once_the_model_is_lowered(light_models: dict[str, Path], tmp_path: Path) -> None:
    """A process may have been killed for another reason: the next one lowers the model, and leaves nothing behind."""
    path = light_models["squeezenet"]
    assert _crash(path, tmp_path) < 0
    lower_cached(FakeRuntime(), read_model(path), "all", tmp_path)
    assert not list(tmp_path.rglob("*.crashes"))


def test_errors_and_living_processes_are_no_crashes(tmp_path: Path) -> None:
    """Only processes that do not exist any more have crashed, and an exception leaves no trace."""
    file = tmp_path / "new" / "of.crashes"
    for _ in range(3):
        with pytest.raises(KeyError), refusing_after_crashes(file, "x ran y"):
            raise KeyError
    file.write_text(f"{os.getppid()}\n" * 5)
    with refusing_after_crashes(file, "x ran y"):
        pass
    assert file.read_text().split() == [str(os.getppid())] * 5
    assert file.read_text().split() == [str(os.getppid())] * 5


def test_a_damaged_file_protects_from_nothing(tmp_path: Path) -> None:
    """What is no list of numbers does not keep a model from being lowered."""
    file = tmp_path / "of.crashes"
    file.write_text("?")
    with refusing_after_crashes(file, "x ran y"):
        pass
    assert not file.exists()
