"""Batches: what one process measures, and how it travels."""

from dataclasses import replace

import pytest

from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.fleet.batches import Batch, BatchResult, batches_of
from costmodel.jobs.fleet.common_set import choose_common_set, machine_spread
from costmodel.jobs.fleet.measuring_process import clean_environment
from costmodel.measure.groups import Group
from tests.fakes import elementwise, fake_system, measured

LAYERS = [elementwise(1, size) for size in range(1, 601)]


def _model(start: int, stop: int) -> Group:
    return Group(f"model{start}", tuple(LAYERS[start:stop]), whole=elementwise(2, start + 1), footprint_bytes=100)


def test_a_large_model_is_cut_and_small_ones_share_a_process() -> None:
    """No batch has more sequences than one host would load at a time, and the whole model is with the first portion."""
    large, *small = [_model(0, 500), *(_model(start, start + 20) for start in range(500, 600, 20))]
    first, second, third = batches_of("a", [large, *small], set())
    assert [len(batch.missing) for batch in (first, second, third)] == [257, 244, 105]
    assert first.groups[0].whole == large.whole
    assert second.groups[0].whole is None
    assert len(third.groups) == 5
    assert third.label == "model500 and 4 more"
    wanted = {s.signature for group in (large, *small) for s in (*group.sequences, group.whole)}
    assert set().union(*(batch.missing for batch in (first, second, third))) == wanted


def test_what_is_measured_runs_as_context_of_its_model_and_nowhere_else() -> None:
    """A model of which something is missing is in a batch as a whole; sequences without a model are not."""
    model, alone = _model(0, 4), Group("suite", tuple(LAYERS[10:14]))
    known = {LAYERS[0].signature, LAYERS[10].signature}
    (batch,) = batches_of("a", [model, alone], known)
    assert [len(group.sequences) for group in batch.groups] == [4, 3]
    assert not batch.missing & known
    assert list(batches_of("a", [model, alone], batch.missing | known)) == []


def test_a_batch_and_its_result_survive_the_journey() -> None:
    """A batch that is read equals the one that was written; its key depends on its system and its sequences."""
    (batch,) = batches_of("a", [_model(0, 4)], set())
    assert Batch.from_bytes(batch.to_bytes()) == batch
    assert Batch.from_bytes(batch.to_bytes()).key == batch.key
    others = [replace(batch, system="b"), replace(batch, missing=frozenset())]
    assert len({batch.key, *(other.key for other in others)}) == 3
    result = BatchResult("m1", fake_system(), (measured(LAYERS[0], [1.5, 2.5]),), BenchReport(measured=1))
    assert BatchResult.from_bytes(result.to_bytes()) == result


def test_machines_are_compared_by_the_common_set_alone() -> None:
    """Only measurements of the common set count, the latest of each machine, and machines that measured all of it."""

    def of(machine: str, place: int, latency_us: float, at: str = "2026-01-01", common: bool = True):
        marks = {"machine": machine, "common_set": common}
        one = measured(LAYERS[place], [latency_us], at=at, kind="model")
        return replace(one, environment=marks)

    slow = [of("m2", place, 11.0) for place in range(3)]
    quick = [of("m1", place, 10.0) for place in range(3)]
    found = machine_spread(
        [*slow, *quick, of("m1", 0, 99.0, common=False), of("m1", 0, 50.0, at="2025-01-01"), of("m3", 0, 70.0)]
    )
    assert found.spread == pytest.approx(0.1)
    assert (set(found.relative_latency), found.sequences) == ({"m1", "m2"}, 3)
    assert machine_spread(quick).spread is None
    assert machine_spread([]).sequences == 0


def test_the_common_set_is_spread_over_the_largest_model() -> None:
    """A dozen sequences, timed as a portion of their model."""
    common = choose_common_set([_model(0, 5), _model(100, 160)])
    assert common is not None
    assert [LAYERS.index(s) for s in common.sequences] == list(range(100, 160, 5))
    assert (common.whole, common.footprint_bytes) == (None, 100)
    assert choose_common_set([]) is None


def test_a_measuring_process_has_no_limits_of_dask() -> None:
    """Limits on threads and memory and the settings of Dask are left out, everything else stays."""
    given = {"OMP_NUM_THREADS": "1", "MALLOC_TRIM_THRESHOLD_": "65536", "DASK_X": "1", "PATH": "/bin", "LANG": "C"}
    assert clean_environment(given) == {"PATH": "/bin", "LANG": "C"}
