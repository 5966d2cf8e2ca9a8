"""Runtimes and their entry points."""

import sys

import pytest

from costmodel.errors import CostModelError
from costmodel.runtimes.base import DEFAULT_RUNTIME, LEVELS, Runtime, get_runtime, installed_runtimes


def test_the_default_runtime_is_found_by_its_entry_point() -> None:
    """ONNX Runtime is found by its entry point, like any other runtime."""
    runtime = get_runtime()
    assert isinstance(runtime, Runtime)
    assert runtime.name == DEFAULT_RUNTIME
    assert runtime.version
    assert runtime.fingerprint()


def test_an_unknown_runtime_is_answered_with_the_known_ones() -> None:
    """An unknown runtime is refused with the installed ones."""
    with pytest.raises(CostModelError, match="there is no runtime 'tensorrt': choose one of onnxruntime"):
        get_runtime("tensorrt")


def test_source_code_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the metadata of the package, which names its runtimes, the error says how to install it."""
    monkeypatch.setattr("costmodel.runtimes.base.entry_points", lambda group: ())
    with pytest.raises(CostModelError, match="costmodel is not installed here: run `pip install"):
        get_runtime()


def test_levels_go_from_none_to_all() -> None:
    """The optimisation levels have the documented names."""
    assert LEVELS == ("none", "basic", "extended", "all")


def test_a_runtime_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime of an extra that is not installed is refused with the line that installs it, and is not offered."""
    monkeypatch.setitem(sys.modules, "openvino", None)
    for name in [name for name in sys.modules if name.startswith("costmodel.runtimes.openvino")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(CostModelError, match=r"openvino is not installed .*: pip install .* '\.\[openvino\]'"):
        get_runtime("openvino")
    assert installed_runtimes()[0] == DEFAULT_RUNTIME
    assert "openvino" not in installed_runtimes()
