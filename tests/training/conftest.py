"""The made-up world of `tests/synthetic.py` and what training sees of it; built once a session."""

import os

import pytest

from costmodel.home import Home
from costmodel.store import Store
from costmodel.training.dataset import Dataset, load_dataset
from tests.synthetic import SYSTEM, trained_home

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a filled store and a champion; not to be changed."""
    return trained_home(tmp_path_factory.getbasetemp() / "trained-home")


@pytest.fixture(scope="session")
def store(trained: Home) -> Store:
    """The filled store; not to be changed."""
    return Store(trained.store_url)


@pytest.fixture(scope="session")
def dataset(store: Store) -> Dataset:
    """What training sees of it."""
    return load_dataset(store, SYSTEM.name)
