"""Measures what the store lacks: each unique sequence once per system, resumable at any moment."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from costmodel.errors import LoweringError, MeasurementError
from costmodel.ir.footprint import read_bytes
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.call_overhead import LONG_CHAIN_LAYERS, SHORT_CHAIN_LAYERS, call_overhead_us, tiny_chain
from costmodel.measure.capability import measure_capabilities
from costmodel.measure.groups import Group, evicted_bytes, grouped
from costmodel.measure.lock import measuring_lock
from costmodel.measure.measurement import (
    Measurement,
    Protocol,
    is_data_dependent,
    now,
    pinned,
    reference_sequence,
)
from costmodel.measure.round_robin import CacheEvictor, TimedNetwork, is_precise, take_turns, try_out
from costmodel.measure.thread_sync import ThreadSyncMonitor, thread_sync_sequence
from costmodel.onnx_io.model import Model
from costmodel.progress import Progress
from costmodel.runtimes.base import Runner, Runtime
from costmodel.store.store import Store
from costmodel.systems.host import probe_environment
from costmodel.systems.system import System, check_same_system

__all__ = ["BenchReport", "BenchmarkSession"]

# Number of pairs of tiny networks, spread over a group, from which the call overhead is measured.
_PROBES = 8


@dataclass
class BenchReport:
    """The result of one run of the benchmark; numbers count sequences, whole models included.

    Attributes:
        measured: Number of sequences that were measured for the first time.
        reused: Number of sequences that the store had already.
        unstable: Number of measurements whose rounds did not agree, or during which threads were out of sync.
        failed: Reason for each that does not run: a sequence by its signature, a model by its name.
        left: Number of sequences that the budget did not reach.
        dropped: Number of samples that do not run.
        repeated: Number of sequences that were measured again, because another sequence of their model was missing.
        seconds: Duration of the run.
        waiting_seconds: Part of `seconds` lost while threads were out of sync: waiting, and discarded runs.
    """

    measured: int = 0
    reused: int = 0
    unstable: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: int = 0
    dropped: int = 0
    repeated: int = 0
    seconds: float = 0.0
    waiting_seconds: float = 0.0

    def __iadd__(self, other: "BenchReport") -> "BenchReport":
        """Adds the result of another run."""
        self.measured += other.measured
        self.reused += other.reused
        self.unstable += other.unstable
        self.failed |= other.failed
        self.left += other.left
        self.dropped += other.dropped
        self.repeated += other.repeated
        self.seconds += other.seconds
        self.waiting_seconds += other.waiting_seconds
        return self


class BenchmarkSession:
    """A benchmark session on this host, which holds the measuring lock and the pinned CPUs while it is open.

    Use it as a context manager. Entering measures the system's capabilities, unless the store has them.
    """

    def __init__(
        self,
        store: Store,
        system: System,
        runtime: Runtime,
        *,
        protocol: Protocol | None = None,
        lock: Callable[[], Any] = measuring_lock,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Stores the arguments; entering the session opens it.

        Args:
            store: Store that receives each result as soon as it is measured.
            system: This host as a system, under the name that the records will carry.
            runtime: Runtime that runs the networks.
            protocol: Measurement protocol; by default the one that data sets are made with.
            lock: Returns a context manager that excludes other measuring processes.
            clock_ns: Monotonic clock, in nanoseconds.
            sleep: Function that waits for a number of seconds.
        """
        self.store = store
        self.system = system
        self._runtime = runtime
        self._protocol = protocol or Protocol()
        self._lock = lock
        self._clock_ns = clock_ns
        self._sleep = sleep

    def __enter__(self) -> "BenchmarkSession":
        """Takes the lock, pins the CPUs, and measures the system's capabilities if the store lacks them.

        Raises:
            HostBusyError: Another process is measuring.
            SystemMismatchError: The name of the system belongs to another machine, runtime or setting.
        """
        known = self.store.systems().get(self.system.name)
        if known is not None:
            check_same_system(known, self.system)
            self.system = replace(self.system, capabilities=known.capabilities)
        with ExitStack() as stack:
            stack.enter_context(self._lock())
            self._cpus = stack.enter_context(pinned(self.system.settings.cpus))
            if not self.system.capabilities:
                capabilities = measure_capabilities(self._runtime, self.system.settings, self._clock_ns)
                self.system = replace(self.system, capabilities=capabilities)
            if known is None or not known.capabilities:
                self.store.put_system(self.system)
            self._reference = self._runtime.open_sequence(reference_sequence(), self.system.settings)
            multithreaded = self.system.settings.threads > 1
            self._thread_sync = ThreadSyncMonitor(
                self._opened(thread_sync_sequence()) if multithreaded else None,
                self._protocol,
                self.system.capabilities.get("handover_us"),
                clock_ns=self._clock_ns,
                sleep=self._sleep,
            )
            stack.callback(self._store_in_sync_time)
            self._held = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Unpins the CPUs and releases the lock."""
        self._held.close()

    def _store_in_sync_time(self) -> None:
        """Stores the fastest in-sync time with the system: threads may be out of sync throughout the next session."""
        if self._thread_sync.in_sync_us < self.system.capabilities.get("handover_us", math.inf):
            capabilities = {**self.system.capabilities, "handover_us": self._thread_sync.in_sync_us}
            self.system = replace(self.system, capabilities=capabilities)
            self.store.put_system(self.system)

    def run(
        self,
        groups: Iterable[Group],
        *,
        budget_s: float | None = None,
        progress: Progress | None = None,
        again: bool = False,
    ) -> BenchReport:
        """Measures the groups of which the store lacks a sequence.

        Args:
            groups: Groups to measure, the most important first. Sequences of a model that are measured already take
                part in the laps of their group, and are thereby measured again.
            budget_s: Seconds after which no lap over a group starts; None for no limit.
            progress: Progress callback, called before each group and at the end.
            again: Whether to measure sequences again that are measured already.
        """
        started_ns = self._clock_ns()
        deadline_ns = math.inf if budget_s is None else started_ns + budget_s * 1e9
        report = BenchReport()
        known = set() if again else set(self.store.latencies_us(self.system.name))
        planned: list[tuple[Group, set[str]]] = []
        seen: set[str] = set()
        for group in groups:
            members = {s.signature: s for s in (*group.sequences, *([group.whole] if group.whole else []))}
            planned.append((group, members.keys() - known - seen - group.context_only))
            seen |= members.keys()
            self.store.put_sequences(members.values())
        report.reused = len(known & seen)
        done, total = 0, sum(len(missing) for _, missing in planned)
        for group, missing in planned:
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
        """Measures a group and stores the results; large groups are split into portions that fit into memory."""
        of_model = group.footprint_bytes is not None
        bare = {s.signature: s for s in group.sequences if s != group.whole and (of_model or s.signature in missing)}
        wholes = [group.whole] if group.whole is not None else []
        for portion in grouped(bare.values()) or [Group("", ())]:
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
            evictor = self._cache_evictor(group, portion.sequences)
            for measurement in self._timed(loaded, evictor, missing, deadline_ns, group.footprint_bytes):
                if measurement.signature in group.context_only:
                    continue
                self.store.put_measurement(self.system.name, measurement)
                report.measured += measurement.signature in missing
                report.repeated += measurement.signature not in missing
                report.unstable += not measurement.stable
            report.waiting_seconds += self._thread_sync.lost_us / 1e6
            report.failed |= {name: str(entry.error) for name, (_, entry) in entries.items() if entry.error is not None}
            wholes = []

    def measure_model(self, whole: LayerSequence, model: Model) -> Measurement:
        """Measures one model end to end under the protocol of the session, without storing the result.

        Raises:
            MeasurementError: The model does not run.
            LoweringError: The runtime cannot load the model.
        """
        entry = TimedNetwork(self._opened(whole, model), whole=True)
        for measurement in self._timed([(whole, entry)], CacheEvictor(0), {whole.signature}):
            return measurement
        assert entry.error is not None
        raise entry.error

    def _opened(self, sequence: LayerSequence, model: Model | None = None) -> Runner:
        if model is None:
            return self._runtime.open_sequence(sequence, self.system.settings)
        return self._runtime.open_model(model, self.system.settings)

    def _cache_evictor(self, group: Group, sequences: Iterable[LayerSequence]) -> CacheEvictor:
        """Makes an evictor that evicts the weights of `sequences` from the caches as far as the whole model would."""
        return CacheEvictor(evicted_bytes(group.footprint_bytes, sum(map(read_bytes, sequences)), self.system.host))

    def _timed(
        self,
        entries: Sequence[tuple[LayerSequence, TimedNetwork]],
        evictor: CacheEvictor,
        missing: Set[str],
        deadline_ns: float = math.inf,
        footprint_bytes: int | None = None,
    ) -> Iterator[Measurement]:
        """Times networks in laps and yields their measurements; yields nothing if all missing ones fail."""
        before = probe_environment()
        self._thread_sync.restart()
        layers = [entry for _, entry in entries if not entry.whole]
        for entry in layers:
            try_out(entry)
        if not any(sequence.signature in missing for sequence, entry in entries if entry.error is None):
            return
        # Opened after the networks whose call overhead they measure: it depends on where in memory a network lies.
        shorts, longs = (
            [TimedNetwork(self._opened(tiny_chain(n))) for _ in range(_PROBES)]
            for n in (SHORT_CHAIN_LAYERS, LONG_CHAIN_LAYERS)
        )
        probes = [probe for pair in zip(shorts, longs, strict=True) for probe in pair]
        take_turns(
            [entry for _, entry in entries],
            probes,
            self._reference,
            evictor,
            self._protocol,
            self._clock_ns,
            deadline_ns,
            self._thread_sync,
        )
        times_us = ([time_us for probe in kind for time_us in probe.times_us] for kind in (shorts, longs))
        overhead_us = call_overhead_us(*times_us) if layers else 0.0
        environment = {**self._environment(before), "footprint_bytes": footprint_bytes}
        for sequence, entry in entries:
            if entry.error is None:
                yield Measurement(
                    signature=sequence.signature,
                    pass_times_us=tuple(entry.pass_times_us),
                    reference_us=tuple(entry.reference_us),
                    stable=is_precise(entry.pass_times_us, self._protocol) and not self._thread_sync.checks_out_of_sync,
                    overhead_us=0.0 if entry.whole else overhead_us,
                    data_dependent=is_data_dependent(sequence),
                    environment=environment,
                    measured_at=now(),
                )

    def _environment(self, before: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "protocol": self._protocol.version,
            "runtime": f"{self.system.runtime} {self._runtime.version}",
            "level": self.system.settings.level,
            "threads": self.system.settings.threads,
            "inter_threads": self.system.settings.inter_threads,
            "spinning": self.system.settings.spinning,
            "cpus": list(self._cpus),
            "asserted": self.system.asserted,
            **self._thread_sync.metadata(),
            "before": before,
            "after": probe_environment(),
        }
