"""Runtimes and their entry points."""

import pytest

from costmodel.errors import CostModelError
from costmodel.runtimes.base import DEFAULT_RUNTIME, LEVELS, Runtime, get_runtime


def test_the_default_runtime_is_found_by_its_entry_point() -> None:
    """ONNX Runtime is found by its entry point, like any other runtime."""
    runtime = get_runtime()
    assert isinstance(runtime, Runtime)
    assert runtime.name == DEFAULT_RUNTIME
    assert runtime.version
    assert runtime.fingerprint()


def test_an_unknown_runtime_is_answered_with_the_known_ones() -> None:
    """An unknown runtime is refused with the installed ones."""
    with pytest.raises(CostModelError, match="no runtime 'tensorrt' is installed: choose one of onnxruntime"):
        get_runtime("tensorrt")


def test_levels_go_from_none_to_all() -> None:
    """The optimisation levels have the documented names."""
    assert LEVELS == ("none", "basic", "extended", "all")
