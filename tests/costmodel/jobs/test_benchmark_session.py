"""Benchmark sessions in simulated time."""

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import ModelProto

from costmodel.errors import HostBusyError, LoweringError, MeasurementError, SystemMismatchError
from costmodel.ir.footprint import weight_bytes
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.measure.capability import reference_sequence
from costmodel.measure.groups import Group, grouped
from costmodel.measure.machine_state import StateProbe, product_chain
from costmodel.measure.protocol import QUICK as FOR_SUMS
from costmodel.measure.protocol import Protocol
from costmodel.onnx_io.model import Model, read_model
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.runtimes.base import Runtime, RuntimeSettings
from costmodel.store.store import Store
from costmodel.systems.system import System
from tests.fakes import HOST, QUICK, FakeRunner, FakeRuntime, elementwise, fake_bench, fake_sessions, fake_system

SEQUENCES = [elementwise(1, size) for size in range(1, 6)]
EXACT = {"rel": 1e-9, "abs": 1e-9}


@pytest.fixture
def model(parse: Callable[..., ModelProto]) -> Model:
    """A model of two layers."""
    return read_model(parse("(float[2,3] x) => (float[2,3] y) { a = Relu(x) \n y = Tanh(a) }"), name="small")


def whole(model: Model) -> LayerSequence:
    """The model as one sequence."""
    return whole_model(FakeRuntime().lower(model, "all"))


def group_of(model: Model, *others: LayerSequence) -> Group:
    """Returns a group with the layers of a model, the model itself, and other sequences."""
    layers = decompose(model.name, FakeRuntime().lower(model, "all")).unique.values()
    return Group(model.name, (*layers, *others), whole(model), model, footprint_bytes=0)


def one_by_one(sequences: Sequence[LayerSequence]) -> list[Group]:
    """Returns a separate group for each sequence."""
    return [Group(sequence.kind, (sequence,)) for sequence in sequences]


class OnePool(FakeRuntime):
    """A runtime that, as ONNX Runtime, refuses other numbers of threads once a process runs several."""

    _threads = 1

    def open_sequence(self, sequence: LayerSequence, settings: RuntimeSettings) -> FakeRunner:
        """Opens a sequence unless it is to run on another number of threads than those before, of which one is free."""
        if self._threads not in (1, settings.threads):
            raise MeasurementError("this process cannot change its threads")
        self._threads = settings.threads
        return super().open_sequence(sequence, settings)


def test_the_fake_is_a_runtime() -> None:
    """The fake runtime satisfies the protocol that a bench requires."""
    assert isinstance(FakeRuntime(), Runtime)


class TestMeasuring:
    """Each unique signature is measured once per system."""

    def test_each_signature_is_measured_once(self, store: Store) -> None:
        """Repeated sequences, in one group or in several, give one measurement with the runtime's times."""
        runtime = FakeRuntime()
        with fake_bench(store, runtime) as bench:
            report = bench.run([Group("one", (*SEQUENCES[:3], *SEQUENCES[:3])), Group("other", tuple(SEQUENCES))])
        assert (report.measured, report.reused, report.left, report.unstable, report.failed) == (5, 0, 0, 0, {})
        expected = {s.signature: runtime.cost_us(s) for s in SEQUENCES}
        assert store.latencies_us("fake-1") == pytest.approx(expected, **EXACT)
        assert [runtime.opened.count(s.signature) for s in SEQUENCES] == [1] * 5

    def test_a_layer_that_ended_two_processes_does_not_end_a_third(self, store: Store, tmp_path: Path) -> None:
        """It is a failure that says which file to remove; the others are measured, and leave no file behind."""
        bad = SEQUENCES[2]
        runtime = FakeRuntime()
        file = tmp_path / f"{runtime.name}-{runtime.version}-{bad.signature}.crashes"
        file.write_text(f"{2**22 + 1}\n{2**22 + 2}\n")  # larger than any process number
        with fake_bench(store, runtime) as bench:
            bench.crashes = tmp_path
            report = bench.run(grouped(SEQUENCES))
        assert (report.measured, list(report.failed)) == (4, [bad.signature])
        assert re.search(rf"ended 2 times while .* ran {bad.kind}.*remove {file}", report.failed[bad.signature])
        assert list(tmp_path.glob("*.crashes")) == [file]

    @pytest.mark.parametrize("count", [1, 5])
    @pytest.mark.parametrize("overhead_us", [0.0, 0.5, 7.25, 40.0])
    def test_what_a_call_costs_is_not_in_the_latency_of_a_layer(
        self, store: Store, overhead_us: float, count: int
    ) -> None:
        """The call overhead is subtracted from a layer's latency; the raw times are stored unchanged."""
        runtime, sequences = FakeRuntime(overhead_us=overhead_us), SEQUENCES[:count]
        with fake_bench(store, runtime) as bench:
            bench.run(grouped(sequences))
        costs = {s.signature: runtime.cost_us(s) for s in sequences}
        assert store.latencies_us("fake-1") == pytest.approx(costs, **EXACT)
        for measurement in store.measurements("fake-1"):
            assert measurement.overhead_us == pytest.approx(overhead_us, **EXACT)
            assert set(measurement.times_us) == {round(overhead_us + costs[measurement.signature], 3)}

    def test_the_order_given_is_the_order_measured(self, store: Store) -> None:
        """Sequences are measured in the given order, so that a budget covers the most important ones."""
        runtime = FakeRuntime()
        with fake_bench(store, runtime) as bench:
            bench.run(one_by_one(SEQUENCES[::-1]))
        asked = {s.signature for s in SEQUENCES}
        assert [name for name in runtime.opened if name in asked] == [s.signature for s in SEQUENCES[::-1]]

    def test_a_second_run_measures_only_what_is_missing(self, store: Store) -> None:
        """Another process continues where the first one stopped, and measures nothing if all is done."""
        with fake_bench(store, FakeRuntime()) as bench:
            bench.run(grouped(SEQUENCES[:2]))
        runtime = FakeRuntime()
        with fake_bench(store, runtime) as bench:
            runtime.opened.clear()
            report = bench.run(grouped(SEQUENCES))
            assert (report.measured, report.reused) == (3, 2)
            assert not {s.signature for s in SEQUENCES[:2]} & set(runtime.opened)
            runtime.opened.clear()
            report = bench.run(grouped(SEQUENCES))
        assert (report.measured, report.reused, runtime.opened) == (0, 5, [])

    def test_another_system_is_measured_anew(self, store: Store) -> None:
        """Another system is measured separately."""
        for name in ("one", "other"):
            with fake_bench(store, FakeRuntime(), fake_system(name)) as bench:
                assert bench.run(grouped(SEQUENCES)).measured == 5

    def test_again_adds_a_repeat(self, store: Store) -> None:
        """Measuring again adds a repeat, and the median of all counts."""
        with fake_bench(store, FakeRuntime()) as bench:
            bench.run(grouped(SEQUENCES))
        slower = FakeRuntime(noise=lambda _: 1.02)
        with fake_bench(store, slower) as bench:
            report = bench.run(grouped(SEQUENCES[:2]), again=True)
        assert (report.measured, report.reused) == (2, 0)
        assert store.repeated_signatures("fake-1") == {s.signature for s in SEQUENCES[:2]}
        first, second = store.measurements("fake-1", [SEQUENCES[0].signature])
        assert second.latency_us == pytest.approx(1.02 * first.latency_us, rel=1e-3)
        assert store.latencies_us("fake-1")[first.signature] == pytest.approx(1.01 * first.latency_us, rel=1e-3)

    def test_a_disturbed_machine_does_not_make_layers_slower(self, store: Store) -> None:
        """On a machine that is twice as slow as the probes know it, latencies are halved, and do not count."""
        with fake_bench(store, FakeRuntime()) as bench:
            bench.run(grouped(SEQUENCES[:1]))
        with fake_bench(store, FakeRuntime(noise=lambda _: 2.0)) as bench:
            report = bench.run(grouped(SEQUENCES[:1]), again=True)
        assert report.unstable == 1
        first, second = store.measurements("fake-1", [SEQUENCES[0].signature])
        assert second.latency_us == pytest.approx(first.latency_us, **EXACT)
        assert store.timings("fake-1")[first.signature].latency_us == first.latency_us

    def test_what_never_agrees_is_stored_and_marked(self, store: Store) -> None:
        """Unstable measurements are stored, marked and counted in the report."""
        runtime = FakeRuntime(noise=lambda run: 1.2 ** (run % 7))
        with fake_bench(store, runtime, protocol=replace(QUICK, max_runs=1, agreement=0.0)) as bench:
            report = bench.run(grouped(SEQUENCES))
        assert report.unstable == report.measured == len(SEQUENCES)
        assert {m.stable for m in store.measurements("fake-1")} == {False}
        assert {len(m.pass_times_us) for m in store.measurements("fake-1")} == {QUICK.max_passes}

    def test_data_dependent_layers_are_marked(self, store: Store) -> None:
        """Measurements of data-dependent operators, such as NonZero, are marked."""
        with fake_bench(store, FakeRuntime()) as bench:
            bench.run(grouped([elementwise(8, op_type="NonZero"), elementwise(8)]))
        marked = {s.kind: m.data_dependent for m in store.measurements("fake-1")
                  for s in [store.sequences([m.signature])[m.signature]]}  # fmt: skip
        assert marked == {"NonZero": True, "Relu": False}

    def test_a_measurement_holds_its_environment(self, store: Store) -> None:
        """A record has protocol, runtime, settings, CPUs, and load before and after."""
        settings = RuntimeSettings(threads=1, level="basic", spinning=False)
        with fake_bench(store, FakeRuntime(version="2.1"), fake_system(settings=settings)) as bench:
            bench.run(grouped(SEQUENCES[:1]))
        (found,) = store.measurements("fake-1")
        expected = {"protocol": QUICK.version, "runtime": "fake 2.1", "level": "basic", "threads": 1,
                    "spinning": False, "asserted": False}  # fmt: skip
        assert {name: found.environment[name] for name in expected} == expected
        assert len(found.environment["cpus"]) == 1
        assert set(found.environment["before"]) == set(found.environment["after"])
        assert len(found.pass_times_us) == len(found.reference_us) == QUICK.passes
        assert found.measured_at

    def test_more_threads_than_cpus_are_refused(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Threads that would wait for each other are not measured, and the store does not learn of the system."""
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        system = fake_system(settings=RuntimeSettings(threads=3))
        with (
            pytest.raises(MeasurementError, match="3 threads would share 2 CPUs"),
            fake_bench(store, FakeRuntime(), system),
        ):
            pass
        assert store.systems() == {}

    def test_the_protocol_for_data_sets_is_the_default(self, store: Store) -> None:
        """The default protocol is `Protocol()`."""
        with fake_bench(store, FakeRuntime(), protocol=None) as bench:
            bench.run(grouped(SEQUENCES[:1]))
        (found,) = store.measurements("fake-1")
        assert len(found.pass_times_us) == Protocol().passes


class TestSums:
    """A protocol for sums over models measures as little of each layer as possible."""

    def test_each_layer_runs_once_untimed_and_once_timed(self, store: Store, model: Model) -> None:
        """Nothing else runs, and known layers do not take their turns again as context."""
        group = replace(group_of(model, *SEQUENCES), whole=None)
        known = group.sequences[0]
        with fake_bench(store, FakeRuntime()) as bench:
            bench.run([Group("known", (known,))])
        runtime = FakeRuntime()
        with fake_bench(store, runtime, protocol=FOR_SUMS) as bench:
            report = bench.run([group])
        new = {s.signature for s in group.sequences} - {known.signature}
        assert (report.measured, report.repeated, report.unstable) == (len(new), 0, 0)
        assert {signature: runtime.ran.count(signature) for signature in new} == dict.fromkeys(new, 2)
        assert known.signature not in runtime.ran
        costs = {s.signature: runtime.cost_us(s) for s in group.sequences}
        assert store.latencies_us("fake-1") == pytest.approx(costs, **EXACT)

    def test_what_is_precise_by_itself_takes_precedence(self, store: Store) -> None:
        """Measurements for sums are marked, and count only as long as there are no others."""
        for noise, protocol in ((2.0, FOR_SUMS), (1.0, QUICK), (3.0, FOR_SUMS)):
            with fake_bench(store, FakeRuntime(noise=lambda _, noise=noise: noise), protocol=protocol) as bench:
                bench.run([Group("one", tuple(SEQUENCES[:1]))], again=True)
        first, second, third = store.measurements("fake-1")
        assert [m.environment.get("for_sums", False) for m in (first, second, third)] == [True, False, True]
        assert [m.stable for m in (first, second, third)] == [False, True, False]
        assert store.latencies_us("fake-1") == {second.signature: second.latency_us}


class TestGroups:
    """The sequences of a group are measured alternately."""

    def test_layers_take_turns_with_each_other_and_with_their_model(self, store: Store, model: Model) -> None:
        """Layers and model of a group are interleaved, so that disturbances affect all of them."""
        runtime = FakeRuntime()
        group = group_of(model, *SEQUENCES[:3])
        letters = dict(zip([s.signature for s in group.sequences], "abcde", strict=True)) | {"small": "W"}
        with fake_bench(store, runtime) as bench:
            bench.run([group])
        order = "".join(letters[name] for name in runtime.ran if name in letters)
        # Each runs once to check that it works, then lap after lap.
        assert re.fullmatch(r"abcde(W+(abcde)+)+", order)
        assert order.count("W") > QUICK.passes

    def test_a_whole_model_is_measured_end_to_end(self, store: Store, model: Model) -> None:
        """A whole model is stored under the signature of its graph, call overhead included."""
        runtime = FakeRuntime(overhead_us=7.25)
        group = group_of(model, *SEQUENCES)
        with fake_bench(store, runtime) as bench:
            report = bench.run([group])
            assert (report.measured, report.reused) == (len(SEQUENCES) + 3, 0)
            assert bench.run([group]).reused == len(SEQUENCES) + 3
        latencies = store.latencies_us("fake-1")
        assert latencies[whole(model).signature] == pytest.approx(runtime.cost_us(whole(model)) + 7.25, **EXACT)
        layers = [latencies[sequence.signature] for sequence in group.sequences[:2]]
        assert sum(layers) == pytest.approx(runtime.cost_us(whole(model)), **EXACT)
        (found,) = store.measurements("fake-1", [whole(model).signature])
        assert found.overhead_us == 0.0

    def test_of_a_model_that_is_measured_in_part_all_takes_turns(self, store: Store, model: Model) -> None:
        """Known layers of a partly measured model run again, so that the others find the caches as in the model."""
        with fake_bench(store, FakeRuntime()) as bench:
            bench.run(grouped(group_of(model).sequences))
            report = bench.run([group_of(model)])
            assert (report.measured, report.reused, report.repeated) == (1, 2, 2)
            report = bench.run([group_of(model, *SEQUENCES)])
            assert (report.measured, report.reused, report.repeated) == (5, 3, 3)
            assert bench.run([group_of(model)]).repeated == 0

    def test_what_cannot_be_measured_is_no_reason_to_measure_its_model_again(self, store: Store, model: Model) -> None:
        """A failing layer does not cause its model to be measured again; each run reports the failure."""
        unloadable, broken = elementwise(1, 4, 4), elementwise(1, 4, 5)
        runtime = FakeRuntime(refused={unloadable.signature}, broken={broken.signature})
        group = group_of(model, unloadable, broken)
        with fake_bench(store, runtime) as bench:
            first, second = bench.run([group]), bench.run([group])
        assert (first.measured, second.measured, second.repeated) == (3, 0, 0)
        assert first.failed.keys() == second.failed.keys() == {unloadable.signature, broken.signature}

    def test_two_models_with_one_graph_are_measured_once(self, store: Store, model: Model) -> None:
        """Two copies of a model, or a model of one layer, are measured once per signature."""
        with fake_bench(store, FakeRuntime()) as bench:
            report = bench.run([group_of(model), replace(group_of(model), label="copy")])
            assert (report.measured, report.reused) == (3, 0)
            assert bench.run([Group("bare", (whole(model),))]).measured == 0
        assert store.repeated_signatures("fake-1") == set()

    def test_a_group_that_is_too_large_is_measured_in_portions(self, store: Store, model: Model) -> None:
        """A group too large for memory is split, and its model is measured once, in the first part."""
        runtime = FakeRuntime()
        many = [elementwise(1, 1, size) for size in range(1, 301)]
        with fake_bench(store, runtime) as bench:
            report = bench.run([group_of(model, *many)])
        assert (report.measured, report.failed) == (303, {})
        assert runtime.opened.count("small") == 1
        assert runtime.opened.index("small") < runtime.opened.index(many[-1].signature)
        latencies = store.latencies_us("fake-1")
        assert latencies[many[-1].signature] == pytest.approx(runtime.cost_us(many[-1]), **EXACT)

    def test_caches_are_as_cold_as_in_the_model(self, store: Store, parse: Callable[..., ModelProto]) -> None:
        """Cache eviction stands in for the layers of the model that are not in the group."""
        evicted: list[int] = []
        runtime = FakeRuntime()

        def evictor(nbytes: int) -> FakeRunner:
            evicted.append(nbytes)
            return FakeRunner(runtime.clock, 0.001)

        heavy = whole(read_model(parse("(float[1,64] x) => (float y) { y = MatMul(x, w) }", weights={"w": (64, 64)})))
        weights = weight_bytes(heavy)
        assert weights == 64 * 64 * 4
        cold = 2 * HOST.l3_bytes
        with fake_sessions(runtime)(store, fake_system(runtime=runtime), runtime, evictor=evictor) as bench:
            for footprint_bytes in (None, 0, weights, 3 * weights, cold + 1):
                bench.run([Group("m", (heavy,), footprint_bytes=footprint_bytes)], again=True)
        assert evicted == [cold - weights, 0, 0, 2 * weights, cold - weights]

    def test_a_model_by_itself_is_measured_and_not_stored(self, store: Store, model: Model) -> None:
        """A model that is measured for comparison with a prediction is not stored."""
        runtime = FakeRuntime(overhead_us=3.0)
        with fake_bench(store, runtime) as bench:
            measurement = bench.measure_model(whole(model), model)
        assert measurement.signature == whole(model).signature
        assert measurement.latency_us == pytest.approx(runtime.cost_us(whole(model)) + 3.0, **EXACT)
        assert store.latencies_us("fake-1") == {}

    @pytest.mark.parametrize(("how", "error"), [("refused", LoweringError), ("broken", MeasurementError)])
    def test_a_model_by_itself_that_does_not_run(
        self, store: Store, model: Model, how: str, error: type[Exception]
    ) -> None:
        """A model that does not run raises an error with the reason."""
        runtime = FakeRuntime()
        getattr(runtime, how).add("small")
        with fake_bench(store, runtime) as bench, pytest.raises(error, match="small"):
            bench.measure_model(whole(model), model)


class TestBudget:
    """A budget ends the run between two laps."""

    def test_no_time_measures_nothing(self, store: Store) -> None:
        """Without time nothing is measured, and the report has the number left."""
        with fake_bench(store, FakeRuntime()) as bench:
            report = bench.run(grouped(SEQUENCES), budget_s=0.0)
        assert (report.measured, report.left) == (0, 5)

    def test_what_the_budget_does_not_reach_is_left_for_the_next_run(self, store: Store) -> None:
        """No group is begun after the budget, and the next run measures the rest."""
        runtime = FakeRuntime()
        expensive = [elementwise(1000, size) for size in (100, 101, 102, 103)]
        with fake_bench(store, runtime) as bench:
            before_us = runtime.clock.now_ns / 1000
            assert bench.run(one_by_one(expensive[:1])).measured == 1
            one_us = runtime.clock.now_ns / 1000 - before_us
            report = bench.run(one_by_one(expensive), budget_s=1.5 * one_us / 1e6)
            assert (report.measured, report.reused, report.left) == (2, 1, 1)
            assert report.seconds >= 1.5 * one_us / 1e6
            report = bench.run(one_by_one(expensive), budget_s=1e9)
        assert (report.measured, report.reused, report.left) == (1, 3, 0)

    def test_a_group_that_was_begun_is_kept(self, store: Store) -> None:
        """A begun group is stored with fewer laps, and marked unstable if there are too few."""
        with fake_bench(store, FakeRuntime()) as bench:
            report = bench.run(grouped(SEQUENCES), budget_s=1e-9)
        assert (report.measured, report.left, report.unstable) == (5, 0, 5)
        assert {len(m.pass_times_us) for m in store.measurements("fake-1")} == {1}

    def test_a_large_group_ends_with_the_portion_that_was_begun(self, store: Store) -> None:
        """Of a group that does not fit into memory at once, the portions after the deadline are left."""
        many = tuple(elementwise(2, size) for size in range(1, 301))
        with fake_bench(store, FakeRuntime()) as bench:
            report = bench.run([Group("many", many)], budget_s=1e-9)
            assert (report.measured, report.left) == (256, 44)
            assert bench.run([Group("many", many)]).measured == 44

    def test_the_time_reported_is_that_of_the_run(self, store: Store) -> None:
        """Each run reports its own time."""
        runtime = FakeRuntime()
        with fake_bench(store, runtime) as bench:
            before_ns = runtime.clock.now_ns
            report = bench.run(grouped(SEQUENCES))
        assert report.seconds == pytest.approx((runtime.clock.now_ns - before_ns) / 1e9)

    def test_progress_is_reported_before_each_group_and_at_the_end(self, store: Store, model: Model) -> None:
        """Progress names the next group and the total, also where the budget ends the run."""
        reported: list[tuple[int, int, str]] = []
        groups = [Group("known", tuple(SEQUENCES[:1])), group_of(model), Group("others", tuple(SEQUENCES[:4]))]
        with fake_bench(store, FakeRuntime()) as bench:
            bench.run(groups[:1])
            bench.run(groups, progress=lambda *state: reported.append(state))
            assert reported == [(0, 6, "small"), (3, 6, "others"), (6, 6, "")]
            reported.clear()
            bench.run(grouped(SEQUENCES), budget_s=0.0, progress=lambda *state: reported.append(state))
        assert reported == [(0, 1, "")]


class TestFailures:
    """A failing sequence does not stop the others."""

    @pytest.mark.parametrize("how", ["refused", "broken"])
    def test_a_failing_sequence_is_recorded_and_the_others_are_measured(self, how: str, store: Store) -> None:
        """The failure is reported under the signature with its reason, and nothing is stored for it."""
        bad = SEQUENCES[2].signature
        runtime = FakeRuntime(overhead_us=5.0)
        getattr(runtime, how).add(bad)
        with fake_bench(store, runtime) as bench:
            report = bench.run(grouped(SEQUENCES))
        assert (report.measured, list(report.failed)) == (len(SEQUENCES) - 1, [bad])
        assert report.failed[bad].endswith(("does not load", "failed to run"))
        expected = {s.signature: runtime.cost_us(s) for s in SEQUENCES if s.signature != bad}
        assert store.latencies_us("fake-1") == pytest.approx(expected, **EXACT)

    @pytest.mark.parametrize("how", ["refused", "broken"])
    def test_a_failing_model_is_recorded_under_its_name(self, how: str, store: Store, model: Model) -> None:
        """The failure of a whole model is reported under its name, and its sequences are measured."""
        runtime = FakeRuntime()
        getattr(runtime, how).add("small")
        with fake_bench(store, runtime) as bench:
            report = bench.run([group_of(model)])
        assert (report.measured, list(report.failed)) == (2, ["small"])
        assert report.failed["small"].endswith(("does not load", "failed to run"))

    def test_longer_sequences_of_one_kind_fail_each_for_itself(
        self, store: Store, parse: Callable[..., ModelProto]
    ) -> None:
        """Two failing chains of the same kind are two failures."""
        text = "(float[2,{n}] x) => (float[2,{n}] y) {{ a = Relu(x) \n y = Tanh(a) }}"
        chains = [whole(read_model(parse(text.format(n=n)))) for n in (3, 4)]
        runtime = FakeRuntime(refused={chain.signature for chain in chains})
        with fake_bench(store, runtime) as bench:
            assert set(bench.run(grouped(chains)).failed) == runtime.refused

    def test_what_failed_is_tried_again(self, store: Store) -> None:
        """The next run tries a failed sequence again."""
        with fake_bench(store, FakeRuntime(broken={SEQUENCES[0].signature})) as bench:
            bench.run(grouped(SEQUENCES))
        with fake_bench(store, FakeRuntime()) as bench:
            assert bench.run(grouped(SEQUENCES)).measured == 1

    @pytest.mark.parametrize("when", ["between two groups", "within a group"])
    def test_ctrl_c_keeps_what_was_measured(self, store: Store, when: str) -> None:
        """An interruption loses at most the current group, and releases CPUs and lock."""
        before = os.sched_getaffinity(0)
        held: list[str] = []
        armed: list[str] = []

        @contextmanager
        def lock() -> Iterator[None]:
            held.append("taken")
            try:
                yield
            finally:
                held.append("given back")

        def interrupt(done: int, total: int, what: str) -> None:
            if done == 2:
                armed.append(what)
                if when == "between two groups":
                    raise KeyboardInterrupt

        def noise(run: int) -> float:
            if armed and run == 4:
                raise KeyboardInterrupt
            return 1.0

        runtime = FakeRuntime(noise=noise)
        bench = fake_sessions(runtime)(store, fake_system(), runtime, lock=lock)
        with pytest.raises(KeyboardInterrupt), bench:
            bench.run([Group("one", tuple(SEQUENCES[:2])), Group("other", tuple(SEQUENCES[2:]))], progress=interrupt)
        assert set(store.latencies_us("fake-1")) == {s.signature for s in SEQUENCES[:2]}
        assert held == ["taken", "given back"]
        assert os.sched_getaffinity(0) == before


class TestTheSystem:
    """The system of a session."""

    def test_capabilities_are_measured_once_and_stored(self, store: Store) -> None:
        """Capabilities are measured by the first bench, together with quiet times, and then taken from the store."""
        kernel = reference_sequence(1024).signature
        runtime = FakeRuntime()
        with fake_bench(store, runtime) as bench:
            found = bench.system.capabilities
        stored = store.system("fake-1").capabilities
        assert found.items() < stored.items()
        assert {name for name in stored if name not in found} == {"quiet_products_us"}
        assert kernel in runtime.opened
        slower = FakeRuntime(noise=lambda _: 2.0)
        with fake_bench(store, slower) as bench:
            assert bench.system.capabilities == stored
        assert kernel not in slower.opened

    @pytest.mark.parametrize(("threads", "expected"), [(1, False), (2, True)])
    def test_several_threads_are_expected_to_be_as_fast_as_one(
        self, store: Store, threads: int, expected: bool
    ) -> None:
        """A new system with several threads runs the chain of products with one first; a known one does not again."""
        told: list[float] = []

        def probes(*needed: Any) -> list[StateProbe]:
            told.append(needed[-1])
            return [StateProbe("products", needed[0](product_chain()), 1.3)]

        for _ in range(2):
            runtime = OnePool()
            system = fake_system(runtime=runtime, settings=RuntimeSettings(threads=threads))
            with fake_sessions(runtime)(store, system, runtime, probes=probes) as bench:
                bench.run(grouped(SEQUENCES))
        alone_us = FakeRuntime().cost_us(product_chain())
        assert told == [pytest.approx(alone_us) if expected else math.inf, math.inf]

    def test_a_process_that_ran_several_threads_expects_nothing(self, store: Store) -> None:
        """Where the runtime no longer runs one thread, the system is measured all the same."""
        runtime = OnePool()
        system = fake_system(runtime=runtime, settings=RuntimeSettings(threads=2))
        runtime.open_sequence(SEQUENCES[0], system.settings)
        with fake_bench(store, runtime, system) as bench:
            assert bench.run(grouped(SEQUENCES)).measured == len(SEQUENCES)

    def test_the_quietest_times_are_stored_with_the_system(self, store: Store) -> None:
        """Quiet times are found in the first run, stored, and lowered if a later run sees better ones."""
        quiet_us = FakeRuntime().cost_us(product_chain())
        took_s = []
        for factor, kept in ((2.0, 2.0), (3.0, 2.0), (1.0, 1.0), (2.0, 1.0)):
            runtime = FakeRuntime(noise=lambda _, factor=factor: factor)  # type: ignore[misc]
            system = fake_system(runtime=runtime)
            with fake_bench(store, runtime, system) as bench:
                entered_ns = runtime.clock()
                bench.run(grouped(SEQUENCES), again=True)
            took_s.append(entered_ns / 1e9)
            stored = store.system("fake-1").capabilities["quiet_products_us"]
            assert stored == pytest.approx(kept * quiet_us, rel=1e-3)
        assert took_s[0] > 5.0  # the first look took five seconds, and happened once only
        assert max(took_s[1:]) < 1.0

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize(("factor", "disturbed"), [(1.0, False), (1.6, True)])
    def test_a_measurement_says_whether_the_machine_was_quiet(
        self, store: Store, threads: int, factor: float, disturbed: bool
    ) -> None:
        """A measurement that was timed on a disturbed machine is marked unstable, at any number of threads."""
        quick = replace(QUICK, max_wait_us=0.0)
        known = dict.fromkeys(("gemm_gflops", "memory_gbps", "scalar_ns", "layer_us", "reference_us"), 1.0)
        known["quiet_products_us"] = FakeRuntime().cost_us(product_chain())
        runtime = FakeRuntime(noise=lambda _: factor)
        settings = RuntimeSettings(threads=threads)
        system = fake_system(runtime=runtime, settings=settings, capabilities=known)
        store.put_system(system)
        with fake_bench(store, runtime, system, quick) as bench:
            report = bench.run(grouped(SEQUENCES))
        assert report.unstable == (len(SEQUENCES) if disturbed else 0)
        for measurement in store.measurements("fake-1"):
            assert measurement.stable is not disturbed
            assert (measurement.environment["checks_disturbed"] > 0) is disturbed
            found = measurement.environment["probes_us"]["products"]
            assert found == pytest.approx(factor * known["quiet_products_us"], rel=1e-3)

    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(factor=st.just(1.0) | st.floats(1.35, 3.0), share=st.floats(0.0, 1.0), seed=st.integers(0, 99))
    def test_intervals_contain_the_quiet_latency(
        self, tmp_path_factory: pytest.TempPathFactory, factor: float, share: float, seed: int
    ) -> None:
        """However often a neighbour that the probes can tell is there, the quiet latency is in the interval."""
        spells = np.random.default_rng(seed).random(10_000) < share
        # The neighbour comes and goes every 100 ms of the simulated time.
        runtime = FakeRuntime(noise=lambda _: factor if spells[int(runtime.clock() / 1e8) % len(spells)] else 1.0)
        known = dict.fromkeys(("gemm_gflops", "memory_gbps", "scalar_ns", "layer_us", "reference_us"), 1.0)
        known["quiet_products_us"] = FakeRuntime().cost_us(product_chain())
        system = fake_system(runtime=runtime, capabilities=known)
        store = Store(f"sqlite:///{tmp_path_factory.mktemp('noisy')}/results.db")
        store.put_system(system)
        with fake_bench(store, runtime, system, replace(QUICK, max_wait_us=0.0)) as bench:
            bench.run(grouped(SEQUENCES))
        inside = []
        for sequence in SEQUENCES:
            (found,) = store.measurements("fake-1", [sequence.signature])
            low_us, high_us = found.interval_us
            inside.append(low_us * 0.99 <= runtime.cost_us(sequence) <= high_us * 1.01)
        store.close()
        assert np.mean(inside) >= 0.9

    @pytest.mark.parametrize(("threads", "lost"), [(1, False), (2, True)])
    def test_time_that_another_process_had_the_cpu_does_not_count(self, store: Store, threads: int, lost: bool) -> None:
        """With one thread, the time of a run is its time on the CPU where another process took the CPU away."""
        runtime = FakeRuntime(noise=lambda _: 3.0)
        system = fake_system(runtime=runtime, settings=RuntimeSettings(threads=threads))
        sessions = fake_sessions(runtime)
        with sessions(store, system, runtime, cpu_ns=lambda: runtime.clock() // 3) as bench:
            bench.run(grouped(SEQUENCES))
        for sequence in SEQUENCES:
            (found,) = store.measurements("fake-1", [sequence.signature])
            expected_us = runtime.cost_us(sequence) * (3 if lost or runtime.cost_us(sequence) < 10 else 1)
            assert found.latency_us == pytest.approx(expected_us, rel=0.01)

    def test_a_system_that_came_without_capabilities_gets_them(self, store: Store) -> None:
        """A stored system without capabilities gets them."""
        store.put_system(fake_system())
        with fake_bench(store, FakeRuntime()) as bench:
            assert store.system("fake-1").capabilities == bench.system.capabilities != {}

    def test_capabilities_that_cannot_be_measured_leave_nothing_behind(self, store: Store) -> None:
        """If measuring capabilities fails, no system is stored and the CPUs are released."""
        before = os.sched_getaffinity(0)
        runtime = FakeRuntime(noise=lambda _: 0.0)
        with pytest.raises(MeasurementError, match="clock did not move"), fake_bench(store, runtime):
            pass
        assert store.systems() == {}
        assert os.sched_getaffinity(0) == before

    @pytest.mark.parametrize(
        ("other", "differs"),
        [
            (fake_system(host=replace(HOST, model_name="Imaginary 2")), "Imaginary 2"),
            (fake_system(host=replace(HOST, isa=("avx",))), "avx2"),
            (fake_system(runtime=FakeRuntime(version="2.0")), "2.0"),
            (fake_system(settings=RuntimeSettings(level="none")), "none"),
            (fake_system(settings=RuntimeSettings(threads=2)), "threads"),
        ],
        ids=["processor", "instructions", "runtime", "level", "threads"],
    )
    def test_a_name_that_belongs_to_another_system_is_refused(self, store: Store, other: System, differs: str) -> None:
        """Another system's name is refused with the differences, and no lock is taken."""
        with fake_bench(store, FakeRuntime()):
            pass
        with pytest.raises(SystemMismatchError, match=differs), fake_bench(store, FakeRuntime(), other):
            pass

    def test_a_vouched_name_overrules_and_marks_the_records(self, store: Store) -> None:
        """An asserted name keeps the stored facts, and the records are marked as unchecked."""
        with fake_bench(store, FakeRuntime()) as bench:
            bench.run(grouped(SEQUENCES[:1]))
        known = store.system("fake-1")
        elsewhere = fake_system(host=replace(HOST, model_name="Imaginary 2"), asserted=True)
        with fake_bench(store, FakeRuntime(noise=lambda _: 2.0), elsewhere) as bench:
            report = bench.run(grouped(SEQUENCES))
        assert (report.measured, report.reused) == (4, 1)
        assert store.system("fake-1") == known
        marks = {m.signature: m.environment["asserted"] for m in store.measurements("fake-1")}
        assert marks == {s.signature: s != SEQUENCES[0] for s in SEQUENCES}

    def test_a_busy_host_is_not_measured(self, store: Store) -> None:
        """Nothing is timed, pinned or stored while another process measures."""

        @contextmanager
        def busy() -> Iterator[None]:
            raise HostBusyError("process 1 is measuring")
            yield

        runtime = FakeRuntime()
        with (
            pytest.raises(HostBusyError),
            BenchmarkSession(store, fake_system(), runtime, lock=busy, clock_ns=runtime.clock),
        ):
            pass
        assert (store.systems(), runtime.opened) == ({}, [])

    def test_the_cpus_are_held_while_the_bench_is_open(self, store: Store) -> None:
        """A bench is pinned to as many CPUs as a layer has threads."""
        before = os.sched_getaffinity(0)
        runtime = FakeRuntime()
        with fake_bench(store, runtime):
            assert len(os.sched_getaffinity(0)) == 1
        assert os.sched_getaffinity(0) == before


def test_reports_add_up() -> None:
    """Reports of several runs can be added."""
    report = BenchReport(1, 2, 1, {"a": "x"}, 3, 4, 5, 1.5, 0.25)
    report += BenchReport(10, 20, 10, {"b": "y"}, 30, 40, 50, 0.5, 0.5)
    assert report == BenchReport(11, 22, 11, {"a": "x", "b": "y"}, 33, 44, 55, 2.0, 0.75)
