"""The job compare_runtimes, with two releases of the fake runtime in simulated time."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from costmodel.errors import CostModelError, HostBusyError, ModelError
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.runtime_comparison.comparison import RuntimeComparison, compare_runtimes
from costmodel.jobs.runtime_comparison.release import LocalRelease, TurnResult
from costmodel.measure.groups import Group
from costmodel.measure.lock import measuring_lock
from costmodel.onnx_io.model import Model
from costmodel.store.parquet import export_results, import_results
from costmodel.store.store import Store
from tests.fakes import FakeRuntime, fake_sessions


@dataclass
class Version(FakeRuntime):
    """A release of the fake runtime in which some operators are slower, or executed as others."""

    slowed: Mapping[str, float] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    def cost_us(self, sequence: LayerSequence) -> float:
        """Returns the cost of all layers, each slowed by the factor of its operator."""
        parts = [replace(sequence, layers=(layer,), outputs=layer.outputs) for layer in sequence.layers]
        costs = zip(parts, map(super().cost_us, parts), strict=True)
        return sum(cost * self.slowed.get(part.layers[0].op_type, 1.0) for part, cost in costs)

    def lower(self, model: Model, level: str) -> LayerGraph:
        """Returns the layers, some of them as other operators."""
        graph = super().lower(model, level)
        layers = tuple(replace(one, op_type=self.renamed.get(one.op_type, one.op_type)) for one in graph.layers)
        return replace(graph, layers=layers)


@dataclass
class Starts:
    """Starts two releases of the fake runtime, and records what they measure.

    Attributes:
        old: The old release.
        new: The new release.
        turns: Version and model of each turn.
        interrupted_at: Number of turns after which Ctrl-C is pressed; None for never.
    """

    old: Version
    new: Version
    turns: list[tuple[str, str]] = field(default_factory=list)
    interrupted_at: int | None = None

    def __call__(self, runtime: Version) -> Callable[[], LocalRelease]:
        """Returns a function that starts a release."""

        class Recorded(LocalRelease):
            def measure(own, group: Group, path: Path | None) -> TurnResult:  # noqa: N805
                if len(self.turns) == self.interrupted_at:
                    raise KeyboardInterrupt
                self.turns.append((own.version, group.label))
                return super().measure(group, path)

        return lambda: Recorded(runtime, fake_sessions(runtime))


@pytest.fixture
def starts() -> Starts:
    """Two releases, of which the new one takes 1.3 times as long for MaxPool."""
    return Starts(Version(version="1.0.0"), Version(version="1.1.0", slowed={"MaxPool": 1.3}))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    yield store
    store.close()


def compared(store: Store, starts: Starts, target: Path, rounds: int = 3, **options: Any) -> RuntimeComparison:
    """Compares the two releases."""
    both = starts(starts.old), starts(starts.new)
    cache = target.parent / "cache"
    options = {"lock": nullcontext, **options}
    return compare_runtimes(store, both, str(target), cache, rounds=rounds, **options)


def test_what_became_slower_is_marked(store: Store, starts: Starts, target: Path) -> None:
    """The operator, its layers and the models that have it are marked; the measurements are those of two systems."""
    report = compared(store, starts, target)
    names = {(change.kind, change.operator or change.name) for change in report.changes if change.changed}
    assert {("operator", "MaxPool"), ("layer", "MaxPool")} <= names
    assert {kind for kind, name in names if name != "MaxPool"} <= {"model", "sum"}
    assert {round(change.ratio, 2) for change in report.changes if change.operator == "MaxPool"} == {1.3}
    assert {change.kind for change in report.changes} == {"model", "sum", "operator", "layer"}
    assert {change.pairs for change in report.changes if change.kind != "layer"} == {3}
    old, new = (system.name for system in report.systems)
    assert ("fake1.0-1t" in old, "fake1.1-1t" in new) == (True, True)
    assert store.systems().keys() == {old, new}
    assert store.latencies_us(old).keys() == store.latencies_us(new).keys()
    document = report.to_dict()
    assert (document["from"]["version"], document["to"]["version"], document["models"]) == ("1.0.0", "1.1.0", 2)
    assert (document["only_from"], document["only_to"], document["failed"]) == ([], [], {})


def test_releases_take_turns(store: Store, starts: Starts, target: Path) -> None:
    """On each model, one release follows directly on the other, and the order changes with each round."""
    assert compared(store, starts, target).turns == len(starts.turns) == 12
    models = ["plain", "pooled"]
    order = (("1.0.0", "1.1.0"), ("1.1.0", "1.0.0"), ("1.0.0", "1.1.0"))
    assert starts.turns == [(version, model) for versions in order for model in models for version in versions]


def test_a_second_call_measures_what_is_missing(store: Store, starts: Starts, target: Path) -> None:
    """Nothing is measured twice, and more rounds add to those before."""
    first = compared(store, starts, target)
    again = compared(store, starts, target)
    assert (again.turns, again.changes) == (0, first.changes)
    more = compared(store, starts, target, 4)
    assert more.turns == 4
    assert {change.pairs for change in more.changes if change.kind == "operator"} == {4}


def test_an_interrupted_comparison_goes_on(store: Store, starts: Starts, target: Path) -> None:
    """A turn that has lost its counterpart is not used, and the others need not be measured again."""
    starts.interrupted_at = 5
    with pytest.raises(KeyboardInterrupt):
        compared(store, starts, target)
    starts.interrupted_at = None
    assert compared(store, starts, target).turns == 12 - 4
    assert compared(store, starts, target).turns == 0


def test_a_budget_ends_measuring(store: Store, starts: Starts, target: Path) -> None:
    """What is left is counted, and measured by the next call."""
    seconds = iter(range(1000))
    report = compared(store, starts, target, budget_s=5.0, clock_s=lambda: float(next(seconds)))
    assert 0 < report.turns < 12
    assert report.left == 6 - report.turns // 2
    assert compared(store, starts, target).left == 0


def test_each_release_lowers_by_itself(store: Store, starts: Starts, target: Path) -> None:
    """An operator that one release lacks is listed by name, and sums are over all layers that a release executes."""
    starts.new = Version(version="1.1.0", renamed={"Relu": "Sigmoid"})
    report = compared(store, starts, target)
    assert {layer.operator for layer in report.only_from} == {"Relu"}
    assert {layer.operator for layer in report.only_to} == {"Sigmoid"}
    assert {change.operator for change in report.changes if change.kind == "layer"}.isdisjoint({"Relu", "Sigmoid"})
    assert not any(change.changed for change in report.changes)


def test_a_layer_that_fails_is_reported(store: Store, starts: Starts, target: Path) -> None:
    """Its operator is not compared where it fails, because the sum would lack it."""
    compared(store, starts, target, 3)
    broken = next(s for s, q in store.sequences().items() if q.kind == "Softmax")
    starts.new = Version(version="1.2.0", broken={broken})
    report = compared(store, starts, target)
    assert report.failed == {broken: f"{broken} failed to run"}
    assert any(change.name == "Conv" for change in report.changes)


def test_two_patches_of_a_release_are_two_systems(store: Store, starts: Starts, target: Path) -> None:
    """The names of their systems have the full version; the same release twice is refused."""
    starts.new = Version(version="1.0.1")
    old, new = (system.name for system in compared(store, starts, target).systems)
    assert ("fake1.0.0-1t" in old, "fake1.0.1-1t" in new) == (True, True)
    starts.new = Version(version="1.0.0")
    with pytest.raises(CostModelError, match=r"both releases are fake 1\.0\.0"):
        compared(store, starts, target)


def test_models_that_one_release_refuses(store: Store, starts: Starts, target: Path, tmp_path: Path) -> None:
    """A model that one release cannot lower is reported; without any other model there is nothing to compare."""
    (target / "broken.onnx").write_bytes(b"no model")
    assert list(compared(store, starts, target).failed) == ["broken"]
    for name in ("plain", "pooled"):
        (target / f"{name}.onnx").unlink()
    with pytest.raises(ModelError):
        compared(store, starts, target)


def test_one_process_measures_at_a_time(store: Store, starts: Starts, target: Path, tmp_path: Path) -> None:
    """The measuring lock is held for both releases together."""

    def lock() -> Any:
        return measuring_lock(tmp_path / "lock")

    with lock(), pytest.raises(HostBusyError):
        compared(store, starts, target, lock=lock)
    assert starts.turns == []


def test_the_systems_can_be_exported(store: Store, starts: Starts, target: Path, tmp_path: Path) -> None:
    """The measurements of a release travel like those of any system."""
    report = compared(store, starts, target)
    export_results(store, report.systems[1].name, tmp_path / "new.parquet", with_models=True)
    other = Store(f"sqlite:///{tmp_path / 'other.db'}")
    import_results(other, tmp_path / "new.parquet")
    assert other.latencies_us(report.systems[1].name) == store.latencies_us(report.systems[1].name)
