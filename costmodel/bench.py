"""Benchmark what is missing: each unique sequence once per system, resumable at any moment."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from costmodel.capability import measure_capabilities
from costmodel.errors import LoweringError, MeasurementError
from costmodel.host import circumstances
from costmodel.lock import measuring_lock
from costmodel.measurement import (
    Measurement,
    Protocol,
    capability_latency_us,
    is_data_dependent,
    measure,
    now,
    pinned,
    reference_sequence,
)
from costmodel.model import Model
from costmodel.runtimes import Runner, Runtime
from costmodel.sequence import LayerSequence
from costmodel.store import Store
from costmodel.systems import System, check_same

__all__ = ["Bench", "BenchReport", "Progress"]

# Called with (done, total, what is next); seconds left are the caller's to compute and show.
Progress = Callable[[int, int, str], None]


@dataclass
class BenchReport:
    """What one run of the benchmark did.

    Attributes:
        measured: Sequences and models timed in this run.
        reused: Those that had been measured before.
        unstable: Of the measured ones, those whose rounds never agreed.
        failed: Reason for each that would not run: a sequence by its signature, a model by its name.
        left: Those that the budget did not reach.
        dropped: Samples that turned out not to run.
        repeated: Sequences measured once more, to know how well a measurement repeats.
        seconds: Time that this run took.
    """

    measured: int = 0
    reused: int = 0
    unstable: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: int = 0
    dropped: int = 0
    repeated: int = 0
    seconds: float = 0.0

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
        return self


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What waits for its turn; it is loaded only then.

    Attributes:
        label: What to call it while it is measured.
        sequence: Whose signature the measurement gets.
        model: To be measured end to end; None for a sequence by itself.
    """

    label: str
    sequence: LayerSequence
    model: Model | None


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
    ) -> None:
        """Prepare to measure.

        Args:
            store: Where results go, each as soon as it is there.
            system: This host under the name that the records will carry.
            runtime: What runs the networks.
            protocol: How to time; the default is the one that data sets are made with.
            lock: Gives the context in which this process alone measures.
            clock_ns: A monotonic clock, in nanoseconds.
        """
        self.store = store
        self.system = system
        self._runtime = runtime
        self._protocol = protocol or Protocol()
        self._lock = lock
        self._clock_ns = clock_ns

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
            self._cpus = stack.enter_context(pinned(self.system.settings.threads))
            if not self.system.capabilities:
                found = measure_capabilities(self._runtime, self.system.settings, self._clock_ns)
                self.system = replace(self.system, capabilities=found)
            if known is None or not known.capabilities:
                self.store.put_system(self.system)
            self._reference = self._runtime.open_sequence(reference_sequence(), self.system.settings)
            # The stored value may be from a busy moment, and then every round would pass for a quiet one.
            self._quiet_reference_us = min(
                self.system.capabilities["reference_us"], capability_latency_us(self._reference, self._clock_ns)
            )
            self._held = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the CPUs and the lock back."""
        self._held.close()

    def run(
        self,
        sequences: Iterable[LayerSequence],
        models: Mapping[str, tuple[LayerSequence, Model]] | None = None,
        *,
        budget_s: float | None = None,
        progress: Progress | None = None,
        again: bool = False,
    ) -> BenchReport:
        """Measure what the store does not have, each signature once.

        Args:
            sequences: What to measure, the most important first.
            models: Whole models by name, each with its graph as one sequence, measured end to end after them.
            budget_s: No measurement starts later than this; None for no limit.
            progress: Told before each measurement.
            again: Measure once more what was measured before, as a repeat.
        """
        started_ns = self._clock_ns()
        report = BenchReport()
        unique = {sequence.signature: _Waiting(sequence.kind, sequence, None) for sequence in sequences}
        for name, (whole, model) in (models or {}).items():
            unique.setdefault(whole.signature, _Waiting(name, whole, model))
        known = set() if again else set(self.store.latencies_us(self.system.name))
        waiting = [item for signature, item in unique.items() if signature not in known]
        report.reused = len(unique) - len(waiting)
        self.store.put_sequences(item.sequence for item in unique.values())
        for done, item in enumerate(waiting):
            if budget_s is not None and (self._clock_ns() - started_ns) / 1e9 >= budget_s:
                report.left = len(waiting) - done
                break
            if progress is not None:
                progress(done, len(waiting), item.label)
            try:
                measurement = self.measure(item.sequence, self._opened(item))
            except (MeasurementError, LoweringError) as error:
                report.failed[item.sequence.signature if item.model is None else item.label] = str(error)
                continue
            self.store.put_measurement(self.system.name, measurement)
            report.measured += 1
            report.unstable += not measurement.stable
        if progress is not None:
            progress(len(waiting) - report.left, len(waiting), "")
        report.seconds = (self._clock_ns() - started_ns) / 1e9
        return report

    def _opened(self, item: _Waiting) -> Runner:
        if item.model is None:
            return self._runtime.open_sequence(item.sequence, self.system.settings)
        return self._runtime.open_model(item.model, self.system.settings)

    def measure(self, sequence: LayerSequence, runner: Runner) -> Measurement:
        """Time one loaded network under this bench's protocol, without storing it."""
        before = circumstances()
        rounds, references, stable = measure(
            runner, self._reference, self._quiet_reference_us, self._protocol, self._clock_ns
        )
        return Measurement(
            signature=sequence.signature,
            rounds_us=rounds,
            reference_us=references,
            stable=stable,
            data_dependent=is_data_dependent(sequence),
            circumstances={
                "protocol": self._protocol.version,
                "runtime": f"{self.system.runtime} {self._runtime.version}",
                "level": self.system.settings.level,
                "threads": self.system.settings.threads,
                "spinning": self.system.settings.spinning,
                "cpus": list(self._cpus),
                "asserted": self.system.asserted,
                "before": before,
                "after": circumstances(),
            },
            measured_at=now(),
        )
