"""Latencies that users saw, and what they say of predictions."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.drift import Observation, Observations, drift_of
from costmodel.errors import StoreError

SEEN = Observation(
    system="made.up", model="mine", digest="sha256:1", latency_us=110.0, runs=None, predicted_us=100.0,
    interval_us=(90.0, 112.0), version="v1", observed_at="2026-11-21T12:00:00+00:00",
)  # fmt: skip


@pytest.fixture
def observations(tmp_path: Path) -> Observations:
    """In a store of their own."""
    return Observations(f"sqlite:///{tmp_path / 'store.db'}")


def test_what_is_put_is_found(observations: Observations) -> None:
    """The newest first, of the system that was asked about only."""
    second = replace(SEEN, latency_us=95.0, runs=7)
    observations.put([SEEN, second, replace(SEEN, system="other")])
    assert observations.recent("made.up") == [second, SEEN]
    assert observations.recent("made.up", most=1) == [second]
    assert observations.systems() == ["made.up", "other"]
    assert observations.count("made.up") == 2
    assert observations.drift("nowhere").ratio is None
    observations.put([])
    observations.close()


def test_a_store_that_was_made_before_there_were_observations_gains_them(tmp_path: Path) -> None:
    """Its measurements stay."""
    import sqlite3

    from costmodel.store import Store

    url = f"sqlite:///{tmp_path / 'store.db'}"
    Store(url).close()
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("DROP TABLE observations")
    Observations(url).put([SEEN])
    assert Observations(url).count("made.up") == 1


def test_all_are_stored_or_none(observations: Observations) -> None:
    """A row that the database refuses takes the others with it."""
    with pytest.raises(StoreError):
        observations.put([SEEN, replace(SEEN, version=None)])  # type: ignore[arg-type]
    assert observations.count("made.up") == 0


def test_drift_is_told_from_noise() -> None:
    """By the typical ratio over models, and from enough observations only."""
    assert not drift_of("made.up", [SEEN] * 30).drifted
    slower = replace(SEEN, latency_us=130.0)
    assert drift_of("made.up", [slower] * 30).drifted
    assert not drift_of("made.up", [slower] * 3).drifted
    found = drift_of("made.up", [slower, SEEN])
    assert found.error == pytest.approx(0.2)
    assert found.covered == 0.5
    assert found.latest_at == SEEN.observed_at


def test_what_is_no_number_says_nothing() -> None:
    """Whoever wrote it into the store."""
    odd = [replace(SEEN, latency_us=5e-324), replace(SEEN, predicted_us=0.0), replace(SEEN, latency_us=0.0)]
    assert drift_of("made.up", [*odd, SEEN]) == drift_of("made.up", [SEEN])
    assert drift_of("made.up", odd).ratio is None


def test_a_model_that_is_seen_a_thousand_times_is_one_model() -> None:
    """Three models that are as predicted outweigh it."""
    often = [replace(SEEN, latency_us=300.0, digest="sha256:often")] * 1000
    others = [replace(SEEN, latency_us=101.0, digest=f"sha256:{n}") for n in range(3)]
    found = drift_of("made.up", often + others)
    assert found.models == 4
    assert found.ratio == pytest.approx(1.01)
    assert not found.drifted


@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=20), st.floats(0.1, 10))
def test_machines_that_are_slower_by_a_factor_drift_by_it(latencies_us: list[float], factor: float) -> None:
    """Whatever the models are."""
    seen = [
        replace(SEEN, digest=f"sha256:{place}", predicted_us=us, latency_us=factor * us)
        for place, us in enumerate(latencies_us)
    ]
    assert drift_of("made.up", seen).ratio == pytest.approx(factor)
