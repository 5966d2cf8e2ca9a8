"""The job of `costmodel bench` in simulated time."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
from onnx import ModelProto

from costmodel.errors import ModelError, ModelReadError, SuiteError
from costmodel.estimate.cost import Cost, Uncertainty
from costmodel.estimate.estimate import Estimate, LayerEstimate, PredictorId
from costmodel.jobs.bench import REPEATED_SEQUENCES, bench_target, measure_models, runnable_on
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.decomposed_models import decompose_models
from costmodel.measure.capability import reference_sequence
from costmodel.measure.machine_state import product_chain
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import Decomposition, decompose
from costmodel.partition.suite import read_suite, write_suite
from costmodel.runtimes.base import lowering_key
from costmodel.store.store import Store
from costmodel.training.corpora.registry import MANIFEST, MANIFEST_FORMAT
from costmodel.training.corpus import CorpusModel, corpus_models
from tests.fakes import FakeRuntime, elementwise, fake_sessions, fake_system

SMALL = "(float[2,32] x) => (float[2,32] y) { a = Relu(x) \n b = Relu(a) \n y = Tanh(b) }"
LARGE = "(float[2,32] x) => (float[2,6400] y) { a = Relu(x) \n y = MatMul(a, w) }"


@pytest.fixture
def corpus(tmp_path: Path, parse: Callable[..., ModelProto]) -> Path:
    """A folder with two models of two families."""
    folder = tmp_path / "models"
    folder.mkdir()
    onnx.save(parse(LARGE, weights={"w": (32, 6400)}), folder / "large.onnx")
    onnx.save(parse(SMALL), folder / "small.onnx")
    _set_families(folder, large="wide", small="thin")
    return folder


def _set_families(folder: Path, **families: str) -> None:
    """Writes the manifest of a corpus with the family of each model."""
    models = [{"name": name, "file": f"{name}.onnx", "family": family} for name, family in families.items()]
    (folder / MANIFEST).write_text(json.dumps({"format": MANIFEST_FORMAT, "models": models}))


@pytest.fixture
def bench(store: Store, runtime: FakeRuntime, tmp_path: Path) -> Callable[..., BenchReport]:
    """Function that calls `bench_target` on these fixtures."""
    return partial(
        bench_target,
        store,
        fake_system(runtime=runtime),
        runtime,
        cache=tmp_path / "cache",
        bench=fake_sessions(runtime),
    )


def estimate_of(cut: Decomposition, costs_us: Mapping[str, float]) -> Estimate:
    """Returns an estimate of a model whose layers cost what is given for their operators."""
    layers = [
        LayerEstimate(
            "+".join(one.layers), one.sequence.kind, one.sequence.signature,
            Cost(us := costs_us[one.sequence.kind], (us / 1.2, us * 1.2), "predicted", one.sequence.kind),
        )
        for one in cut.segments
    ]  # fmt: skip
    total_us = sum(layer.cost.latency_us for layer in layers)
    return Estimate(
        model=cut.model, system="fake-1", latency_us=total_us, interval_us=(total_us, total_us), interval_level=0.9,
        jitter={}, composition="sequential", granularity=1, layers=tuple(layers), predictor=PredictorId(),
    )  # fmt: skip


class TestDecomposing:
    """Reading, lowering and decomposing a corpus."""

    def test_each_model_is_read_lowered_and_cut(self, corpus: Path, runtime: FakeRuntime, tmp_path: Path) -> None:
        """Models keep the order of the corpus and their families; the second time they come from the cache."""
        for _ in range(2):
            large, small = decompose_models(corpus_models(corpus), runtime, "all", tmp_path / "cache", granularity=2)
            assert (large.model.name, large.family, small.model.name, small.family) == (
                "large",
                "wide",
                "small",
                "thin",
            )
            assert [segment.sequence.kind for segment in small.decomposition.segments] == ["Relu+Relu", "Tanh"]
            assert small.whole.kind == "Relu+Relu+Tanh"
        assert runtime.lowered == ["large", "small"]

    def test_progress_names_the_model_that_is_next(self, corpus: Path, runtime: FakeRuntime, tmp_path: Path) -> None:
        """Progress names the next model, and at the end reports that all are done."""
        reported: list[tuple[int, int, str]] = []
        decompose_models(
            corpus_models(corpus), runtime, "all", tmp_path, progress=lambda *state: reported.append(state)
        )
        assert reported == [(0, 2, "large"), (1, 2, "small"), (2, 2, "")]

    def test_batch_and_shapes_reach_the_models(
        self, runtime: FakeRuntime, tmp_path: Path, parse: Callable[..., ModelProto]
    ) -> None:
        """A symbolic batch gets the given size."""
        onnx.save(parse("(float[N,M] x) => (float[N,M] y) { y = Relu(x) }"), tmp_path / "m.onnx")
        models = [CorpusModel("m", tmp_path / "m.onnx", "m")]
        (by_batch,) = decompose_models(models, runtime, "all", tmp_path, batch=4, shapes={"x": (4, 5)})
        assert by_batch.whole.values[0].type.shape == (4, 5)

    def test_a_model_that_cannot_be_read_is_named(self, runtime: FakeRuntime, tmp_path: Path) -> None:
        """The error names the model that cannot be read."""
        (tmp_path / "bad.onnx").write_bytes(b"bad")
        with pytest.raises(ModelError, match=r"bad\.onnx"):
            decompose_models([CorpusModel("bad", tmp_path / "bad.onnx", "bad")], runtime, "all", tmp_path)


class TestBenchingACorpus:
    """Benchmarking a corpus by its name."""

    def test_sequences_and_whole_models_are_measured_and_stored(
        self, bench: Callable[..., BenchReport], corpus: Path, store: Store, runtime: FakeRuntime
    ) -> None:
        """Each unique sequence is measured once, each model end to end, and the store records where they occur."""
        report = bench(target=str(corpus))
        # Unique sequences: Relu (in both models), Tanh, MatMul, and the two whole models.
        assert (report.measured, report.reused, report.left, report.failed) == (5, 0, 0, {})
        large, small = store.models()
        assert (large.name, large.family, small.name, small.family) == ("large", "wide", "small", "thin")
        assert small.lowering == lowering_key(runtime, "all")
        assert [p.signature for p in small.segments][:2] == [large.segments[0].signature] * 2
        measured = store.latencies_us("fake-1")
        assert set(measured) == {p.signature for m in (large, small) for p in m.segments} | {large.whole, small.whole}

    def test_only_the_layers_that_an_error_takes_are_measured(
        self, bench: Callable[..., BenchReport], corpus: Path, store: Store
    ) -> None:
        """By predicted costs, one layer of each model makes nearly all of its error; whole models count, too."""
        costs_us = {"Relu": 10.0, "Tanh": 1.0, "MatMul": 100.0}

        def estimate_all(cuts: Sequence[Decomposition], *, measured: bool) -> list[Estimate]:
            assert not measured
            return [estimate_of(cut, costs_us) for cut in cuts]

        predictor = SimpleNamespace(estimate_all=estimate_all, uncertainty=Uncertainty(correlation=0.1))
        report = bench(target=str(corpus), error=0.01, predictor=predictor)
        assert (report.measured, report.left, report.failed) == (4, 0, {})
        assert report.choice is not None
        assert 0 < report.choice.error <= 0.01
        kinds = {sequence.kind for sequence in store.sequences(store.latencies_us("fake-1")).values()}
        assert {"Relu", "MatMul"} <= kinds
        assert "Tanh" not in kinds

    def test_a_second_run_finds_everything(
        self, bench: Callable[..., BenchReport], corpus: Path, store: Store, runtime: FakeRuntime
    ) -> None:
        """A second run measures, lowers and repeats nothing."""
        bench(target=str(corpus), samples=3)
        before = list(store.measurements("fake-1"))
        runtime.opened.clear()
        report = bench(target=str(corpus), samples=3)
        assert report.measured == 0
        assert list(store.measurements("fake-1")) == before
        own = {reference_sequence().signature, product_chain().signature}
        assert set(runtime.opened) == own  # nothing of the corpus is opened
        assert runtime.lowered == ["large", "small"]

    def test_some_sequences_are_measured_twice(
        self, bench: Callable[..., BenchReport], corpus: Path, store: Store
    ) -> None:
        """Some sequences, but no whole models, are measured twice for the noise floor."""
        bench(target=str(corpus))
        sequences = {segment.signature for model in store.models() for segment in model.segments}
        assert len(sequences) < REPEATED_SEQUENCES
        assert store.repeated_signatures("fake-1") == sequences

    def test_what_failed_is_not_measured_twice(
        self, bench: Callable[..., BenchReport], corpus: Path, store: Store, runtime: FakeRuntime
    ) -> None:
        """A sequence that failed is not measured a second time for the noise floor, at any granularity."""
        graph = runtime.lower(read_model(corpus / "small.onnx"), "all")
        (sequence,) = (s for s in decompose("m", graph, 2).unique.values() if len(s.layers) == 2)
        runtime.refused.add(sequence.signature)
        report = bench(target=str(corpus), granularities=(2,))
        assert set(report.failed) == {sequence.signature}
        assert sequence.signature not in store.repeated_signatures("fake-1")

    def test_a_model_takes_turns_with_its_layers(
        self, bench: Callable[..., BenchReport], corpus: Path, runtime: FakeRuntime, store: Store
    ) -> None:
        """Each model is in one group with its own layers, because they are compared later."""
        bench(target=str(corpus))
        segments = {segment.signature for model in store.models() for segment in model.segments}
        names = {signature: sequence.kind for signature, sequence in store.sequences(segments).items()}
        names |= {"large": "large", "small": "small"}
        opened = [names[label] for label in runtime.opened if label in names]
        # Relu is a layer of both models and is in both groups.
        assert opened[:6] == ["Relu", "MatMul", "large", "Relu", "Tanh", "small"]

    def test_a_model_without_a_family_is_not_measured_whole(
        self, bench: Callable[..., BenchReport], corpus: Path, runtime: FakeRuntime, store: Store
    ) -> None:
        """Of a model without a family only the layers are measured, interleaved."""
        _set_families(corpus, large="wide", small="")
        report = bench(target=str(corpus))
        large, small = store.models()
        assert (report.measured, small.family) == (4, "")
        assert "small" not in runtime.opened
        segments = {segment.signature for model in (large, small) for segment in model.segments}
        assert set(store.latencies_us("fake-1")) == segments | {large.whole}

    def test_several_granularities_are_measured_in_one_run(
        self, bench: Callable[..., BenchReport], corpus: Path, store: Store, runtime: FakeRuntime
    ) -> None:
        """Several granularities share the group of their model; each sequence is measured once, all cuts are stored."""
        report = bench(target=str(corpus), granularities=(1, 2, 3))
        cuts = {(model.name, model.granularity): model for model in store.models()}
        assert set(cuts) == {(name, granularity) for name in ("large", "small") for granularity in (1, 2, 3)}
        latencies = store.latencies_us("fake-1")
        for model in cuts.values():
            assert {model.whole, *(segment.signature for segment in model.segments)} <= set(latencies)
        # At 1: three layers; at 2: Relu+Relu, and Relu+MatMul, which is all of `large`; at 3: all of `small`.
        assert (report.measured, report.failed) == (3 + 2 + 1, {})
        assert runtime.opened.count("small") == runtime.opened.count("large") == 1

    def test_a_budget_leaves_the_rest(self, bench: Callable[..., BenchReport], corpus: Path, store: Store) -> None:
        """When the budget is spent, neither samples nor repeats are begun, and the next run continues."""
        report = bench(target=str(corpus), budget_s=0.0, samples=5)
        assert (report.measured, report.left) == (0, 5)
        assert (store.samples(), store.repeated_signatures("fake-1")) == ({}, set())
        assert len(store.models()) == 2
        assert bench(target=str(corpus), samples=5).left == 0

    def test_samples_are_measured_and_their_origin_is_kept(
        self, bench: Callable[..., BenchReport], corpus: Path, store: Store
    ) -> None:
        """The store records the origin of each sample, with which it is held out."""
        report = bench(target=str(corpus), samples=4)
        samples = store.samples()
        assert len(samples) == 4
        assert report.measured == 5 + 4
        real = {segment.signature for model in store.models() for segment in model.segments}
        assert set(samples.values()) <= real
        assert not set(samples) & real
        assert set(samples) <= set(store.latencies_us("fake-1"))
        assert not set(samples) & store.repeated_signatures("fake-1")

    def test_a_sample_takes_its_turn_behind_the_layer_that_it_was_made_from(
        self, bench: Callable[..., BenchReport], corpus: Path, store: Store, runtime: FakeRuntime
    ) -> None:
        """A sample runs right after its original layer, so that it finds the caches in the same state."""
        bench(target=str(corpus))
        runtime.opened.clear()
        bench(target=str(corpus), samples=6)
        samples, opened = store.samples(), runtime.opened
        assert set(samples) <= set(opened)
        for sample, origin in samples.items():
            others = {s for s in samples if samples[s] == origin}
            behind = opened[: opened.index(sample)]
            while behind[-1] in others:
                behind.pop()
            assert behind[-1] == origin

    def test_the_layers_among_samples_are_context_only(
        self, bench: Callable[..., BenchReport], corpus: Path, store: Store
    ) -> None:
        """Layers that run between samples are context only, and their times are not stored."""
        bench(target=str(corpus), repeated_sequences=0)
        before = store.repeated_signatures("fake-1")
        bench(target=str(corpus), samples=4, repeated_sequences=0)
        assert set(store.samples()) <= set(store.latencies_us("fake-1"))
        assert store.repeated_signatures("fake-1") == before

    def test_a_sample_that_does_not_run_is_no_failure(
        self, bench: Callable[..., BenchReport], corpus: Path, store: Store, runtime: FakeRuntime, tmp_path: Path
    ) -> None:
        """A sample that does not run is dropped and not reported."""
        bench(target=str(corpus), samples=1)
        (first,) = store.samples()
        other = FakeRuntime(clock=runtime.clock, refused={first})
        system = fake_system("fake-2", runtime=other)
        store.put_system(system)
        report = bench_target(
            store, system, other, str(corpus), tmp_path / "cache", samples=1, bench=fake_sessions(other)
        )
        assert first not in store.latencies_us("fake-2")
        assert report.failed == {}

    def test_each_stage_has_its_progress(self, bench: Callable[..., BenchReport], corpus: Path) -> None:
        """Each stage reports its own progress."""
        reported: dict[str, list[tuple[int, int, str]]] = {}
        bench(
            target=str(corpus),
            samples=2,
            progress=lambda stage: lambda *state: reported.setdefault(stage, []).append(state),
        )
        assert list(reported) == ["lowering models", "measuring", "measuring samples", "measuring again"]
        assert {states[-1] for states in reported.values()} >= {(5, 5, ""), (2, 2, "")}


class TestBenchingASuite:
    """Benchmarking a suite on a machine that does not have the models."""

    @pytest.fixture
    def suite(self, tmp_path: Path, parse: Callable[..., ModelProto]) -> Path:
        """A suite of three runnable networks."""
        graph = FakeRuntime().lower(read_model(parse(LARGE, weights={"w": (32, 6400)})), "all")
        write_suite(tmp_path / "suite", [decompose("m", graph)], [elementwise(5, 5)])
        return tmp_path / "suite"

    def test_networks_are_measured_and_stored(
        self, bench: Callable[..., BenchReport], suite: Path, store: Store, runtime: FakeRuntime
    ) -> None:
        """Each network is stored under its signature, and no model is lowered or stored."""
        report = bench(target=str(suite))
        assert (report.measured, report.left, report.failed) == (3, 0, {})
        expected = {s.signature: runtime.cost_us(s) for s in read_suite(suite)}
        assert store.latencies_us("fake-1") == pytest.approx(expected)
        assert (store.models(), runtime.lowered) == ([], [])

    def test_samples_may_be_taken_around_the_networks_of_a_suite(
        self, bench: Callable[..., BenchReport], suite: Path, store: Store
    ) -> None:
        """Samples can be made from the sequences of a suite."""
        bench(target=str(suite), samples=2)
        assert len(store.samples()) == 2

    def test_a_damaged_folder_measures_nothing(
        self, bench: Callable[..., BenchReport], suite: Path, store: Store, runtime: FakeRuntime
    ) -> None:
        """A damaged suite is an error before the first measurement."""
        next(suite.glob("*.onnx")).unlink()
        with pytest.raises(SuiteError):
            bench(target=str(suite))
        assert (store.systems(), runtime.opened) == ({}, [])

    def test_a_folder_without_a_suite_or_models_is_refused(
        self, bench: Callable[..., BenchReport], tmp_path: Path
    ) -> None:
        """A folder with neither a suite nor models is an error that says so."""
        (tmp_path / "empty").mkdir()
        with pytest.raises(ModelReadError, match=r"no \.onnx file"):
            bench(target=str(tmp_path / "empty"))


class TestMeasuringModels:
    """Whole models measured for `predict --measure`."""

    def test_each_model_is_measured_and_nothing_is_stored(
        self, corpus: Path, store: Store, runtime: FakeRuntime, tmp_path: Path
    ) -> None:
        """Each model is measured and nothing is stored."""
        items = decompose_models(corpus_models(corpus), runtime, "all", tmp_path / "cache")
        models = {item.model.name: (item.whole, item.model) for item in items}
        reported: list[tuple[int, int, str]] = []
        found = measure_models(
            store,
            fake_system(runtime=runtime),
            runtime,
            models,
            progress=lambda *state: reported.append(state),
            bench=fake_sessions(runtime),
        )
        latencies_us = {name: measurement.latency_us for name, measurement in found.items()}
        assert latencies_us == pytest.approx({item.model.name: runtime.cost_us(item.whole) for item in items})
        assert all(measurement.stable and measurement.kind == "model" for measurement in found.values())
        assert store.latencies_us("fake-1") == {}
        assert reported == [(0, 2, "large"), (1, 2, "small"), (2, 2, "")]


def test_what_runs_here_is_tried() -> None:
    """A sample counts as runnable only if it runs, not if it merely loads."""
    fine, refused, broken = (elementwise(1, size) for size in (1, 2, 3))
    runtime = FakeRuntime(refused={refused.signature}, broken={broken.signature})
    runs = runnable_on(runtime, fake_system(runtime=runtime))
    assert [runs(sequence) for sequence in (fine, refused, broken)] == [True, False, False]
