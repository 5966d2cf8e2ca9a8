"""Settings of the process that are changed for the duration of a block."""

import gc
import logging
import os

import pytest

from costmodel.process_state import environment_variables, garbage_collection_paused, log_levels


def test_log_levels_are_restored() -> None:
    """Levels hold inside the block and are restored after an error too, also that of the root logger."""
    one, root = logging.getLogger("tests.process_state"), logging.getLogger()
    before = one.level, root.level

    def fail() -> None:
        with log_levels({one.name: logging.ERROR, "": logging.CRITICAL}):
            assert (one.level, root.level) == (logging.ERROR, logging.CRITICAL)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert (one.level, root.level) == before


def test_environment_variables_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables hold inside the block; afterwards they have their old values, or are absent as before."""
    monkeypatch.setenv("TESTS_KNOWN", "old")
    monkeypatch.delenv("TESTS_NEW", raising=False)
    with environment_variables({"TESTS_KNOWN": "new", "TESTS_NEW": "1"}):
        assert (os.environ["TESTS_KNOWN"], os.environ["TESTS_NEW"]) == ("new", "1")
    assert os.environ["TESTS_KNOWN"] == "old"
    assert "TESTS_NEW" not in os.environ


@pytest.mark.parametrize("collecting", [True, False])
def test_the_collection_of_garbage_is_as_it_was(collecting: bool) -> None:
    """It is off inside the block, and afterwards on only if it was before."""
    before = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        with garbage_collection_paused():
            assert not gc.isenabled()
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if before else gc.disable)()
