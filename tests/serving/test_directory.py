"""The identity of a system: it changes with everything that answers depend on."""

from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.serving.directory import identity_of
from costmodel.store.latency_csv import ObservedLatency
from costmodel.store.results import Results
from costmodel.store.store import Store
from costmodel.systems.system import QUIET_PROBE, System
from tests.fakes import elementwise, fake_system, results

ONE = elementwise(1, 8)


def _observed(latency_us: float, at: str) -> Results:
    """Returns one latency of one model, as it is imported."""
    latency = ObservedLatency(1, "mine", latency_us).measurement(ONE.signature, f"2026-{at}T00:00:00.000+00:00")
    return results(fake_system(), [(ONE, latency)])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with one system and one latency of it."""
    store = Store(f"sqlite:///{tmp_path / 'results.db'}")
    store.put_results(_observed(100.0, "01-01"))
    return store


def _identity(store: Store) -> str:
    return identity_of(store, Path("no regressors"), store.system("fake-1"))


def test_replacing_latencies_changes_the_identity(store: Store) -> None:
    """As many latencies as before have the ids of those that they replace, and are others nevertheless."""
    before = _identity(store)
    store.put_results(_observed(900.0, "02-01"), replace_observed=True)
    assert store.latencies_us("fake-1") == {ONE.signature: pytest.approx(900.0)}
    assert _identity(store) != before


@pytest.mark.parametrize(
    "changed",
    [
        replace(fake_system(), settings=replace(fake_system().settings, level="basic")),
        fake_system(capabilities={**fake_system().capabilities, "idle_extra_us": 12.0}),
    ],
)
def test_the_record_of_the_system_is_part_of_the_identity(store: Store, changed: System) -> None:
    """Another level and other effects of idleness change answers."""
    before = _identity(store)
    store.put_system(changed)
    assert _identity(store) != before


def test_times_of_probes_are_not_part_of_the_identity(store: Store) -> None:
    """Each session may find the machine quieter than before, and no answer depends on that."""
    before = _identity(store)
    store.put_system(fake_system(capabilities={**fake_system().capabilities, f"{QUIET_PROBE}memory_us": 1.0}))
    assert _identity(store) == before
