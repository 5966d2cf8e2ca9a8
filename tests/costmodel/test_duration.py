"""How long measuring takes, against benches in imagined time."""

from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.duration import group_s
from costmodel.groups import Group
from costmodel.measurement import Protocol
from costmodel.store import Store
from tests.fakes import FakeRuntime, elementwise, fake_bench

latencies = st.lists(st.floats(1.0, 1e6), min_size=1, max_size=20)


@given(latencies, st.integers(0, 1 << 30), st.integers(0, 1 << 26))
def test_more_to_measure_takes_longer(latencies_us: list[float], weights_bytes: int, swept_bytes: int) -> None:
    """Another network, more weights, more to read."""
    protocol = Protocol()
    seconds = group_s(latencies_us, weights_bytes, swept_bytes, protocol)
    assert seconds > 0
    assert group_s(latencies_us, 2 * weights_bytes + 1, swept_bytes, protocol) > seconds


def test_what_is_slow_has_few_passes() -> None:
    """From half a minute on, no more than the protocol's fewest."""
    protocol = Protocol()
    assert 30 < group_s([6e6], 0, 0, protocol) < 60
    assert 180 < group_s([30e6], 0, 0, protocol) < 210


@pytest.mark.parametrize("size", [100_000, 1_000_000, 10_000_000])
def test_a_bench_takes_no_longer(tmp_path: Path, size: int) -> None:
    """In imagined time, where times agree and nothing is loaded."""
    runtime = FakeRuntime(overhead_us=2.0)
    sequences = [elementwise(1, size + number) for number in range(8)]
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    with fake_bench(store, runtime, protocol=Protocol()) as bench:
        report = bench.run([Group("all", tuple(sequences), footprint_bytes=0)])
    store.close()
    assert report.measured == 8
    expected = group_s([runtime.cost_us(sequence) for sequence in sequences], 0, 0, Protocol())
    assert expected / 2 < report.seconds < expected
