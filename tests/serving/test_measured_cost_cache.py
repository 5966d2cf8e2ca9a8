"""The cache of measured costs equals the store, and reads it only after it was written to."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from costmodel.estimate.cost import Cost
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.measurement import Timing
from costmodel.serving.measured_cost_cache import MeasuredCostCache
from costmodel.store.store import Store
from tests.fakes import elementwise
from tests.synthetic import SYSTEM, made_up_measurement


class CountingStore(Store):
    """A store that counts reads."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"sqlite:///{path}")
        self.read: list[set[str]] = []

    def timings(self, system: str, signatures: Iterable[str] | None = None) -> dict[str, Timing]:
        """Count the read and return the timings."""
        self.read.append(set(signatures or ()))
        return super().timings(system, signatures)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of the store."""
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> CountingStore:
    """A store with the synthetic system."""
    store = CountingStore(path)
    store.put_system(SYSTEM)
    return store


def by_signature(sequences: Iterable[LayerSequence]) -> dict[str, LayerSequence]:
    """Returns measured costs by signature."""
    return {sequence.signature: sequence for sequence in sequences}


ONE, OTHER = elementwise(1, 8), elementwise(1, 9)


def measure(store: Store, sequence: LayerSequence, latency_us: float) -> None:
    """Store one synthetic measurement."""
    store.put_measurement(SYSTEM.name, made_up_measurement(sequence.signature, latency_us), sequence)


def test_a_store_at_rest_is_read_once(store: CountingStore) -> None:
    """Each signature, measured or not, is read once while the store does not change."""
    measure(store, ONE, 12.0)
    timed = MeasuredCostCache(store, SYSTEM.name)
    first = timed.costs(by_signature([ONE, OTHER]))
    assert first == {ONE.signature: Cost(12.0, first[ONE.signature].interval_us, "measured", "Relu")}
    assert timed.costs(by_signature([ONE, OTHER])) == first
    third = elementwise(1, 10)
    assert timed.costs(by_signature([ONE, third])) == first
    assert store.read == [{ONE.signature, OTHER.signature}, {third.signature}]


def test_writes_of_other_processes_are_noticed_at_once(store: CountingStore) -> None:
    """Measurements and repeats by another connection are visible at once."""
    timed = MeasuredCostCache(store, SYSTEM.name)
    other = Store(store.url)
    assert timed.costs(by_signature([ONE])) == {}
    for latency_us, median_us in [(10.0, 10.0), (30.0, 20.0), (20.0, 20.0)]:
        measure(other, ONE, latency_us)
        assert timed.costs(by_signature([ONE]))[ONE.signature].latency_us == pytest.approx(median_us)


def test_another_file_in_its_place_is_noticed(store: CountingStore, path: Path, tmp_path: Path) -> None:
    """A store file that is replaced by another one is read again."""
    timed = MeasuredCostCache(store, SYSTEM.name)
    assert timed.costs(by_signature([ONE])) == {}
    (tmp_path / "other").mkdir()
    elsewhere = tmp_path / "other" / "store.db"
    other = Store(f"sqlite:///{elsewhere}")
    other.put_system(SYSTEM)
    measure(other, ONE, 7.0)
    other.close()
    os.replace(elsewhere, path)
    assert timed.costs(by_signature([ONE]))[ONE.signature].latency_us == pytest.approx(7.0)
