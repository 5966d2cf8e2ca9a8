"""Benchmark sessions, which measure the sequences that the store lacks on this host; resumable at any moment."""

import math
import time
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from costmodel.errors import LoweringError, MeasurementError
from costmodel.interruption import raise_if_interrupted
from costmodel.ir.footprint import read_bytes
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.idle import measured_idle
from costmodel.jobs.network_timer import NetworkTimer
from costmodel.jobs.session_store import SessionStore
from costmodel.measure.affinity import check_cpus, cpus_beside, pinned
from costmodel.measure.capability import measure_capabilities, reference_sequence
from costmodel.measure.contenders import Contender, open_contenders
from costmodel.measure.denormals import denormals_flushed
from costmodel.measure.groups import Group, evicted_bytes, grouped
from costmodel.measure.interference import Ring, Slowdowns, measure_slowdowns
from costmodel.measure.lock import measuring_lock
from costmodel.measure.machine_state import MachineStateMonitor, StateProbe, product_chain, state_probes
from costmodel.measure.measurement import Measurement
from costmodel.measure.neighbour import Neighbour, NeighbourProcess
from costmodel.measure.protocol import Protocol
from costmodel.measure.round_robin import CacheEvictor, TimedNetwork
from costmodel.measure.stopwatch import repeated_us
from costmodel.onnx_io.model import Model
from costmodel.progress import Progress
from costmodel.runtimes.base import LayerProfiler, ProfiledRun, Runner, Runtime
from costmodel.systems.host import Host
from costmodel.systems.system import QUIET_PROBE, System, check_same_system

__all__ = ["BenchmarkSession"]

_WAITED_SHARE = 0.2  # largest share of a budget that goes into waiting before anything is measured


class BenchmarkSession:
    """A period of measuring on this host, during which it holds the measuring lock and is pinned to CPUs.

    Use it as a context manager. Entering it measures the system's capabilities, unless the store has them.
    """

    def __init__(
        self,
        store: SessionStore,
        system: System,
        runtime: Runtime,
        *,
        protocol: Protocol | None = None,
        lock: Callable[[], Any] = measuring_lock,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        sleep: Callable[[float], None] = time.sleep,
        evictor: Callable[[int], Runner] = CacheEvictor,
        probes: Callable[[Callable[[LayerSequence], Runner], Host | None, float], Sequence[StateProbe]] = state_probes,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
        neighbour: Callable[
            [Callable[[], Sequence[Runner]], Sequence[int]], AbstractContextManager[Neighbour]
        ] = NeighbourProcess,
    ) -> None:
        """Prepares a session, which opens when its context is entered.

        Args:
            store: Store that receives each result as soon as it is measured.
            system: This host, described as a system; results are stored under its name.
            runtime: Runtime that runs layer sequences and whole models.
            protocol: Measurement protocol; by default `Protocol()`, with which data sets are made.
            lock: Function that returns a context manager, inside which no other process measures.
            clock_ns: Function that returns the time of a monotonic clock in nanoseconds.
            sleep: Function that waits for a given number of seconds.
            evictor: Function that takes a number of bytes and returns a runner that evicts that many bytes from the
                processor's caches.
            probes: Function that takes a function which opens layer sequences, the host, and the time in microseconds
                within which a quiet machine should run the chain of products, and returns the probes of the machine's
                state.
            cpu_ns: Function that returns the time that this thread has spent on a CPU, in nanoseconds.
            neighbour: Function that takes a function which opens networks, and numbers of CPUs, and returns a context
                manager of something that runs the networks on these CPUs.
        """
        self.store = store
        self.system = system
        self._runtime = runtime
        self._protocol = protocol or Protocol()
        self._lock = lock
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._evictor = evictor
        self._probes = probes
        self._cpu_ns = cpu_ns
        self._neighbour = neighbour
        self.crashes: Path | None = None  # of `NetworkTimer.timed`

    def __enter__(self) -> "BenchmarkSession":
        """Takes the lock, pins this process to CPUs, and measures the system's capabilities if the store lacks them.

        Raises:
            HostBusyError: Another process is measuring.
            MeasurementError: A layer may use more threads than there are CPUs that this process may run on.
            SystemMismatchError: The store has a system of that name with another machine, runtime or settings.
        """
        check_cpus(self.system.settings.threads)
        known = self.store.systems().get(self.system.name)
        if known is not None:
            check_same_system(known, self.system)
            self.system = replace(self.system, capabilities={} if known.extrapolated else known.capabilities)
        with ExitStack() as stack:
            stack.enter_context(self._lock())
            one_thread_us = self._one_thread_us()  # first, because ONNX Runtime refuses one thread after several
            new = not self.system.capabilities
            idle = measured_idle(self._runtime, self.system, self._clock_ns, self._sleep) if new else {}
            self._cpus_beside = cpus_beside(self.system.settings.cpus)
            cpus = stack.enter_context(pinned(self.system.settings.cpus))
            if new:
                capabilities = measure_capabilities(self._runtime, self.system.settings, self._clock_ns)
                self.system = replace(self.system, capabilities=capabilities | idle)
            if known is None or known.extrapolated or not known.capabilities:
                self.store.put_system(self.system)
            reference = self._runtime.open_sequence(reference_sequence(), self.system.settings)
            self._monitor = MachineStateMonitor(
                self._probes(self._opened, self.system.host, one_thread_us),
                self._protocol,
                _quiet_times(self.system),
                clock_ns=self._clock_ns,
                sleep=self._sleep,
            )
            stack.callback(self._store_quiet_times)
            # Entered last, because the first session that ONNX Runtime opens in a process resets this state.
            denormals = _denormals(self.system, flushed=stack.enter_context(denormals_flushed()))
            self._timer = NetworkTimer(
                runtime=self._runtime,
                system=self.system,
                protocol=self._protocol,
                reference=reference,
                monitor=self._monitor,
                evictor=self._evictor,
                clock_ns=self._clock_ns,
                cpu_ns=self._cpu_ns,
                cpus=cpus,
                denormals=denormals,
            )
            self._held = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the pinning to CPUs and releases the measuring lock."""
        self._held.close()

    def _one_thread_us(self) -> float:
        """Returns the time of the chain of products with one thread in microseconds, if the system has several.

        Infinite if it has one, if it is known how long the chain takes when the machine is quiet, and if this process
        cannot run one thread any more.
        """
        if self.system.settings.threads == 1 or _quiet_times(self.system):
            return math.inf
        try:
            alone = self._runtime.open_sequence(product_chain(), replace(self.system.settings, threads=1))
        except MeasurementError:
            return math.inf
        return repeated_us(alone, self._clock_ns)

    def _store_quiet_times(self) -> None:
        """Stores the quiet times of the probes with the system: the machine may be busy during the next session."""
        quiet = {f"{QUIET_PROBE}{name}_us": us for name, us in self._monitor.quiet_us.items()}
        if any(us < self.system.capabilities.get(name, math.inf) for name, us in quiet.items()):
            self.system = replace(self.system, capabilities={**self.system.capabilities, **quiet})
            self.store.put_system(self.system)

    def run(
        self,
        groups: Iterable[Group],
        *,
        budget_s: float | None = None,
        progress: Progress | None = None,
        again: bool = False,
    ) -> BenchReport:
        """Measures those groups that contain a sequence without a measurement in the store; returns a report.

        Args:
            groups: Groups to measure, the most important first. If one sequence of a model is to be measured, all
                sequences of the model take part in the laps of the group, so that even those which have a measurement
                are measured again.
            budget_s: Seconds from the start after which no further lap over a group starts; None for no limit.
            progress: Progress callback, called before each group and at the end.
            again: Whether to measure all sequences of the groups, even those that have a measurement.
        """
        started_ns = self._clock_ns()
        deadline_ns = math.inf if budget_s is None else started_ns + budget_s * 1e9
        if budget_s is not None:  # on a machine that is never quiet, most of the budget is still spent on measuring
            self._monitor.limit_patience(_WAITED_SHARE * budget_s * 1e6)
        report = BenchReport()
        known = set() if again else set(self.store.latencies_us(self.system.name))
        planned: list[tuple[Group, set[str]]] = []
        seen: set[str] = set()
        sequences: dict[str, LayerSequence] = {}
        for group in groups:
            members = {s.signature: s for s in group.members}
            planned.append((group, members.keys() - known - seen - group.context_only))
            seen |= members.keys()
            sequences |= members
        self.store.put_sequences(sequences.values())
        report.reused = len(known & seen)
        done, total = 0, sum(len(missing) for _, missing in planned)
        for group, missing in planned:
            raise_if_interrupted()
            if not missing:
                continue
            if self._clock_ns() >= deadline_ns:
                report.left += len(missing)
                continue
            if progress is not None:
                progress(done, total, group.label)
            self._measure_group(group, missing, report, deadline_ns)
            done += len(missing)
        if progress is not None:
            progress(total - report.left, total, "")
        report.seconds = (self._clock_ns() - started_ns) / 1e9
        return report

    def _measure_group(self, group: Group, missing: Set[str], report: BenchReport, deadline_ns: float) -> None:
        """Measures a group, stores the measurements, and adds the counts of measurements and the failures to a report.

        A large group is split into portions that fit into memory; after the deadline, no further one starts.

        Args:
            group: Group to measure.
            missing: Signatures of the sequences that are to be measured; other sequences of their model run as context,
                and are measured again.
            report: Report to add to.
            deadline_ns: Time of the monotonic clock after which no further lap starts, in nanoseconds.
        """
        # For sums, layers that are known need not take their turns again as the context of others.
        of_model = group.footprint_bytes is not None and not self._protocol.for_sums
        bare = {s.signature: s for s in group.sequences if s != group.whole and (of_model or s.signature in missing)}
        wholes = [group.whole] if group.whole is not None else []
        portions = grouped(bare.values()) or [Group("", ())]
        for number, portion in enumerate(portions):
            if number and self._clock_ns() >= deadline_ns:
                left = {sequence.signature for later in portions[number:] for sequence in later.sequences}
                report.left += len(left & missing - report.failed.keys())
                break
            entries: dict[str, tuple[LayerSequence, TimedNetwork]] = {}
            for sequence in (*portion.sequences, *wholes):
                is_whole = sequence == group.whole
                model = group.model if is_whole else None
                name = sequence.signature if model is None else group.label
                if name in report.failed:
                    continue
                try:
                    entries[name] = sequence, TimedNetwork(self._opened(sequence, model), whole=is_whole)
                except (MeasurementError, LoweringError) as error:
                    report.failed[name] = str(error)
            loaded = list(entries.values())
            timed = self._timer.timed(
                loaded,
                missing,
                # As much as the layers of the model outside this portion would evict.
                evicted_bytes=evicted_bytes(
                    group.footprint_bytes, sum(map(read_bytes, portion.sequences)), self.system.host
                ),
                deadline_ns=deadline_ns,
                footprint_bytes=group.footprint_bytes,
                crashes=self.crashes,
            )
            measurements = [m for m in timed if m.signature not in group.context_only]
            self.store.put_measurements(self.system.name, measurements)
            for measurement in measurements:
                report.measured += measurement.signature in missing
                report.repeated += measurement.signature not in missing
                report.unstable += not (measurement.stable or self._protocol.for_sums)
            report.waiting_seconds += self._monitor.lost_us / 1e6
            report.failed |= {name: str(entry.error) for name, (_, entry) in entries.items() if entry.error is not None}
            wholes = []

    def measure_model(self, whole: LayerSequence, model: Model) -> Measurement:
        """Measures one model end to end under the protocol of the session, without storing the result.

        Raises:
            MeasurementError: The model does not run.
            LoweringError: The runtime cannot load the model.
        """
        entry = TimedNetwork(self._opened(whole, model), whole=True)
        for measurement in self._timer.timed([(whole, entry)], {whole.signature}, evicted_bytes=0):
            return measurement
        assert entry.error is not None
        raise entry.error

    def profile_model(self, model: Model, *, runs: int, warm_up_runs: int) -> tuple[ProfiledRun, ...]:
        """Runs one model under the runtime's own profiler, without storing the result; returns the runs.

        Args:
            model: Model to run.
            runs: Number of runs to return.
            warm_up_runs: Number of runs before these.

        Raises:
            MeasurementError: The runtime has no profiler, or the model does not run.
            LoweringError: The runtime cannot load the model.
        """
        if not isinstance(self._runtime, LayerProfiler):
            raise MeasurementError(
                f"{self._runtime.name} cannot time the layers of a running model: it has no profiler"
            )
        return self._runtime.profile_model(model, self.system.settings, runs=runs, warm_up_runs=warm_up_runs)

    def measure_slowdowns(self, chosen: Sequence[Contender], *, progress: Progress | None = None) -> Slowdowns:
        """Times layers alone, and beside each other while a neighbour runs them on other CPUs, without storing them.

        Args:
            chosen: The layers.
            progress: Progress callback.

        Raises:
            MeasurementError: A layer does not run.
        """
        assert self._cpus_beside is not None, "callers check that there are enough CPUs"
        networks = [Ring([self._opened(one.sequence) for _ in range(one.copies)]) for one in chosen]
        opening = partial(open_contenders, self._runtime.name, self.system.settings, tuple(chosen))
        pairs = [(one, other) for one in range(len(chosen)) for other in range(len(chosen))]
        with self._neighbour(opening, self._cpus_beside) as neighbour:
            return measure_slowdowns(
                networks, neighbour, pairs, clock_ns=self._clock_ns, sleep=self._sleep, progress=progress
            )

    def _opened(self, sequence: LayerSequence, model: Model | None = None) -> Runner:
        if model is None:
            return self._runtime.open_sequence(sequence, self.system.settings)
        return self._runtime.open_model(model, self.system.settings)


def _denormals(system: System, *, flushed: bool) -> str:
    """Returns how denormal numbers are treated: "flushed", "kept", or "kept by the pool" of threads of the runtime."""
    if not flushed:
        return "kept"
    return "flushed" if system.settings.cpus == 1 else "kept by the pool"


def _quiet_times(system: System) -> dict[str, float]:
    """Returns the time of each probe on the quiet machine, as earlier sessions found it, by name."""
    return {
        name.removeprefix(QUIET_PROBE).removesuffix("_us"): us
        for name, us in system.capabilities.items()
        if name.startswith(QUIET_PROBE)
    }
