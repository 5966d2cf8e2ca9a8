"""The jobs adapt and suggest in simulated time, on a fake runtime with synthetic layer costs."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.errors import UnknownSystemError
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.adaptation import AdaptReport, Point, adapt
from costmodel.jobs.base_systems import load_bases
from costmodel.jobs.decomposed_models import measurement_groups
from costmodel.jobs.suggestion import suggest
from costmodel.onnx_io.model import Model
from costmodel.paths import Home
from costmodel.runtimes.base import get_runtime
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from costmodel.training.artefact import champion_of, load_bundle
from tests.fakes import QUICK, FakeRuntime, fake_sessions, fake_system
from tests.synthetic import HELD_BACK, MEASURED, SYSTEM, copied, corpus, made_up_us, trained_home

NEW = "made.new"
FACTOR = 2.5


class _Runtime(FakeRuntime):
    """A fake runtime that is 2.5 times slower than the base, and 5 times for convolutions."""

    def cost_us(self, sequence: LayerSequence) -> float:
        """Returns the sum of the layers' costs, so that the call overhead probe has a cost too."""
        slow = 2 if "Conv" in sequence.kind else 1
        return FACTOR * slow * made_up_us(sequence)

    def lower(self, model: Model, level: str) -> LayerGraph:
        """Returns the layers that ONNX Runtime executes, as in the store of the base."""
        return get_runtime().lower(model, level)


@pytest.fixture
def runtime() -> _Runtime:
    """The fake runtime of the new system."""
    return _Runtime()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with the measured base; read-only."""
    return trained_home(tmp_path_factory.getbasetemp() / "trained-home")


@pytest.fixture
def home(trained: Home, tmp_path: Path) -> Home:
    """A copy of that home."""
    return copied(trained, tmp_path / "home")


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    """The store of the copy."""
    store = Store(home.store_url)
    yield store
    store.close()


def _adapt(store: Store, home: Home, runtime: _Runtime, budget_s: float, **changed: object) -> AdaptReport:
    system = fake_system(NEW, runtime=runtime, capabilities=SYSTEM.capabilities, host=SYSTEM.host)
    options = {
        "budget_s": budget_s,
        "protocol": QUICK,
        "clock_s": lambda: runtime.clock() / 1e9,
        "bench": fake_sessions(runtime),
        **changed,
    }
    return adapt(store, system, runtime, [SYSTEM.name], home.bundles, **options)  # type: ignore[arg-type]


def test_with_time_everything_is_measured(store: Store, home: Home, runtime: _Runtime) -> None:
    """Without a time limit everything is measured, errors are small, and the final regressor knows the new system."""
    points: list[Point] = []
    report = _adapt(store, home, runtime, 3600, on_point=points.append)
    assert report.reason == "complete"
    assert points == report.curve
    assert [point.seconds for point in points] == sorted(point.seconds for point in points)
    assert (points[0].measured, points[0].share, points[0].expected_error) == (0, 0.0, None)
    assert points[-1].share == pytest.approx(1)
    assert points[-1].expected_error is not None
    assert points[-1].expected_error < 0.2
    assert champion_of(home.bundles, NEW) == report.path
    facts = load_bundle(report.path).facts
    assert (facts["bases"], facts["measured"]) == ([SYSTEM.name], points[-1].measured)
    new = corpus(home.cache)[HELD_BACK[0]]
    estimate = Predictor.load(store, home.bundles, NEW).estimate(new.decomposition)
    truth = sum(runtime.cost_us(segment.sequence) for segment in new.decomposition.segments)
    assert estimate.latency_us == pytest.approx(truth, rel=0.15)
    again = _adapt(store, home, runtime, 3600)
    assert (again.reason, again.bench.measured, len(again.curve)) == ("complete", 0, 1)


def test_a_budget_ends_measuring(store: Store, home: Home, runtime: _Runtime) -> None:
    """When the budget is spent, measurements are kept and a regressor is trained."""
    report = _adapt(store, home, runtime, 0.05)
    assert report.reason == "budget"
    assert 0 < report.bench.measured < 200
    assert report.bench.measured == len(store.latencies_us(NEW))
    document = report.to_dict()
    assert document["ended"] == "budget"
    assert document["predictor"]["version"] == report.path.name
    assert 0 < document["curve"][-1]["measured"] <= report.bench.measured


def test_an_interrupt_ends_measuring_only(store: Store, home: Home, runtime: _Runtime) -> None:
    """Ctrl-C ends measuring only, and a regressor is trained."""

    def enough(point: Point) -> None:
        if point.measured:
            raise KeyboardInterrupt

    report = _adapt(store, home, runtime, 3600, on_point=enough)
    assert report.reason == "interrupted"
    assert champion_of(home.bundles, NEW) == report.path


def test_some_models_are_measured_whole(store: Store, home: Home, runtime: _Runtime) -> None:
    """Some whole models are measured from stored sequences, without their files, to check the estimates."""
    _adapt(store, home, runtime, 3600)
    wholes = {corpus(home.cache)[name].whole.signature for name in MEASURED}
    assert wholes & store.latencies_us(NEW).keys()


def test_what_does_not_run_is_not_tried_twice(store: Store, home: Home, runtime: _Runtime) -> None:
    """A sequence that fails is tried once and reported."""
    broken = corpus(home.cache)[MEASURED[0]].decomposition.segments[0].sequence.signature
    runtime.broken.add(broken)
    report = _adapt(store, home, runtime, 3600)
    assert report.reason == "complete"
    assert set(report.bench.failed) == {broken}
    assert runtime.opened.count(broken) == 1


def test_a_target_says_which_models_count(store: Store, home: Home, runtime: _Runtime) -> None:
    """A target, even one that the base lacks, selects the models."""
    item = corpus(home.cache)[HELD_BACK[0]]
    report = _adapt(store, home, runtime, 3600, target=HELD_BACK[0], cache=home.cache)
    assert report.reason == "complete"
    assert set(store.latencies_us(NEW)) == set(item.decomposition.unique)


def test_a_new_release_starts_from_the_old_one(store: Store, home: Home) -> None:
    """A system of an older release of the same runtime is a base, and what a comparison measured counts as measured."""
    runtime = _Runtime(version="1.32.0", name=SYSTEM.runtime)
    system = fake_system(NEW, runtime=runtime, capabilities=SYSTEM.capabilities, host=SYSTEM.host)
    assert (system.runtime_version, SYSTEM.runtime_version) == ("1.32.0", "1.31.1")
    bases, _ = load_bases(store, system, home.root)
    assert bases == [SYSTEM.name]
    item = corpus(home.cache)[MEASURED[0]]
    with fake_sessions(runtime)(store, system, runtime) as session:
        session.run(replace(group, whole=None) for group in measurement_groups(item, (1,)))
    report = _adapt(store, home, runtime, 0.05)
    assert report.bases == (SYSTEM.name,)
    assert report.curve[0].measured >= len(item.decomposition.unique)
    assert champion_of(home.bundles, NEW) == report.path


class TestSuggesting:
    """The list of `costmodel bench --suggest`."""

    def test_nothing_is_measured_and_the_best_come_first(self, store: Store, runtime: _Runtime) -> None:
        """The requested number of unmeasured sequences is listed, best first, without measuring."""
        system = replace(SYSTEM, name=NEW)
        before = len(store.latencies_us(SYSTEM.name))
        found = suggest(store, system, 10)
        assert len({of.signature for of in found}) == 10
        worth = [of.share * of.uncertainty / of.seconds for of in found]
        assert worth == sorted(worth, reverse=True)
        assert all(of.models >= 1 and of.latency_us > 0 for of in found)
        assert (len(store.latencies_us(SYSTEM.name)), runtime.opened) == (before, [])

    def test_what_is_measured_is_not_suggested(self, store: Store) -> None:
        """Nothing is suggested for the base, where everything is measured."""
        assert suggest(store, store.system(SYSTEM.name), 10) == []

    def test_a_system_like_no_other_has_to_be_measured_first(self, tmp_path: Path) -> None:
        """Without any measured system, one sentence says to measure first."""
        empty = Store(f"sqlite:///{tmp_path / 'empty.db'}")
        with pytest.raises(UnknownSystemError, match="costmodel bench"):
            suggest(empty, fake_system(NEW), 10)
