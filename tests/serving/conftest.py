"""Fixtures on the synthetic store of `tests/synthetic.py`, built once a session."""

import pytest

from costmodel.paths import Home
from tests.synthetic import trained_home


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a filled store and a champion; read-only."""
    return trained_home(tmp_path_factory.getbasetemp() / "trained-home")
