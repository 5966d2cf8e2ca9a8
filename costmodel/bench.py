"""Benchmark what is missing: each unique sequence once per system, resumable at any moment."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from costmodel.capability import measure_capabilities
from costmodel.errors import LoweringError, MeasurementError
from costmodel.groups import Group, grouped, read_bytes, swept_bytes
from costmodel.handover import Handover, handover_sequence
from costmodel.host import circumstances
from costmodel.lock import measuring_lock
from costmodel.measurement import (
    Measurement,
    Protocol,
    is_data_dependent,
    now,
    pinned,
    reference_sequence,
)
from costmodel.model import Model
from costmodel.overhead import LONG, SHORT, call_overhead_us, tiny_chain
from costmodel.roundrobin import Entry, Sweep, is_known, take_turns, try_out
from costmodel.runtimes import Runner, Runtime
from costmodel.sequence import LayerSequence
from costmodel.store import Store
from costmodel.systems import System, check_same

__all__ = ["Bench", "BenchReport", "Progress"]

# Pairs of networks that show what a call costs, spread over a group.
_PROBES = 8

# Called with (done, total, what is next); seconds left are the caller's to compute and show.
Progress = Callable[[int, int, str], None]


@dataclass
class BenchReport:
    """What one run of the benchmark did.

    Attributes:
        measured: Sequences and models timed in this run that were not known.
        reused: Those that had been measured before.
        unstable: Of the measured ones, those whose rounds never agreed.
        failed: Reason for each that would not run: a sequence by its signature, a model by its name.
        left: Those that the budget did not reach.
        dropped: Samples that turned out not to run.
        repeated: Times that one was timed that was known, because another layer of its model was not.
        seconds: Time that this run took.
        waiting_seconds: Of it, until the machine's cores were near each other, and what was timed in vain before.
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
        """Take in what another run did."""
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


class Bench:
    """A host, a runtime and a store, ready to measure: holds the measuring lock and the pinned CPUs while open.

    Use as a context manager. Entering measures what the system can do, if the store does not know yet.
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
        """Prepare to measure.

        Args:
            store: Where results go, each as soon as it is there.
            system: This host under the name that the records will carry.
            runtime: What runs the networks.
            protocol: How to time; the default is the one that data sets are made with.
            lock: Gives the context in which this process alone measures.
            clock_ns: A monotonic clock, in nanoseconds.
            sleep: Rests for so many seconds.
        """
        self.store = store
        self.system = system
        self._runtime = runtime
        self._protocol = protocol or Protocol()
        self._lock = lock
        self._clock_ns = clock_ns
        self._sleep = sleep

    def __enter__(self) -> "Bench":
        """Take the lock and the CPUs, and get to know the system.

        Raises:
            HostBusyError: Another process is measuring.
            SystemMismatchError: The name belongs to another machine, runtime or setting.
        """
        known = self.store.systems().get(self.system.name)
        if known is not None:
            check_same(known, self.system)
            self.system = replace(self.system, capabilities=known.capabilities)
        with ExitStack() as stack:
            stack.enter_context(self._lock())
            self._cpus = stack.enter_context(pinned(self.system.settings.cpus))
            if not self.system.capabilities:
                found = measure_capabilities(self._runtime, self.system.settings, self._clock_ns)
                self.system = replace(self.system, capabilities=found)
            if known is None or not known.capabilities:
                self.store.put_system(self.system)
            self._reference = self._runtime.open_sequence(reference_sequence(), self.system.settings)
            several = self.system.settings.threads > 1
            self._handover = Handover(
                self._opened(handover_sequence()) if several else None,
                self._protocol,
                self.system.capabilities.get("handover_us"),
                clock_ns=self._clock_ns,
                sleep=self._sleep,
            )
            stack.callback(self._keep_handover)
            self._held = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the CPUs and the lock back."""
        self._held.close()

    def _keep_handover(self) -> None:
        """Keep how near the threads can be with the system: the next run may not meet them so."""
        if self._handover.near_us < self.system.capabilities.get("handover_us", math.inf):
            found = {**self.system.capabilities, "handover_us": self._handover.near_us}
            self.system = replace(self.system, capabilities=found)
            self.store.put_system(self.system)

    def run(
        self,
        groups: Iterable[Group],
        *,
        budget_s: float | None = None,
        progress: Progress | None = None,
        again: bool = False,
    ) -> BenchReport:
        """Measure the groups in which the store does not have everything.

        Args:
            groups: What to measure, the most important first. What is known of a model takes its turns with the rest,
                and is measured once more by that.
            budget_s: No pass over a group starts later than this; None for no limit.
            progress: Told before each group.
            again: Measure once more what was measured before.
        """
        started_ns = self._clock_ns()
        deadline_ns = math.inf if budget_s is None else started_ns + budget_s * 1e9
        report = BenchReport()
        known = set() if again else set(self.store.latencies_us(self.system.name))
        planned: list[tuple[Group, set[str]]] = []
        seen: set[str] = set()
        for group in groups:
            asked = {s.signature: s for s in (*group.sequences, *([group.whole] if group.whole else []))}
            planned.append((group, asked.keys() - known - seen - group.company))
            seen |= asked.keys()
            self.store.put_sequences(asked.values())
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
        """Measure a group of which something is missing, in portions that fit into memory, and store it."""
        of_model = group.footprint_bytes is not None
        bare = {s.signature: s for s in group.sequences if s != group.whole and (of_model or s.signature in missing)}
        wholes = [group.whole] if group.whole is not None else []
        for portion in grouped(bare.values()) or [Group("", ())]:
            entries: dict[str, tuple[LayerSequence, Entry]] = {}
            for sequence in (*portion.sequences, *wholes):
                is_whole = sequence == group.whole
                model = group.model if is_whole else None
                name = sequence.signature if model is None else group.label
                if name in report.failed:
                    continue
                try:
                    entries[name] = sequence, Entry(self._opened(sequence, model), whole=is_whole)
                except (MeasurementError, LoweringError) as error:
                    report.failed[name] = str(error)
            loaded = list(entries.values())
            sweep = self._sweep(group, portion.sequences)
            for measurement in self._timed(loaded, sweep, missing, deadline_ns, group.footprint_bytes):
                if measurement.signature in group.company:
                    continue
                self.store.put_measurement(self.system.name, measurement)
                report.measured += measurement.signature in missing
                report.repeated += measurement.signature not in missing
                report.unstable += not measurement.stable
            report.waiting_seconds += self._handover.lost_us / 1e6
            report.failed |= {name: str(entry.error) for name, (_, entry) in entries.items() if entry.error is not None}
            wholes = []

    def measure_model(self, whole: LayerSequence, model: Model) -> Measurement:
        """Time one model end to end under this bench's protocol, without storing it.

        Raises:
            MeasurementError: It does not run.
            LoweringError: It does not load.
        """
        entry = Entry(self._opened(whole, model), whole=True)
        for measurement in self._timed([(whole, entry)], Sweep(0), {whole.signature}):
            return measurement
        assert entry.error is not None
        raise entry.error

    def _opened(self, sequence: LayerSequence, model: Model | None = None) -> Runner:
        if model is None:
            return self._runtime.open_sequence(sequence, self.system.settings)
        return self._runtime.open_model(model, self.system.settings)

    def _sweep(self, group: Group, sequences: Iterable[LayerSequence]) -> Sweep:
        """What has to be read besides, so that the weights of these lie as far away as they do in the model."""
        return Sweep(swept_bytes(group.footprint_bytes, sum(map(read_bytes, sequences)), self.system.host))

    def _timed(
        self,
        entries: Sequence[tuple[LayerSequence, Entry]],
        sweep: Sweep,
        missing: Set[str],
        deadline_ns: float = math.inf,
        footprint_bytes: int | None = None,
    ) -> Iterator[Measurement]:
        """What is measured of entries that take turns; nothing if all that are missing fail."""
        before = circumstances()
        self._handover.restart()
        layers = [entry for _, entry in entries if not entry.whole]
        for entry in layers:
            try_out(entry)
        if not any(sequence.signature in missing for sequence, entry in entries if entry.error is None):
            return
        # Opened after what they are to stand for: what a call costs depends on where in memory its network came to lie.
        shorts, longs = ([Entry(self._opened(tiny_chain(n))) for _ in range(_PROBES)] for n in (SHORT, LONG))
        probes = [probe for pair in zip(shorts, longs, strict=True) for probe in pair]
        take_turns(
            [entry for _, entry in entries],
            probes,
            self._reference,
            sweep,
            self._protocol,
            self._clock_ns,
            deadline_ns,
            self._handover,
        )
        times_us = ([time_us for probe in kind for time_us in probe.times_us] for kind in (shorts, longs))
        overhead_us = call_overhead_us(*times_us) if layers else 0.0
        told = {**self._circumstances(before), "footprint_bytes": footprint_bytes}
        for sequence, entry in entries:
            if entry.error is None:
                yield Measurement(
                    signature=sequence.signature,
                    rounds_us=tuple(entry.rounds_us),
                    reference_us=tuple(entry.reference_us),
                    stable=is_known(entry.rounds_us, self._protocol) and not self._handover.apart,
                    overhead_us=0.0 if entry.whole else overhead_us,
                    data_dependent=is_data_dependent(sequence),
                    circumstances=told,
                    measured_at=now(),
                )

    def _circumstances(self, before: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "protocol": self._protocol.version,
            "runtime": f"{self.system.runtime} {self._runtime.version}",
            "level": self.system.settings.level,
            "threads": self.system.settings.threads,
            "inter_threads": self.system.settings.inter_threads,
            "spinning": self.system.settings.spinning,
            "cpus": list(self._cpus),
            "asserted": self.system.asserted,
            **self._handover.told(),
            "before": before,
            "after": circumstances(),
        }
