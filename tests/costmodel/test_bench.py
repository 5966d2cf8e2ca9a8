"""Benchmarking what is missing, in imagined time."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import ModelProto

from costmodel.bench import Bench, BenchReport
from costmodel.decomposition import whole_model
from costmodel.errors import HostBusyError, MeasurementError, SystemMismatchError
from costmodel.measurement import Protocol
from costmodel.model import Model, read_model
from costmodel.runtimes import Runtime, RuntimeSettings
from costmodel.sequence import LayerSequence
from costmodel.store import Store
from costmodel.systems import System
from tests.fakes import HOST, QUICK, FakeRuntime, elementwise, fake_bench, fake_system

SEQUENCES = [elementwise(1, size) for size in range(1, 6)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    yield store
    store.close()


@pytest.fixture
def model(parse: Callable[..., ModelProto]) -> Model:
    """A model of two layers."""
    return read_model(parse("(float[2,3] x) => (float[2,3] y) { a = Relu(x) \n y = Tanh(a) }"), name="small")


def whole(model: Model) -> LayerSequence:
    """The model as one sequence."""
    return whole_model(FakeRuntime().lower(model, "all"))


def test_the_fake_is_a_runtime() -> None:
    """What these tests run on is what a Bench asks for."""
    assert isinstance(FakeRuntime(), Runtime)


class TestMeasuring:
    """Each unique signature once per system."""

    def test_each_signature_is_measured_once(self, store: Store) -> None:
        """Repeated sequences cost one measurement; it holds what the runtime took."""
        runtime = FakeRuntime()
        with fake_bench(store, runtime) as bench:
            report = bench.run(SEQUENCES * 3)
        assert (report.measured, report.reused, report.left, report.unstable, report.failed) == (5, 0, 0, 0, {})
        assert store.latencies_us("fake-1") == {s.signature: runtime.cost_us(s) for s in SEQUENCES}
        assert [runtime.opened.count(s.signature) for s in SEQUENCES] == [1] * 5

    def test_the_order_given_is_the_order_measured(self, store: Store) -> None:
        """The most important come first, should the budget end."""
        runtime = FakeRuntime()
        with fake_bench(store, runtime) as bench:
            runtime.opened.clear()
            bench.run(SEQUENCES[::-1])
        assert runtime.opened == [s.signature for s in SEQUENCES[::-1]]

    def test_a_second_run_measures_only_what_is_missing(self, store: Store) -> None:
        """Another process goes on where the first one stopped, and does nothing where nothing is left."""
        with fake_bench(store, FakeRuntime()) as bench:
            bench.run(SEQUENCES[:2])
        runtime = FakeRuntime()
        with fake_bench(store, runtime) as bench:
            report = bench.run(SEQUENCES)
            assert (report.measured, report.reused) == (3, 2)
            runtime.opened.clear()
            report = bench.run(SEQUENCES)
        assert (report.measured, report.reused, runtime.opened) == (0, 5, [])

    def test_another_system_is_measured_anew(self, store: Store) -> None:
        """What one system took says nothing about another one."""
        for name in ("one", "other"):
            with fake_bench(store, FakeRuntime(), fake_system(name)) as bench:
                assert bench.run(SEQUENCES).measured == 5

    def test_again_adds_a_repeat(self, store: Store) -> None:
        """The first measurement goes on counting; the second one shows how well it repeats."""
        with fake_bench(store, FakeRuntime()) as bench:
            bench.run(SEQUENCES)
        slower = FakeRuntime(noise=lambda _: 2.0)
        with fake_bench(store, slower) as bench:
            report = bench.run(SEQUENCES[:2], again=True)
        assert (report.measured, report.reused) == (2, 0)
        assert store.repeated("fake-1") == {s.signature for s in SEQUENCES[:2]}
        first, second = store.measurements("fake-1", [SEQUENCES[0].signature])
        assert second.latency_us == 2 * first.latency_us == 2 * store.latencies_us("fake-1")[first.signature]

    def test_a_whole_model_is_measured_end_to_end(self, store: Store, model: Model) -> None:
        """After the sequences, under the signature of its whole graph, with the model's own weights."""
        runtime = FakeRuntime()
        with fake_bench(store, runtime) as bench:
            runtime.opened.clear()
            report = bench.run(SEQUENCES, {"small": (whole(model), model)})
            assert (report.measured, report.reused) == (6, 0)
            assert runtime.opened[-1] == "small"
            assert bench.run(SEQUENCES, {"small": (whole(model), model)}).reused == 6
        assert store.latencies_us("fake-1")[whole(model).signature] == runtime.cost_us(whole(model))

    def test_two_models_with_one_graph_are_measured_once(self, store: Store, model: Model) -> None:
        """A signature is measured once, whatever bears it: two copies of a model, or a model that is one layer."""
        models = {name: (whole(model), model) for name in ("small", "copy")}
        with fake_bench(store, FakeRuntime()) as bench:
            assert bench.run([whole(model)], models).measured == 1
        assert store.repeated("fake-1") == set()

    def test_what_never_agrees_is_stored_and_marked(self, store: Store) -> None:
        """A noisy machine gives a measurement, and the report says how many are unstable."""
        runtime = FakeRuntime(noise=lambda run: 1.2 ** (run % 7))
        with fake_bench(store, runtime, protocol=replace(QUICK, most_runs=1, agreement=0.0)) as bench:
            report = bench.run(SEQUENCES)
        assert report.unstable == 5
        assert [m.stable for m in store.measurements("fake-1")] == [False] * 5

    def test_data_dependent_layers_are_marked(self, store: Store) -> None:
        """What was fed to a NonZero decides how long it takes: the record says so."""
        with fake_bench(store, FakeRuntime()) as bench:
            bench.run([elementwise(8, op_type="NonZero"), elementwise(8)])
        marked = {s.kind: m.data_dependent for m in store.measurements("fake-1")
                  for s in [store.sequences([m.signature])[m.signature]]}  # fmt: skip
        assert marked == {"NonZero": True, "Relu": False}

    def test_a_record_holds_its_circumstances(self, store: Store) -> None:
        """Protocol, runtime, settings, CPUs and the load before and after travel with the times."""
        settings = RuntimeSettings(threads=1, level="basic", spinning=False)
        with fake_bench(store, FakeRuntime(version="2.1"), fake_system(settings=settings)) as bench:
            bench.run(SEQUENCES[:1])
        (found,) = store.measurements("fake-1")
        expected = {"protocol": QUICK.version, "runtime": "fake 2.1", "level": "basic", "threads": 1,
                    "spinning": False, "asserted": False}  # fmt: skip
        assert {name: found.circumstances[name] for name in expected} == expected
        assert len(found.circumstances["cpus"]) == 1
        assert set(found.circumstances["before"]) == set(found.circumstances["after"])
        assert len(found.rounds_us) == len(found.reference_us) == QUICK.rounds
        assert found.measured_at

    def test_measuring_by_itself_stores_nothing(self, store: Store) -> None:
        """What is timed to be compared with a prediction is no training data."""
        runtime = FakeRuntime()
        with fake_bench(store, runtime) as bench:
            measurement = bench.measure(SEQUENCES[0], runtime.open_sequence(SEQUENCES[0], RuntimeSettings()))
        assert measurement.signature == SEQUENCES[0].signature
        assert store.latencies_us("fake-1") == {}

    def test_the_protocol_for_data_sets_is_the_default(self, store: Store) -> None:
        """Without another protocol, rounds are those of `Protocol`."""
        with fake_bench(store, FakeRuntime(), protocol=None) as bench:
            bench.run(SEQUENCES[:1])
        (found,) = store.measurements("fake-1")
        assert len(found.rounds_us) == Protocol().rounds


class TestBudget:
    """A budget ends the run between two measurements."""

    def test_no_time_measures_nothing(self, store: Store) -> None:
        """Everything is left, and the report says how much that is."""
        with fake_bench(store, FakeRuntime()) as bench:
            report = bench.run(SEQUENCES, budget_s=0.0)
        assert (report.measured, report.left) == (0, 5)

    def test_what_the_budget_does_not_reach_is_left_for_the_next_run(self, store: Store) -> None:
        """No measurement starts after the budget; run again, the others are measured."""
        runtime = FakeRuntime()
        dear = [elementwise(1000, size) for size in (100, 101, 102, 103)]
        with fake_bench(store, runtime) as bench:
            whole_run_us = runtime.clock.now_ns / 1000
            assert bench.run(dear[:1]).measured == 1
            one_us = runtime.clock.now_ns / 1000 - whole_run_us
            report = bench.run(dear, budget_s=1.5 * one_us / 1e6)
            assert (report.measured, report.reused, report.left) == (2, 1, 1)
            assert report.seconds >= 1.5 * one_us / 1e6
            report = bench.run(dear, budget_s=1e9)
        assert (report.measured, report.reused, report.left) == (1, 3, 0)

    def test_the_time_reported_is_that_of_the_run(self, store: Store) -> None:
        """Runs can be added up, because each reports its own time."""
        runtime = FakeRuntime()
        with fake_bench(store, runtime) as bench:
            before_ns = runtime.clock.now_ns
            report = bench.run(SEQUENCES)
        assert report.seconds == pytest.approx((runtime.clock.now_ns - before_ns) / 1e9)

    def test_progress_is_told_before_each_measurement_and_at_the_end(self, store: Store) -> None:
        """A bar knows what is next and how many there are, also where the budget ended the run."""
        told: list[tuple[int, int, str]] = []
        with fake_bench(store, FakeRuntime()) as bench:
            bench.run(SEQUENCES[:2], progress=lambda *state: told.append(state))
            assert told == [(0, 2, "Relu"), (1, 2, "Relu"), (2, 2, "")]
            told.clear()
            bench.run(SEQUENCES, budget_s=0.0, progress=lambda *state: told.append(state))
        assert told == [(0, 3, "")]


class TestFailures:
    """One that does not run does not stop the others."""

    @pytest.mark.parametrize("how", ["refused", "broken"])
    def test_a_failing_sequence_is_recorded_and_the_others_are_measured(self, how: str, store: Store) -> None:
        """Its reason stands under its signature; nothing is stored for it."""
        bad = SEQUENCES[2].signature
        runtime = FakeRuntime()
        getattr(runtime, how).add(bad)
        with fake_bench(store, runtime) as bench:
            report = bench.run(SEQUENCES)
        assert (report.measured, list(report.failed)) == (4, [bad])
        assert report.failed[bad].endswith(("does not load", "failed to run"))
        assert bad not in store.latencies_us("fake-1")

    def test_a_failing_model_is_recorded_under_its_name(self, store: Store, model: Model) -> None:
        """Its sequences are measured all the same."""
        runtime = FakeRuntime(refused={"small"})
        with fake_bench(store, runtime) as bench:
            report = bench.run(SEQUENCES, {"small": (whole(model), model)})
        assert (report.measured, report.failed) == (5, {"small": "small does not load"})

    def test_longer_sequences_of_one_kind_fail_each_for_itself(
        self, store: Store, parse: Callable[..., ModelProto]
    ) -> None:
        """Two chains of the same operators are two failures, each under its signature."""
        text = "(float[2,{n}] x) => (float[2,{n}] y) {{ a = Relu(x) \n y = Tanh(a) }}"
        chains = [whole(read_model(parse(text.format(n=n)))) for n in (3, 4)]
        runtime = FakeRuntime(refused={chain.signature for chain in chains})
        with fake_bench(store, runtime) as bench:
            assert set(bench.run(chains).failed) == runtime.refused

    def test_what_failed_is_tried_again(self, store: Store) -> None:
        """The next run may have more memory, or a newer runtime."""
        with fake_bench(store, FakeRuntime(broken={SEQUENCES[0].signature})) as bench:
            bench.run(SEQUENCES)
        with fake_bench(store, FakeRuntime()) as bench:
            assert bench.run(SEQUENCES).measured == 1

    def test_ctrl_c_keeps_what_was_measured(self, store: Store) -> None:
        """An interruption ends the run where it is; the CPUs and the lock are given back."""
        before = os.sched_getaffinity(0)
        held: list[str] = []

        @contextmanager
        def lock() -> Iterator[None]:
            held.append("taken")
            try:
                yield
            finally:
                held.append("given back")

        def interrupt(done: int, total: int, what: str) -> None:
            if done == 2:
                raise KeyboardInterrupt

        runtime = FakeRuntime()
        bench = Bench(store, fake_system(), runtime, protocol=QUICK, lock=lock, clock_ns=runtime.clock)
        with pytest.raises(KeyboardInterrupt), bench:
            bench.run(SEQUENCES, progress=interrupt)
        assert len(store.latencies_us("fake-1")) == 2
        assert held == ["taken", "given back"]
        assert os.sched_getaffinity(0) == before


class TestTheSystem:
    """The name that the records carry."""

    def test_capabilities_are_measured_once_and_stored(self, store: Store) -> None:
        """The second bench finds them, so that times of different days refer to one quiet machine."""
        runtime = FakeRuntime()
        with fake_bench(store, runtime) as bench:
            found = bench.system.capabilities
        assert store.system("fake-1").capabilities == found
        assert len(runtime.opened) == 6  # five kernels, and the reference that stays open
        slower = FakeRuntime(noise=lambda _: 2.0)
        with fake_bench(store, slower) as bench:
            assert bench.system.capabilities == found
        assert len(slower.opened) == 1

    def test_a_system_that_came_without_capabilities_gets_them(self, store: Store) -> None:
        """A name may be known before anything was measured under it."""
        store.put_system(fake_system())
        with fake_bench(store, FakeRuntime()) as bench:
            assert store.system("fake-1").capabilities == bench.system.capabilities != {}

    def test_capabilities_that_cannot_be_measured_leave_nothing_behind(self, store: Store) -> None:
        """No half-known system is stored, and the CPUs are free again."""
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
        """The error says what differs, and no lock is taken for it."""
        with fake_bench(store, FakeRuntime()):
            pass
        with pytest.raises(SystemMismatchError, match=differs), fake_bench(store, FakeRuntime(), other):
            pass

    def test_a_vouched_name_overrules_and_marks_the_records(self, store: Store) -> None:
        """What was known of the system stays, and each record says that nothing was checked."""
        with fake_bench(store, FakeRuntime()) as bench:
            bench.run(SEQUENCES[:1])
        known = store.system("fake-1")
        elsewhere = fake_system(host=replace(HOST, model_name="Imaginary 2"), asserted=True)
        with fake_bench(store, FakeRuntime(noise=lambda _: 2.0), elsewhere) as bench:
            report = bench.run(SEQUENCES)
        assert (report.measured, report.reused) == (4, 1)
        assert store.system("fake-1") == known
        marks = {m.signature: m.circumstances["asserted"] for m in store.measurements("fake-1")}
        assert marks == {s.signature: s != SEQUENCES[0] for s in SEQUENCES}

    def test_a_busy_host_is_not_measured(self, store: Store) -> None:
        """Nothing is timed, pinned or stored while another process measures."""

        @contextmanager
        def busy() -> Iterator[None]:
            raise HostBusyError("process 1 is measuring")
            yield

        runtime = FakeRuntime()
        with pytest.raises(HostBusyError), Bench(store, fake_system(), runtime, lock=busy, clock_ns=runtime.clock):
            pass
        assert (store.systems(), runtime.opened) == ({}, [])

    def test_the_cpus_are_held_while_the_bench_is_open(self, store: Store) -> None:
        """As many as a layer has threads."""
        before = os.sched_getaffinity(0)
        runtime = FakeRuntime()
        with Bench(store, fake_system(), runtime, lock=nullcontext, clock_ns=runtime.clock):
            assert len(os.sched_getaffinity(0)) == 1
        assert os.sched_getaffinity(0) == before


def test_reports_add_up() -> None:
    """What several runs did is what each of them did."""
    report = BenchReport(1, 2, 1, {"a": "x"}, 3, 1.5)
    report += BenchReport(10, 20, 10, {"b": "y"}, 30, 0.5)
    assert report == BenchReport(11, 22, 11, {"a": "x", "b": "y"}, 33, 2.0)
