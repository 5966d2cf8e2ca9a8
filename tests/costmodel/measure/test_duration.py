"""Estimated measuring time, compared with benches in simulated time."""

from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.measure.duration import estimated_group_seconds
from costmodel.measure.groups import Group
from costmodel.measure.protocol import Protocol
from costmodel.store.store import Store
from tests.fakes import FakeRuntime, elementwise, fake_bench

latencies = st.lists(st.floats(1.0, 1e6), min_size=1, max_size=20)


@given(latencies, st.integers(0, 1 << 30), st.integers(0, 1 << 26))
def test_more_to_measure_takes_longer(latencies_us: list[float], weights_bytes: int, evicted_bytes: int) -> None:
    """More networks, weights or memory traffic increase the measuring time."""
    protocol = Protocol()
    seconds = estimated_group_seconds(latencies_us, weights_bytes, evicted_bytes, protocol)
    assert seconds > 0
    assert estimated_group_seconds(latencies_us, 2 * weights_bytes + 1, evicted_bytes, protocol) > seconds


def test_what_is_slow_has_few_passes() -> None:
    """From half a minute on, a network gets the protocol's smallest number of laps."""
    protocol = Protocol()
    assert 30 < estimated_group_seconds([6e6], 0, 0, protocol) < 60
    assert 180 < estimated_group_seconds([30e6], 0, 0, protocol) < 210


@pytest.mark.parametrize("size", [100_000, 1_000_000, 10_000_000])
def test_a_bench_takes_no_longer(tmp_path: Path, size: int) -> None:
    """A bench with times that agree takes at most the estimated time."""
    runtime = FakeRuntime(overhead_us=2.0)
    sequences = [elementwise(1, size + number) for number in range(8)]
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    with fake_bench(store, runtime, protocol=Protocol()) as bench:
        report = bench.run([Group("all", tuple(sequences), footprint_bytes=0)])
    store.close()
    assert report.measured == 8
    expected = estimated_group_seconds([runtime.cost_us(sequence) for sequence in sequences], 0, 0, Protocol())
    assert expected / 2 < report.seconds < expected
