"""Suspect sequences are measured again with the layers of their group, in simulated time."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from costmodel.jobs.bench import bench_target
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.rechecking import recheck
from costmodel.store.store import Store
from tests.fakes import FakeRuntime, fake_sessions, fake_system, measured

# A chain of matrix products of different widths, with as many different layers as a data set needs.
WIDTHS = range(100, 126)
LAYERS = "\n".join(f"v{n + 1} = MatMul(v{n}, w{n})" for n in range(len(WIDTHS) - 1))
TEXT = f"(float[2,{WIDTHS[0]}] v0) => (float[2,{WIDTHS[-1]}] v{len(WIDTHS) - 1}) {{ {LAYERS} }}"


@pytest.fixture
def benched(
    store: Store, runtime: FakeRuntime, tmp_path: Path, parse: Callable[..., ModelProto]
) -> Callable[[], tuple[dict[str, frozenset[str]], BenchReport]]:
    """Benchmarks a model with its samples once, and returns a function that rechecks the suspects."""
    weights = {f"w{n}": (width, WIDTHS[n + 1]) for n, width in enumerate(WIDTHS[:-1])}
    path = tmp_path / "chain.onnx"
    onnx.save(parse(TEXT, weights=weights), path)
    system, cache, sessions = fake_system(runtime=runtime), tmp_path / "cache", fake_sessions(runtime)
    report = bench_target(store, system, runtime, str(path), cache, samples=4, repeated_sequences=0, bench=sessions)
    assert not report.failed
    return lambda: recheck(store, system, runtime, str(path), cache, bench=sessions)


def _made(store: Store) -> dict[str, int]:
    """Returns the number of measurements of each signature."""
    made: dict[str, int] = {}
    for measurement in store.measurements("fake-1"):
        made[measurement.signature] = made.get(measurement.signature, 0) + 1
    return made


@pytest.mark.parametrize("of_a_sample", [False, True], ids=["a layer", "a sample"])
def test_only_what_looks_wrong_is_measured_again(
    benched: Callable[[], tuple[dict[str, frozenset[str]], BenchReport]], store: Store, of_a_sample: bool
) -> None:
    """Only suspects get new measurements, until the median of three is right; the others are context only."""
    before = store.latencies_us("fake-1")
    wrong = sorted(store.samples())[0] if of_a_sample else store.models()[0].segments[7].signature
    sequence = store.sequences([wrong])[wrong]
    store.put_measurement("fake-1", measured(sequence, (9 * before[wrong],) * 3))
    made = _made(store)
    found, report = benched()
    assert "spread" in found[wrong]
    assert (report.measured, report.left, report.failed) == (len(found), 0, {})
    after = _made(store)
    assert {signature for signature in after if after[signature] > made[signature]} == set(found)
    assert store.latencies_us("fake-1")[wrong] == pytest.approx(before[wrong])
    assert wrong not in benched()[0]


def test_where_nothing_looks_wrong_nothing_is_measured(
    benched: Callable[[], tuple[dict[str, frozenset[str]], BenchReport]], store: Store
) -> None:
    """Without suspects nothing is measured."""
    before = _made(store)
    found, report = benched()
    assert (found, report.measured) == ({}, 0)
    assert _made(store) == before
