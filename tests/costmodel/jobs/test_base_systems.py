"""Which systems a system can be compared with, in the store and in the shipped data."""

from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.errors import UnknownSystemError
from costmodel.jobs.base_systems import comparable_systems, load_bases
from costmodel.paths import Home
from costmodel.runtimes.base import RuntimeSettings
from costmodel.store.parquet import export_results, read_results
from costmodel.store.store import Store
from tests.synthetic import SYSTEM, trained_home

NEW = replace(SYSTEM, name="made.new", capabilities={})


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a measured system; read-only."""
    return trained_home(tmp_path_factory.getbasetemp() / "trained-home")


def test_systems_with_the_same_settings_come_first() -> None:
    """Runtime and level must be the same, and the number of threads too if there is such a system."""
    two = replace(SYSTEM, name="two", settings=RuntimeSettings(threads=2))
    none = replace(SYSTEM, name="none", settings=RuntimeSettings(level="none"))
    other = replace(SYSTEM, name="other", runtime="openvino")
    assert comparable_systems([NEW, other, none, two, SYSTEM], NEW) == [SYSTEM]
    assert comparable_systems([NEW, other, none, two], NEW) == [two]
    assert comparable_systems([NEW, other, none], NEW) == []


def test_shipped_systems_are_imported(trained: Home, tmp_path: Path) -> None:
    """A shipped system is imported once, and from then on it is in the store."""
    export_results(Store(trained.store_url), SYSTEM.name, tmp_path / f"{SYSTEM.name}.parquet", with_models=True)
    store = Store(f"sqlite:///{tmp_path / 'new.db'}")
    assert load_bases(store, NEW, tmp_path) == ([SYSTEM.name], [SYSTEM.name])
    assert store.latencies_us(SYSTEM.name).keys() == Store(trained.store_url).latencies_us(SYSTEM.name).keys()


def test_systems_that_the_caller_does_not_choose_are_not_imported(trained: Home, tmp_path: Path) -> None:
    """The caller chooses among the systems, and without any the error says what to do."""
    export_results(Store(trained.store_url), SYSTEM.name, tmp_path / f"{SYSTEM.name}.parquet")
    store = Store(f"sqlite:///{tmp_path / 'new.db'}")
    with pytest.raises(UnknownSystemError, match="costmodel bench"):
        load_bases(store, NEW, tmp_path, choose=lambda systems: systems[1:])
    assert store.systems() == {}


def test_a_system_with_few_measurements_is_no_base(tmp_path: Path) -> None:
    """A system on which hardly anything is measured tells nothing about another one."""
    store = Store(f"sqlite:///{tmp_path / 'new.db'}")
    store.put_system(SYSTEM)
    with pytest.raises(UnknownSystemError):
        load_bases(store, NEW, tmp_path)


def test_a_choice_sees_systems_with_other_threads(trained: Home, tmp_path: Path) -> None:
    """By default only systems with the same number of threads are bases; who chooses sees all with the runtime."""
    results = read_results(_exported(trained, tmp_path))
    store = Store(f"sqlite:///{tmp_path / 'new.db'}")
    for threads in (1, 2):
        named = replace(SYSTEM, name=f"made.{threads}", settings=RuntimeSettings(threads))
        store.put_results(replace(results, system=named))
    new = replace(NEW, settings=RuntimeSettings(2))
    assert load_bases(store, new, tmp_path / "none")[0] == ["made.2"]
    assert load_bases(store, new, tmp_path / "none", choose=lambda systems: systems)[0] == ["made.1", "made.2"]


def _exported(trained: Home, folder: Path) -> Path:
    path = folder / f"{SYSTEM.name}.parquet"
    export_results(Store(trained.store_url), SYSTEM.name, path)
    return path
