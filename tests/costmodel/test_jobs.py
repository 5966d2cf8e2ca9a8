"""The jobs of the command line, in imagined time."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from costmodel import jobs
from costmodel.bench import Bench, BenchReport
from costmodel.bricks import read_bricks, write_bricks
from costmodel.decomposition import decompose
from costmodel.errors import BrickError, ModelError, ModelReadError
from costmodel.jobs import (
    REPEATED_SEQUENCES,
    bench_target,
    decompose_models,
    measure_models,
    runs_here,
)
from costmodel.measurement import reference_sequence
from costmodel.model import read_model
from costmodel.runtimes import lowering_key
from costmodel.store import Store
from costmodel.training.corpus import CorpusModel
from tests.fakes import QUICK, FakeRuntime, elementwise, fake_system

SMALL = "(float[2,32] x) => (float[2,32] y) { a = Relu(x) \n b = Relu(a) \n y = Tanh(b) }"
LARGE = "(float[2,32] x) => (float[2,6400] y) { a = Relu(x) \n y = MatMul(a, w) }"


@pytest.fixture
def runtime() -> FakeRuntime:
    """The runtime that all of a test runs on."""
    return FakeRuntime()


@pytest.fixture(autouse=True)
def imagined_time(runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Benches live in the time of the runtime, and lock nobody out."""
    bench = partial(Bench, protocol=QUICK, lock=nullcontext, clock_ns=runtime.clock)
    monkeypatch.setattr("costmodel.jobs.Bench", bench)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    yield store
    store.close()


@pytest.fixture
def corpus(tmp_path: Path, parse: Callable[..., ModelProto], monkeypatch: pytest.MonkeyPatch) -> list[CorpusModel]:
    """Two models of two families, which are the corpus "tiny"."""
    models = []
    for name, family, text in (("large", "wide", LARGE), ("small", "thin", SMALL)):
        path = tmp_path / "models" / f"{name}.onnx"
        path.parent.mkdir(exist_ok=True)
        onnx.save(parse(text, weights={"w": (32, 6400)} if family == "wide" else None), path)
        models.append(CorpusModel(name, path, family))
    monkeypatch.setattr("costmodel.training.corpus.corpus_models", {"tiny": models}.__getitem__)
    return models


@pytest.fixture
def bench(store: Store, runtime: FakeRuntime, tmp_path: Path) -> Callable[..., BenchReport]:
    """`bench_target` on what these fixtures gave."""
    return partial(bench_target, store, fake_system(runtime=runtime), runtime, cache=tmp_path / "cache")


class TestDecomposing:
    """Reading, lowering and cutting a corpus."""

    def test_each_model_is_read_lowered_and_cut(
        self, corpus: list[CorpusModel], runtime: FakeRuntime, tmp_path: Path
    ) -> None:
        """In the order of the corpus, each with its family; the second time from the cache."""
        for _ in range(2):
            large, small = decompose_models(corpus, runtime, "all", tmp_path / "cache", granularity=2)
            assert (large.model.name, large.family, small.model.name, small.family) == (
                "large",
                "wide",
                "small",
                "thin",
            )
            assert [piece.sequence.kind for piece in small.decomposition.pieces] == ["Relu+Relu", "Tanh"]
            assert small.whole.kind == "Relu+Relu+Tanh"
        assert runtime.lowered == ["large", "small"]

    def test_progress_names_the_model_that_is_next(
        self, corpus: list[CorpusModel], runtime: FakeRuntime, tmp_path: Path
    ) -> None:
        """And says at the end that all are done."""
        told: list[tuple[int, int, str]] = []
        decompose_models(corpus, runtime, "all", tmp_path, progress=lambda *state: told.append(state))
        assert told == [(0, 2, "large"), (1, 2, "small"), (2, 2, "")]

    def test_batch_and_shapes_reach_the_models(
        self, runtime: FakeRuntime, tmp_path: Path, parse: Callable[..., ModelProto]
    ) -> None:
        """A symbolic batch is what the caller says."""
        onnx.save(parse("(float[N,M] x) => (float[N,M] y) { y = Relu(x) }"), tmp_path / "m.onnx")
        models = [CorpusModel("m", tmp_path / "m.onnx", "m")]
        (by_batch,) = decompose_models(models, runtime, "all", tmp_path, batch=4, shapes={"x": (4, 5)})
        assert by_batch.whole.values[0].type.shape == (4, 5)

    def test_a_model_that_cannot_be_read_is_named(self, runtime: FakeRuntime, tmp_path: Path) -> None:
        """The error is about that model."""
        (tmp_path / "bad.onnx").write_bytes(b"bad")
        with pytest.raises(ModelError, match=r"bad\.onnx"):
            decompose_models([CorpusModel("bad", tmp_path / "bad.onnx", "bad")], runtime, "all", tmp_path)


class TestBenchingACorpus:
    """A corpus by its name."""

    def test_sequences_and_whole_models_are_measured_and_stored(
        self, bench: Callable[..., BenchReport], corpus: list[CorpusModel], store: Store, runtime: FakeRuntime
    ) -> None:
        """Every unique sequence once, the shared ones too, and each model end to end; the store knows what is whose."""
        report = bench(target="tiny")
        # Relu in both models is one sequence; Tanh and MatMul are one each; and there are two models.
        assert (report.measured, report.reused, report.left, report.failed) == (5, 0, 0, {})
        large, small = store.models()
        assert (large.name, large.family, small.name, small.family) == ("large", "wide", "small", "thin")
        assert small.lowering == lowering_key(runtime, "all")
        assert [p.signature for p in small.pieces][:2] == [large.pieces[0].signature] * 2
        measured = store.latencies_us("fake-1")
        assert set(measured) == {p.signature for m in (large, small) for p in m.pieces} | {large.whole, small.whole}

    def test_a_second_run_finds_everything(
        self, bench: Callable[..., BenchReport], corpus: list[CorpusModel], store: Store, runtime: FakeRuntime
    ) -> None:
        """Nothing is measured, lowered or repeated again."""
        bench(target="tiny", samples=3)
        before = list(store.measurements("fake-1"))
        runtime.opened.clear()
        report = bench(target="tiny", samples=3)
        assert report.measured == 0
        assert list(store.measurements("fake-1")) == before
        assert set(runtime.opened) == {reference_sequence().signature}  # and nothing of the corpus
        assert runtime.lowered == ["large", "small"]

    def test_some_sequences_are_measured_twice(
        self, bench: Callable[..., BenchReport], corpus: list[CorpusModel], store: Store
    ) -> None:
        """So that it is known how well a measurement repeats; whole models are not."""
        bench(target="tiny")
        sequences = {piece.signature for model in store.models() for piece in model.pieces}
        assert len(sequences) < REPEATED_SEQUENCES
        assert store.repeated("fake-1") == sequences

    def test_what_failed_is_not_measured_twice(
        self, bench: Callable[..., BenchReport], corpus: list[CorpusModel], store: Store, runtime: FakeRuntime
    ) -> None:
        """At any granularity."""
        (sequence,) = (s for s in decompose("m", runtime.lower(read_model(corpus[1].path), "all"), 2).unique.values()
                       if len(s.layers) == 2)  # fmt: skip
        runtime.refused.add(sequence.signature)
        report = bench(target="tiny", granularities=(2,))
        assert set(report.failed) == {sequence.signature}
        assert sequence.signature not in store.repeated("fake-1")

    def test_a_model_takes_turns_with_its_layers(
        self, bench: Callable[..., BenchReport], corpus: list[CorpusModel], runtime: FakeRuntime, store: Store
    ) -> None:
        """What is compared later is measured together: each model is loaded with its own layers."""
        bench(target="tiny")
        pieces = {piece.signature for model in store.models() for piece in model.pieces}
        names = {signature: sequence.kind for signature, sequence in store.sequences(pieces).items()}
        names |= {"large": "large", "small": "small"}
        opened = [names[label] for label in runtime.opened if label in names]
        # Relu is one of the layers of both, and has its turn in both.
        assert opened[:6] == ["Relu", "MatMul", "large", "Relu", "Tanh", "small"]

    def test_what_is_nobodys_model_is_not_measured_whole(
        self, bench: Callable[..., BenchReport], corpus: list[CorpusModel], runtime: FakeRuntime, store: Store
    ) -> None:
        """Its layers are, and take turns."""
        corpus[1] = replace(corpus[1], family="")
        report = bench(target="tiny")
        large, small = store.models()
        assert (report.measured, small.family) == (4, "")
        assert "small" not in runtime.opened
        pieces = {piece.signature for model in (large, small) for piece in model.pieces}
        assert set(store.latencies_us("fake-1")) == pieces | {large.whole}

    def test_several_granularities_are_measured_in_one_run(
        self, bench: Callable[..., BenchReport], corpus: list[CorpusModel], store: Store, runtime: FakeRuntime
    ) -> None:
        """With the same model in the same turns, each sequence once, and the store knows every cut."""
        report = bench(target="tiny", granularities=(1, 2, 3))
        cuts = {(model.name, model.granularity): model for model in store.models()}
        assert set(cuts) == {(name, granularity) for name in ("large", "small") for granularity in (1, 2, 3)}
        latencies = store.latencies_us("fake-1")
        for model in cuts.values():
            assert {model.whole, *(piece.signature for piece in model.pieces)} <= set(latencies)
        # At 1 three layers; at 2 Relu+Relu and Relu+MatMul, which is the whole of large; at 3 the whole of small.
        assert (report.measured, report.failed) == (3 + 2 + 1, {})
        assert runtime.opened.count("small") == runtime.opened.count("large") == 1

    def test_a_budget_leaves_the_rest(
        self, bench: Callable[..., BenchReport], corpus: list[CorpusModel], store: Store
    ) -> None:
        """Neither samples nor repeats are begun then; the next run goes on."""
        report = bench(target="tiny", budget_s=0.0, samples=5)
        assert (report.measured, report.left) == (0, 5)
        assert (store.samples(), store.repeated("fake-1")) == ({}, set())
        assert len(store.models()) == 2
        assert bench(target="tiny", samples=5).left == 0

    def test_samples_are_measured_and_their_origin_is_kept(
        self, bench: Callable[..., BenchReport], corpus: list[CorpusModel], store: Store
    ) -> None:
        """A sample is held out with the sequence that it was made from, so the store must know which one that is."""
        report = bench(target="tiny", samples=4)
        samples = store.samples()
        assert len(samples) == 4
        assert report.measured == 5 + 4
        real = {piece.signature for model in store.models() for piece in model.pieces}
        assert set(samples.values()) <= real
        assert not set(samples) & real
        assert set(samples) <= set(store.latencies_us("fake-1"))
        assert not set(samples) & store.repeated("fake-1")

    def test_a_sample_takes_its_turn_behind_the_layer_that_it_was_made_from(
        self, bench: Callable[..., BenchReport], corpus: list[CorpusModel], store: Store, runtime: FakeRuntime
    ) -> None:
        """It meets the caches as that does."""
        bench(target="tiny")
        runtime.opened.clear()
        bench(target="tiny", samples=6)
        samples, opened = store.samples(), runtime.opened
        assert set(samples) <= set(opened)
        for sample, origin in samples.items():
            others = {s for s in samples if samples[s] == origin}
            behind = opened[: opened.index(sample)]
            while behind[-1] in others:
                behind.pop()
            assert behind[-1] == origin

    def test_the_layers_among_samples_are_company(
        self,
        bench: Callable[..., BenchReport],
        corpus: list[CorpusModel],
        store: Store,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """They run between the samples, but what they take there is not what they take in their model: not kept."""
        monkeypatch.setattr(jobs, "REPEATED_SEQUENCES", 0)
        bench(target="tiny")
        before = store.repeated("fake-1")
        bench(target="tiny", samples=4)
        assert set(store.samples()) <= set(store.latencies_us("fake-1"))
        assert store.repeated("fake-1") == before

    def test_a_sample_that_does_not_run_is_no_failure(
        self, bench: Callable[..., BenchReport], corpus: list[CorpusModel], store: Store, runtime: FakeRuntime
    ) -> None:
        """It is nobody's layer: it is not measured, and nobody is told."""
        bench(target="tiny", samples=1)
        (first,) = store.samples()
        other = FakeRuntime(clock=runtime.clock, refused={first})
        system = fake_system("fake-2", runtime=other)
        store.put_system(system)
        report = bench_target(store, system, other, "tiny", corpus[0].path.parent, samples=1)
        assert first not in store.latencies_us("fake-2")
        assert report.failed == {}

    def test_each_stage_has_its_progress(self, bench: Callable[..., BenchReport], corpus: list[CorpusModel]) -> None:
        """A bar for each, and each is told where it stands."""
        told: dict[str, list[tuple[int, int, str]]] = {}
        bench(target="tiny", samples=2, progress=lambda stage: lambda *state: told.setdefault(stage, []).append(state))
        assert list(told) == ["lowering models", "measuring", "measuring samples", "measuring again"]
        assert {states[-1] for states in told.values()} >= {(5, 5, ""), (2, 2, "")}


class TestBenchingBricks:
    """A folder of bricks, on a machine that never saw the models."""

    @pytest.fixture
    def bricks(self, tmp_path: Path, parse: Callable[..., ModelProto]) -> Path:
        """Three bricks."""
        graph = FakeRuntime().lower(read_model(parse(LARGE, weights={"w": (32, 6400)})), "all")
        write_bricks(tmp_path / "bricks", [decompose("m", graph)], [elementwise(5, 5)])
        return tmp_path / "bricks"

    def test_bricks_are_measured_and_stored(
        self, bench: Callable[..., BenchReport], bricks: Path, store: Store, runtime: FakeRuntime
    ) -> None:
        """Each under its signature; no model is known here, and none is lowered."""
        report = bench(target=str(bricks))
        assert (report.measured, report.left, report.failed) == (3, 0, {})
        expected = {s.signature: runtime.cost_us(s) for s in read_bricks(bricks)}
        assert store.latencies_us("fake-1") == pytest.approx(expected)
        assert (store.models(), runtime.lowered) == ([], [])

    def test_samples_may_be_taken_around_bricks(
        self, bench: Callable[..., BenchReport], bricks: Path, store: Store
    ) -> None:
        """They are sequences like any."""
        bench(target=str(bricks), samples=2)
        assert len(store.samples()) == 2

    def test_a_damaged_folder_measures_nothing(
        self, bench: Callable[..., BenchReport], bricks: Path, store: Store, runtime: FakeRuntime
    ) -> None:
        """The error comes before the first measurement."""
        next(bricks.glob("*.onnx")).unlink()
        with pytest.raises(BrickError):
            bench(target=str(bricks))
        assert (store.systems(), runtime.opened) == ({}, [])

    def test_a_folder_without_bricks_or_models_is_neither(
        self, bench: Callable[..., BenchReport], tmp_path: Path
    ) -> None:
        """The error says that there is nothing in it."""
        (tmp_path / "empty").mkdir()
        with pytest.raises(ModelReadError, match=r"no \.onnx file"):
            bench(target=str(tmp_path / "empty"))


class TestMeasuringModels:
    """End to end, here and now."""

    def test_each_model_is_measured_and_nothing_is_stored(
        self, corpus: list[CorpusModel], store: Store, runtime: FakeRuntime, tmp_path: Path
    ) -> None:
        """What is shown beside a prediction is no training data."""
        items = decompose_models(corpus, runtime, "all", tmp_path / "cache")
        models = {item.model.name: (item.whole, item.model) for item in items}
        told: list[tuple[int, int, str]] = []
        found = measure_models(
            store, fake_system(runtime=runtime), runtime, models, progress=lambda *state: told.append(state)
        )
        assert found == pytest.approx({item.model.name: runtime.cost_us(item.whole) for item in items})
        assert store.latencies_us("fake-1") == {}
        assert told == [(0, 2, "large"), (1, 2, "small"), (2, 2, "")]


def test_what_runs_here_is_tried() -> None:
    """Loading is not enough: the network must run."""
    fine, refused, broken = (elementwise(1, size) for size in (1, 2, 3))
    runtime = FakeRuntime(refused={refused.signature}, broken={broken.signature})
    runs = runs_here(runtime, fake_system(runtime=runtime))
    assert [runs(sequence) for sequence in (fine, refused, broken)] == [True, False, False]
