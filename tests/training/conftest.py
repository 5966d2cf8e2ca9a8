"""Fixtures on the synthetic store of `tests/synthetic.py` and its data set, built once a session."""

import os
from collections.abc import Iterator

import pytest

from costmodel.paths import Home
from costmodel.store.store import Store
from costmodel.training.dataset import Dataset, load_dataset
from tests.synthetic import SYSTEM, trained_home

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a filled store and a champion; read-only."""
    return trained_home(tmp_path_factory.getbasetemp() / "trained-home")


@pytest.fixture(scope="session")
def store(trained: Home) -> Iterator[Store]:
    """The filled store; read-only."""
    store = Store(trained.store_url)
    yield store
    store.close()


@pytest.fixture(scope="session")
def dataset(store: Store) -> Dataset:
    """The data set of the synthetic system."""
    return load_dataset(store, SYSTEM.name)
