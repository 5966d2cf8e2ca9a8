"""The made-up world of `tests/synthetic.py`, built once a session."""

import pytest

from costmodel.home import Home
from tests.synthetic import trained_home


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a filled store and a champion; not to be changed."""
    return trained_home(tmp_path_factory.getbasetemp() / "trained-home")
