"""Benchmarking within a budget, in simulated time."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from costmodel.errors import SuiteError
from costmodel.jobs.budget import Plan, bench_plan, plan_bench
from costmodel.partition.decomposition import Decomposition, Segment
from costmodel.partition.suite import write_suite
from costmodel.store.store import Store
from tests.fakes import FakeRuntime, elementwise, fake_sessions, fake_system

CHAIN = "(float[2,3] x) => (float[2,3] y) { a = Relu(x) \n b = Tanh(a) \n c = Relu(b) \n d = Tanh(c) \n y = Exp(d) }"
SLOW = "(float[2000,30000] x) => (float[2000,30000] y) { a = Neg(x) \n b = Neg(a) \n c = Neg(b) \n y = Neg(c) }"
PLENTY_S = 3600.0


@pytest.fixture
def folder(tmp_path: Path, parse: Callable[..., ModelProto]) -> Path:
    """A fast model, and a slow one whose layers are all equal."""
    folder = tmp_path / "models"
    folder.mkdir()
    onnx.save(parse(CHAIN), folder / "chain.onnx")
    onnx.save(parse(SLOW), folder / "slow.onnx")
    return folder


@pytest.fixture
def plan(store: Store, runtime: FakeRuntime, folder: Path, tmp_path: Path) -> Callable[[float], Plan]:
    """Function that plans both models within a budget."""

    def plan(budget_s: float) -> Plan:
        return plan_bench(
            store,
            fake_system(runtime=runtime),
            runtime,
            str(folder),
            tmp_path / "cache",
            tmp_path,
            budget_s=budget_s,
            bench=fake_sessions(runtime),
        )

    return plan


@pytest.fixture
def measured(store: Store, runtime: FakeRuntime) -> Callable[[Plan], set[str]]:
    """Function that carries out a plan and returns what it measured."""

    def measured(plan: Plan) -> set[str]:
        before = set(store.latencies_us("fake-1"))
        report = bench_plan(store, fake_system(runtime=runtime), runtime, plan, bench=fake_sessions(runtime))
        new = set(store.latencies_us("fake-1")) - before
        assert (report.measured, report.left, report.failed) == (len(new), 0, {})
        return new

    return measured


def granularities(plan: Plan) -> dict[str, int | None]:
    """Returns the granularity to measure for each model; None for nothing."""
    return {m.model: m.option.granularity if m.option and m.group else None for m in plan.models}


def test_with_time_enough_models_are_run_as_they_are(
    plan: Callable[[float], Plan], measured: Callable[[Plan], set[str]], store: Store
) -> None:
    """With enough time only whole models are measured, and a second plan has nothing left to do."""
    first = plan(PLENTY_S)
    assert granularities(first) == {"chain": 5, "slow": 4}
    assert all(planned.whole for planned in first.models)
    assert measured(first) == {model.whole for model in store.models()}
    again = plan(0.0)
    assert granularities(again) == {"chain": None, "slow": None}
    assert [(m.option.seconds, m.least_s) for m in again.models if m.option] == [(0.0, 0.0)] * 2
    assert measured(again) == set()


def test_without_time_nothing_is_measured(plan: Callable[[float], Plan], measured: Callable[[Plan], set[str]]) -> None:
    """Without time or regressor nothing is planned or measured, and the least needed time is stated."""
    nothing = plan(0.0)
    assert [(planned.option, planned.group) for planned in nothing.models] == [(None, None)] * 2
    assert all(planned.least_s > 0 for planned in nothing.models)
    assert measured(nothing) == set()


def test_what_is_planned_fits(plan: Callable[[float], Plan]) -> None:
    """The stated seconds of a plan fit every budget, and what fits is not refused."""
    least = min(planned.least_s for planned in plan(0.0).models)
    for factor in (0.5, 1, 1.5, 2, 5, 20, 100):
        found = plan(factor * least)
        assert sum(planned.option.seconds for planned in found.models if planned.option) <= factor * least
        assert any(planned.option for planned in found.models) == (factor >= 1)


def test_a_slow_model_of_equal_layers_is_measured_in_layers(
    plan: Callable[[float], Plan], measured: Callable[[Plan], set[str]], runtime: FakeRuntime, store: Store
) -> None:
    """Where a whole run would take too long, the single layer is measured; the fast model is run whole."""
    options = {planned.model: planned.least_s for planned in plan(0.0).models}
    enough = plan(options["slow"] + 1.1 * options["chain"])
    assert granularities(enough) == {"chain": 5, "slow": 1}
    new = measured(enough)
    chain, slow = store.models()
    assert new == {chain.whole, slow.segments[0].signature}
    assert (slow.granularity, len(slow.segments)) == (1, 4)
    assert "slow" not in runtime.opened


def test_a_model_that_takes_long_leaves_the_others_their_time(
    plan: Callable[[float], Plan], runtime: FakeRuntime, store: Store, folder: Path, parse: Callable[..., ModelProto]
) -> None:
    """A model's laps end when its share of the budget is spent, even if its times do not agree yet."""
    (folder / "chain.onnx").unlink()
    onnx.save(parse(SLOW.replace("30000", "30001")), folder / "slower.onnx")
    found = plan(PLENTY_S)
    shares = [replace(m, option=replace(m.option, seconds=1.4)) for m in found.models if m.option]
    runtime.noise = lambda run: 1.0 + 0.5 * (run % 2)  # so that each would take 3 seconds
    limited = replace(found, models=tuple(shares), budget_s=2.8)
    report = bench_plan(store, fake_system(runtime=runtime), runtime, limited, bench=fake_sessions(runtime))
    assert (report.measured, report.unstable, report.left) == (2, 2, 0)


def test_one_bad_model_does_not_stop_the_others(
    plan: Callable[[float], Plan], runtime: FakeRuntime, store: Store, folder: Path
) -> None:
    """A bad model is not planned, and its reason is in the report."""
    (folder / "bad.onnx").write_bytes(b"no model")
    found = plan(PLENTY_S)
    assert set(granularities(found)) == {"chain", "slow"}
    report = bench_plan(store, fake_system(runtime=runtime), runtime, found, bench=fake_sessions(runtime))
    assert set(report.failed) == {"bad"}


def test_a_benchmark_suite_is_refused(store: Store, runtime: FakeRuntime, tmp_path: Path) -> None:
    """A benchmark suite is refused before anything is measured, because its granularity is fixed."""
    sequence = elementwise(5, 5)
    write_suite(tmp_path / "suite", [Decomposition("m", 1, (Segment(sequence, ("relu",), ()),))])
    with pytest.raises(SuiteError, match="cut already"):
        plan_bench(
            store, fake_system(runtime=runtime), runtime, str(tmp_path / "suite"), tmp_path, tmp_path, budget_s=1.0
        )
    assert store.systems() == {}
