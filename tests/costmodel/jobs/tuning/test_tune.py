"""The job of `costmodel tune`, in simulated time."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from costmodel.errors import LoweringError, ModelError, TuningError, UnknownSystemError
from costmodel.estimate.interference import Interference
from costmodel.jobs.tuning.model_files import open_files
from costmodel.jobs.tuning.trial import Session, SessionSource
from costmodel.jobs.tuning.tune import Tuner
from costmodel.serving.tuning.answer import TuneAnswer
from costmodel.serving.tuning.question import TuneQuestion
from costmodel.store.store import Store
from costmodel.traffic.objective import LatencyObjective
from tests.fakes import fake_system
from tests.tuned import FOUR_CPUS, TunedRuntime, fill_systems, tuner_of

PREDICTED = {1: 1.0, 2: 0.6}


@pytest.fixture
def runtime() -> TunedRuntime:
    """A runtime that is fastest with three threads."""
    return TunedRuntime()


@pytest.fixture
def path(parse: Callable[..., ModelProto], tmp_path: Path) -> Path:
    """A model whose batch is open."""
    path = tmp_path / "small.onnx"
    onnx.save(parse("(float[N, 64] x) => (float[N, 64] z) { y = Relu(x) z = Tanh(y) }"), path)
    return path


def _tune(tuner: Tuner, path: Path, question: TuneQuestion | None = None, *, measure: bool = True) -> TuneAnswer:
    with open_files(path) as files:
        return tuner.tune(files, question or TuneQuestion(), measure=measure)


def test_the_best_setting_is_found_by_measuring(
    store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path
) -> None:
    """Three threads are best, where four are predicted to be; the default is measured as well."""
    fill_systems(store, runtime, path, PREDICTED)
    found = _tune(tuner_of(store, runtime, tmp_path), path)
    assert (found.best.setting.threads, found.best.setting.spinning) == (3, True)
    assert found.best.measured is not None
    assert found.default is not None
    assert found.default.setting.threads == 4
    assert found.gain == pytest.approx(0.8 / 0.5)
    assert found.measurement is not None
    assert found.measurement.settings >= 3
    assert any("More threads lose: 4 threads a session take" in one for one in found.findings)
    assert found.left_out[0].reason == "the same layers are executed as at level all"
    assert "RuntimeSettings(3, 'all', spinning=True)" in found.snippet


def test_without_measuring_the_best_predicted_setting_is_the_answer(
    store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path
) -> None:
    """Predictions alone rank the settings; each names the system that priced it and what was borrowed."""
    fill_systems(store, runtime, path, {1: 1.0, 2: 0.6, 3: 0.5, 4: 0.8})
    found = _tune(tuner_of(store, runtime, tmp_path), path, measure=False)
    assert (found.best.setting.threads, found.measurement, runtime.settings) == (3, None, [])
    assert found.best.borrowed == ()
    assert found.best.system is not None
    assert found.best.system.endswith("3t")
    assert found.gain == pytest.approx(0.8 / 0.5)
    idle = next(one for one in found.settings if not one.setting.spinning and one.setting.threads == 3)
    assert idle.borrowed == ("spinning is off, and its effect is not priced",)


def test_threads_that_no_system_has_are_priced_by_what_they_can_divide(
    store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path
) -> None:
    """Of a runtime of unknown kernels all is divided, by the second doubling less than by the first, within bounds."""
    fill_systems(store, runtime, path, {1: 1.0})
    found = _tune(tuner_of(store, runtime, tmp_path), path, measure=False)
    assert found.best.setting.threads == 4
    assert "no system with threads=4 is known" in found.best.borrowed[0]
    one = next(one for one in found.settings if one.setting.threads == 1)
    assert one.predicted is not None
    assert found.best.predicted is not None
    two = next(one for one in found.settings if one.setting.threads == 2 and one.setting.spinning)
    assert two.predicted is not None
    first = one.predicted.latency_us / two.predicted.latency_us
    second = two.predicted.latency_us / found.best.predicted.latency_us
    assert first == pytest.approx(2**0.9)
    assert 1 < second < first
    low_us, high_us = found.best.predicted.interval_us
    assert high_us / low_us > 1.5


@pytest.mark.parametrize(("known", "wanted"), [({1: 1.0, 2: 0.95}, 4), ({1: 1.0, 4: 0.9}, 2)])
def test_other_threads_are_priced_by_what_the_model_gains_between_known_ones(
    store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path, known: Mapping[int, float], wanted: int
) -> None:
    """A model that gains little from threads is expected to gain little from others, be they more or between."""
    fill_systems(store, runtime, path, known)
    found = _tune(tuner_of(store, runtime, tmp_path), path, measure=False)
    latencies_us = {
        one.setting.threads: one.predicted.latency_us
        for one in found.settings
        if one.predicted is not None and one.setting.spinning
    }
    few, many = known
    assert latencies_us[1] / latencies_us[wanted] < 1.25
    assert sorted(latencies_us.values(), reverse=True) == [latencies_us[threads] for threads in sorted(latencies_us)]
    setting = next(one for one in found.settings if one.setting.threads == wanted)
    assert f"its gain between {few} and {many} threads" in setting.borrowed[0]


def test_throughput_takes_batches_and_sessions(store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path) -> None:
    """Four sessions with a thread each carry most, and say that interference is assumed to be none."""
    fill_systems(store, runtime, path, PREDICTED, batches=(1, 2, 4))
    question = TuneQuestion("throughput", max_batch=4, usd_per_hour=0.36)
    found = _tune(tuner_of(store, runtime, tmp_path), path, question, measure=False)
    best = found.best.setting
    assert (best.threads, best.sessions, best.batch) == (1, 4, 4)
    assert found.best.predicted is not None
    assert found.best.predicted.usd_per_million == pytest.approx(
        0.36 / 3600 / found.best.predicted.throughput_per_s * 1e6
    )
    assert found.saved_usd_per_million is not None
    assert found.saved_usd_per_million > 0
    assert any("none is assumed" in one for one in found.warnings)
    assert "# Start 4 processes" in found.snippet
    assert "# Give each run a batch of 4." in found.snippet


def test_measured_interference_slows_sessions(store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path) -> None:
    """Where interference was measured, sessions beside each other take longer by prediction."""
    law = Interference(10.0, 20.0, 10.0, memory=0.5, computing=0.4)
    for system in fill_systems(store, runtime, path, {1: 1.0}):
        store.put_system(replace(system, capabilities={**system.capabilities, **law.capabilities()}))
    found = _tune(tuner_of(store, runtime, tmp_path), path, TuneQuestion("throughput", max_batch=1), measure=False)
    latencies = {
        one.setting.sessions: one.predicted.latency_us
        for one in found.settings
        if one.setting.threads == 1 and one.predicted is not None
    }
    assert latencies[4] > latencies[2] > latencies[1]
    assert not any("none is assumed" in one for one in found.warnings)


def test_batches_that_break_the_objective_are_named(
    store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path
) -> None:
    """The best setting meets the objective, and a sentence says which batch would be better without it."""
    alike = dict.fromkeys((1, 2, 3, 4), 1.0)
    runtime.factors = alike
    systems = fill_systems(store, runtime, path, alike, batches=(1, 2, 4))
    alone = _tune(tuner_of(store, runtime, tmp_path), path, TuneQuestion("throughput", max_batch=1), measure=False)
    limit = LatencyObjective(90.0, 1.05 * alone.best.performance.latency_us)
    found = _tune(tuner_of(store, runtime, tmp_path), path, TuneQuestion("throughput", limit, max_batch=4))
    assert (found.best.setting.batch, found.best.setting.sessions, found.best.performance.meets) == (1, 4, True)
    assert any(one.startswith("Larger batches break the objective: batch 4 ") for one in found.findings)
    assert found.best.system == systems[0].name
    never = TuneQuestion(slo=LatencyObjective(90.0, 1.0))
    assert "No setting meets p90 <= 1.00 µs" in _tune(tuner_of(store, runtime, tmp_path), path, never).findings[0]


def test_only_what_could_be_better_is_measured(store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path) -> None:
    """Settings that are worse beyond doubt are not run, nor those that hardly differ from one that is run."""
    fill_systems(store, runtime, path, {1: 1.0, 2: 0.6, 3: 0.5, 4: 0.8})
    found = _tune(tuner_of(store, runtime, tmp_path), path)
    measured = {(one.setting.threads, one.setting.spinning) for one in found.settings if one.measured is not None}
    assert {(3, True), (4, True)} <= measured  # the best one and the default one
    assert not {(1, True), (2, False), (4, False)} & measured


def test_a_host_that_is_not_measured_is_tuned_by_measuring(
    store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path
) -> None:
    """Without any system, settings are run all the same; without measuring there is nothing to answer with."""
    found = _tune(tuner_of(store, runtime, tmp_path), path)
    assert (found.best.setting.threads, found.best.predicted) == (3, None)
    assert any("nothing is predicted" in one for one in found.warnings)
    with pytest.raises(UnknownSystemError, match="run `costmodel bench` on it"):
        _tune(tuner_of(store, runtime, tmp_path), path, measure=False)


def test_another_host_is_not_measured_here(store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path) -> None:
    """Measuring settings of another machine is refused, with what to do instead."""
    fill_systems(store, runtime, path, PREDICTED)
    tuner = tuner_of(store, runtime, tmp_path)
    tuner.here = lambda: replace(FOUR_CPUS, logical_cpus=2)
    with pytest.raises(TuningError, match="add --no-measure"):
        _tune(tuner, path)
    assert _tune(tuner, path, measure=False).measurement is None


def test_a_setting_that_does_not_run_is_left_out(
    store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path
) -> None:
    """A session that cannot be opened is left out with its reason, and the others are measured."""
    fill_systems(store, runtime, path, PREDICTED)
    tuner = tuner_of(store, runtime, tmp_path)
    opened = tuner.open_session

    def refusing(source: SessionSource) -> Session:
        if source.settings.threads == 3:
            raise LoweringError("three threads are refused")
        return opened(source)

    tuner.open_session = refusing
    found = _tune(tuner, path)
    assert found.best.measured is not None
    assert found.best.setting.threads != 3
    assert any(one.reason == "three threads are refused" for one in found.left_out)
    runtime.broken.add("small")
    with pytest.raises(TuningError, match="no setting of the model could be run: small failed to run"):
        _tune(tuner_of(store, runtime, tmp_path), path)


def test_settings_for_which_there_is_no_time_are_named(
    store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path
) -> None:
    """If loading takes too long, those settings are run that load at the same time, and the others are named."""
    fill_systems(store, runtime, path, dict.fromkeys((1, 2, 3, 4), 1.0))
    tuner = tuner_of(store, runtime, tmp_path)
    opened = tuner.open_session

    def slow(source: SessionSource) -> Session:
        runtime.clock.pass_us(50e6)
        return opened(source)

    tuner.open_session = slow
    found = _tune(tuner, path, TuneQuestion("throughput", max_batch=4))
    assert found.measurement is not None
    assert 2 <= found.measurement.settings <= 4
    assert any("not run for lack of time or memory: fake, " in one for one in found.warnings)


def test_questions_that_contradict_themselves_are_refused(path: Path, store: Store) -> None:
    """The cost needs a price, a batch has limits, and objectives and changes of the model have names."""
    with pytest.raises(TuningError, match="give it, in dollars an hour"):
        TuneQuestion("cost")
    with pytest.raises(TuningError, match="from 1 to 1024"):
        TuneQuestion(max_batch=0)
    with pytest.raises(TuningError, match="choose one of latency, throughput, cost"):
        TuneQuestion("speed")  # type: ignore[arg-type]
    with pytest.raises(TuningError, match="choose one of accuracy-safe, quantised"), open_files(path, within="x"):  # type: ignore[arg-type]
        pass
    with pytest.raises(TuningError, match="has no quantised layers"), open_files(path, int8=path):
        pass
    store.put_system(fake_system("imported", host=None))
    with pytest.raises(UnknownSystemError, match="nothing is known about the hardware of imported"):
        Tuner.of(store, path, path, "imported")


def test_files_are_read_with_the_values_of_their_inputs(branches: ModelProto) -> None:
    """The branch that a value chooses is what is priced, and what sessions run."""
    for flag, operators in ((1, ["Tanh"]), (0, ["MatMul", "Tanh"])):
        with open_files(branches, values={"cached": flag}) as files:
            nodes = [node.op_type for node in files.read("float32", 1).proto.graph.node]
            assert [one for one in nodes if one != "Identity"] == operators
            assert files.values == {"cached": flag}
    with pytest.raises(ModelError, match="cannot be 2"), open_files(branches, values={"cached": 2}):
        pass


def test_an_int8_version_is_made_for_timing(parse: Callable[..., ModelProto], tmp_path: Path) -> None:
    """With `quantised`, an int8 file with the same open batch is made, and the warning says what it is worth."""
    proto = parse("(float[N, 8] x) => (float[N, 16] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((8, 16), np.float32), "w"))
    path = tmp_path / "dense.onnx"
    onnx.save(proto, path)
    with open_files(path) as files:
        assert list(files.paths) == ["float32"]
    with open_files(path, within="quantised") as files:
        assert list(files.paths) == ["float32", "int8"]
        assert files.has_free_batch
        kinds = {node.op_type for node in files.read("int8", 4).proto.graph.node}
        assert "QuantizeLinear" in kinds
        assert "its accuracy has not been checked" in files.warnings[0]
        saved = tmp_path / "int8.onnx"
        saved.write_bytes(files.paths["int8"].read_bytes())
    with open_files(saved, within="quantised") as files:
        assert (list(files.paths), files.warnings) == (["int8"], ())
    with open_files(proto, int8=saved) as files:
        assert list(files.paths) == ["float32", "int8"]
    with pytest.raises(TuningError, match="is quantised itself"), open_files(saved, int8=saved):
        pass


def test_int8_that_loses_is_said(
    store: Store, runtime: TunedRuntime, parse: Callable[..., ModelProto], tmp_path: Path
) -> None:
    """An int8 version that is slower is not chosen, and the missing instructions are named."""
    plain, slow = tmp_path / "plain.onnx", tmp_path / "slow.onnx"
    onnx.save(parse("(float[1, 64] x) => (float[1, 64] y) { y = Relu(x) }"), plain)
    text = "(float[1, 64] x) => (float[1, 64] z) { q = QuantizeLinear(x, s) y = DequantizeLinear(q, s) z = Relu(y) }"
    onnx.save(parse(text, weights={"s": ()}), slow)
    with open_files(plain, int8=slow) as files:
        found = tuner_of(store, runtime, tmp_path).tune(files, TuneQuestion())
    assert found.best.setting.precision == "float32"
    (sentence,) = [one for one in found.findings if one.startswith("int8 loses")]
    assert sentence.endswith("The processor has no VNNI instructions, which int8 needs.")


def test_the_default_setting_is_loaded_while_settings_are_priced(
    store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path
) -> None:
    """Its session is opened under the lock before anything is predicted, and only once."""
    fill_systems(store, runtime, path, PREDICTED)
    tuner = tuner_of(store, runtime, tmp_path)
    events: list[str] = []
    opened = tuner.open_session

    @contextmanager
    def lock() -> Iterator[None]:
        events.append("locked")
        yield
        events.append("free")

    def opening(source: SessionSource) -> Session:
        events.append(f"open {source.settings.threads}, spinning {source.settings.spinning}")
        return opened(source)

    tuner.lock, tuner.open_session = lock, opening
    with open_files(path) as files:
        tuner.tune(files, TuneQuestion(), progress=lambda stage: lambda done, total, what: events.append(stage))
    assert events[:3] == ["locked", "open 4, spinning True", "predicting"]
    assert (events.count("open 4, spinning True"), events[-1]) == (1, "free")


def test_a_session_that_was_opened_ahead_is_closed_if_pricing_is_interrupted(
    store: Store, runtime: TunedRuntime, path: Path, tmp_path: Path
) -> None:
    """Ctrl-C while settings are priced leaves no process behind."""
    fill_systems(store, runtime, path, PREDICTED)
    tuner = tuner_of(store, runtime, tmp_path)
    closed: list[bool] = []
    opened = tuner.open_session

    def opening(source: SessionSource) -> Session:
        session = opened(source)
        session.close = lambda: closed.append(True)  # type: ignore[method-assign]
        return session

    def interrupting(done: int, total: int, what: str) -> None:
        raise KeyboardInterrupt

    tuner.open_session = opening
    with open_files(path) as files, pytest.raises(KeyboardInterrupt):
        tuner.tune(files, TuneQuestion(), progress=lambda stage: interrupting)
    assert closed == [True]
