"""Timing of networks under the measurement protocol, while a benchmark session holds this host."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from costmodel.errors import LoweringError, MeasurementError
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.groups import fits_in_core
from costmodel.measure.machine_state import MachineStateMonitor
from costmodel.measure.measurement import Measurement, is_data_dependent, kind_of, now
from costmodel.measure.overhead_probes import OverheadProbes
from costmodel.measure.precision import is_precise
from costmodel.measure.protocol import Protocol
from costmodel.measure.round_robin import TimedNetwork, take_turns, try_out
from costmodel.runtimes.base import Runner, Runtime, SurroundedRunner
from costmodel.runtimes.crashes import refusing_after_crashes
from costmodel.systems.host import probe_environment
from costmodel.systems.system import System

__all__ = ["NetworkTimer"]

# Number of pairs of tiny networks, spread over a group, from which the call overhead is measured.
_PROBES = 8
_PROBES_FOR_SUMS = 4


@dataclass(frozen=True, slots=True)
class NetworkTimer:
    """Times networks in laps, on CPUs to which this process is pinned, and makes measurements of their times.

    Attributes:
        runtime: Runtime that runs the networks.
        system: This host, described as a system.
        protocol: Measurement protocol.
        reference: Reference kernel, which is timed between the networks.
        monitor: Monitor of the machine's state.
        evictor: Function that takes a number of bytes and returns a runner that evicts that many bytes from the
            processor's caches.
        clock_ns: Function that returns the time of a monotonic clock in nanoseconds.
        cpu_ns: Function that returns the time that this thread has spent on a CPU, in nanoseconds.
        cpus: Numbers of the CPUs.
        denormals: How denormal numbers are treated, which is recorded with the measurements.
    """

    runtime: Runtime
    system: System
    protocol: Protocol
    reference: Runner
    monitor: MachineStateMonitor
    evictor: Callable[[int], Runner]
    clock_ns: Callable[[], int]
    cpu_ns: Callable[[], int]
    cpus: Sequence[int]
    denormals: str

    def timed(
        self,
        entries: Sequence[tuple[LayerSequence, TimedNetwork]],
        missing: Set[str],
        *,
        evicted_bytes: int,
        deadline_ns: float = math.inf,
        footprint_bytes: int | None = None,
        crashes: Path | None = None,
    ) -> Iterator[Measurement]:
        """Times networks in laps and yields a measurement of each that runs; nothing if none in `missing` runs.

        Args:
            entries: For each network, the sequence that it runs, and the network itself.
            missing: Signatures of the sequences that have to be measured; the others run as their context.
            evicted_bytes: Bytes to evict from the processor's caches before each lap.
            deadline_ns: Time of the monotonic clock after which no further lap starts, in nanoseconds.
            footprint_bytes: Footprint of the model that the sequences are from, which is recorded with the
                measurements; None if there is no model.
            crashes: Folder in which it is remembered at which networks the runtime ended the process; None for no
                memory.
        """
        before = probe_environment()
        evictor = self.evictor(evicted_bytes)
        self.monitor.restart()
        layers = [entry for _, entry in entries if not entry.whole]
        for sequence, entry in entries:
            if not entry.whole:
                self._try_out(sequence, entry, crashes)
        if not any(sequence.signature in missing for sequence, entry in entries if entry.error is None):
            return
        # Opened after the networks whose call overhead they measure: it depends on where in memory a network lies.
        overhead = OverheadProbes.of(
            self.runtime,
            self.system.settings,
            [sequence for sequence, entry in entries if not entry.whole],
            _PROBES_FOR_SUMS if self.protocol.for_sums else _PROBES,
        )
        surroundings = {
            entry: entry.runner.surroundings
            for entry in layers
            if isinstance(entry.runner, SurroundedRunner) and entry.error is None
        }
        # Several networks may have the same surroundings.
        timed_once = {id(runner): TimedNetwork(runner) for runner in surroundings.values()}
        around = {entry: timed_once[id(runner)] for entry, runner in surroundings.items()}
        take_turns(
            [entry for _, entry in entries],
            [*overhead.networks, *timed_once.values()],
            self.reference,
            evictor,
            self.protocol,
            self.clock_ns,
            deadline_ns,
            self.monitor,
            # With several threads, those of the runtime's pool may have lost their CPUs instead.
            self.cpu_ns if self.system.settings.cpus == 1 else None,
            warm=fits_in_core(footprint_bytes, self.system.host),
        )
        environment = {**self._environment(before), "footprint_bytes": footprint_bytes}
        quiet = not self.monitor.kept_disturbed
        for sequence, entry in entries:
            if entry.error is None:
                yield Measurement(
                    signature=sequence.signature,
                    kind=kind_of(sequence, whole=entry.whole),
                    pass_times_us=tuple(entry.pass_times_us),
                    reference_us=tuple(entry.reference_us),
                    # So that latencies that are precise by themselves take precedence over those for sums.
                    stable=quiet and not self.protocol.for_sums and is_precise(entry.pass_times_us, self.protocol),
                    overhead_us=0.0 if entry.whole else overhead.overhead_us(sequence, around.get(entry)),
                    data_dependent=is_data_dependent(sequence),
                    environment={**environment, **_disturbed(entry)},
                    measured_at=now(),
                )

    def _try_out(self, sequence: LayerSequence, entry: TimedNetwork, crashes: Path | None) -> None:
        """Runs a network once, unless two processes have ended while they ran it; what is wrong becomes its error."""
        if crashes is None:
            try_out(entry)
            return
        runtime = f"{self.runtime.name} {self.runtime.version}"
        file = crashes / f"{runtime.replace(' ', '-')}-{sequence.signature}.crashes"
        try:
            with refusing_after_crashes(file, f"{runtime} ran {sequence.kind}"):
                try_out(entry)
        except LoweringError as error:
            entry.error = MeasurementError(str(error))

    def _environment(self, before: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "protocol": self.protocol.version,
            **({"for_sums": True} if self.protocol.for_sums else {}),
            "runtime": f"{self.system.runtime} {self.runtime.version}",
            "level": self.system.settings.level,
            "threads": self.system.settings.threads,
            "inter_threads": self.system.settings.inter_threads,
            "spinning": self.system.settings.spinning,
            "cpus": list(self.cpus),
            "asserted": self.system.asserted,
            "denormals": self.denormals,
            **self.monitor.metadata(),
            "before": before,
            "after": probe_environment(),
        }


def _disturbed(entry: TimedNetwork) -> dict[str, Any]:
    """Returns the entry on a network's runs on the disturbed machine: for each state, their number and median time."""
    if not entry.disturbed_us:
        return {}
    return {"disturbed_us": {s: [len(us), round(median(us), 3)] for s, us in entry.disturbed_us.items()}}
