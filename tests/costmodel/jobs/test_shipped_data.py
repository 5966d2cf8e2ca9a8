"""Shipped data: which systems a folder holds, and importing one when it is needed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import ModelProto

from costmodel.errors import DataFileError
from costmodel.jobs.shipped_data import import_shipped, shipped_systems
from costmodel.onnx_io.model import read_model
from costmodel.store.parquet import read_results
from costmodel.store.store import Store
from tests.fakes import FakeRuntime, fake_system
from tests.reproduced import TEXTS
from tests.shipped import BASE, put_shipped_data


@pytest.fixture
def folder(tmp_path: Path, parse: Callable[..., ModelProto]) -> Path:
    """A folder of shipped data."""
    graphs = {name: FakeRuntime().lower(read_model(parse(text)), "all") for name, text in TEXTS.items()}
    put_shipped_data(tmp_path / "shipped", graphs)
    return tmp_path / "shipped"


def test_a_system_has_the_files_that_regressors_are_trained_on(folder: Path) -> None:
    """Systems are found by the headers of files; files for experiments do not belong to them."""
    training = tuple(folder / f"{BASE}{ending}.parquet" for ending in ("-training-2-more", "-training", ""))
    assert shipped_systems(folder) == {BASE: training}


def test_the_checkout_ships_systems_for_one_and_two_threads() -> None:
    """By default the systems are those of the checkout's data folder."""
    systems = shipped_systems()
    two_threads = "amd-epyc-zen5-2c-ort1.31-2t"
    assert {path.name for path in systems[two_threads]} == {
        f"{two_threads}{ending}.parquet"
        for ending in ("", *(f"-training{part}" for part in ("", "-2", "-3", "-4", "-dlbricks", "-random", "-timm")))
    }
    assert len(systems["amd-epyc-zen5-2c-ort1.31-1t"]) == 14


@pytest.mark.parametrize("path", [path for paths in shipped_systems().values() for path in paths], ids=lambda p: p.stem)
def test_every_shipped_file_can_be_imported_and_added_to(path: Path) -> None:
    """All records of the checkout's data are valid, and no system has settings that this version does not know."""
    results = read_results(path)
    assert results.measurements
    assert not results.system.unknown


def test_a_system_is_imported_when_it_is_first_needed(folder: Path, store: Store) -> None:
    """All files of the system are imported together, once."""
    assert import_shipped(store, BASE, folder)
    assert {model.name for model in store.models()} == {"deep", "wide"}
    assert store.system(BASE).capabilities == {"layer_us": 1.5}
    latencies = store.latencies_us(BASE)
    assert {model.whole for model in store.models()} <= latencies.keys()
    assert not import_shipped(store, BASE, folder)
    assert store.latencies_us(BASE) == latencies


def test_a_system_that_the_store_knows_is_left_as_it_is(folder: Path, store: Store) -> None:
    """A system of the same name that was measured here gets no measurement of the shipped one."""
    store.put_system(fake_system(BASE))
    assert not import_shipped(store, BASE, folder)
    assert store.models() == []


def test_a_system_that_is_not_shipped_is_not_imported(folder: Path, store: Store) -> None:
    """A name that no shipped file has leaves the store as it is."""
    assert not import_shipped(store, "other", folder)
    assert store.systems() == {}


def test_a_broken_file_is_an_error_that_names_it(folder: Path, store: Store) -> None:
    """A file that is no export is named, and nothing is imported."""
    (folder / "broken.parquet").write_bytes(b"hello")
    with pytest.raises(DataFileError, match=r"broken\.parquet"):
        import_shipped(store, BASE, folder)
    assert store.systems() == {}
