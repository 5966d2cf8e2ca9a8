"""Fixtures that the tests of several jobs share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from costmodel.store.store import Store
from tests.fakes import FakeRuntime


@pytest.fixture
def runtime() -> FakeRuntime:
    """The fake runtime that all parts of a test share."""
    return FakeRuntime()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    yield store
    store.close()
