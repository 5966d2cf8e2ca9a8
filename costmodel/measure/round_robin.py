"""Round-robin timing: all networks of a group run one after the other, again and again, until the times agree.

Inside a model a layer follows other layers: its weights have left the caches since its last run, its input has just
been written, and the memory system is busy with other data. A network that is timed back to back meets none of these
conditions; a network that takes turns with others meets all of them, at no extra cost, because every run is timed
(docs/adr/0005). The layers of a very small model are the exception: nothing leaves the caches between its runs.

A lap runs a list of networks once, one after the other: all layers of a group, or one whole model. A pass gives each
lap one turn, in which a short lap is run several times.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from costmodel.errors import MeasurementError
from costmodel.interruption import raise_if_interrupted
from costmodel.measure.machine_state import QUIET, MachineStateMonitor
from costmodel.measure.precision import is_precise
from costmodel.measure.protocol import Protocol
from costmodel.measure.stopwatch import timed_us
from costmodel.process_state import garbage_collection_paused
from costmodel.runtimes.base import Runner

__all__ = ["CacheEvictor", "TimedNetwork", "take_turns", "try_out"]

_PAGE_BYTES = 1 << 20
_evictor_pages: list[np.ndarray] = []
# A run that spent this long off the CPU, and this share of its time, has lost it to another process.
_PREEMPTED_US, _PREEMPTED_SHARE = 20.0, 0.02


@dataclass(eq=False)
class TimedNetwork:
    """A loaded network with the times of its runs.

    Attributes:
        runner: Runner of the network, which is loaded and has its inputs.
        whole: Whether the network is a whole model, which is timed back to back, as its users run it.
        pass_times_us: Times of the runs in microseconds, a tuple for each pass.
        reference_us: For each pass, the time, in microseconds, that the reference kernel took when it was last timed
            before the network's last run in that pass.
        disturbed_us: Times, in microseconds, of runs while the machine was not quiet, by its state. Most of these runs
            were repeated, and their times are nowhere else.
        error: Error that ended the timing of this network; None if it did not fail.
        tried: Whether the network has been tried out.
    """

    runner: Runner
    whole: bool = False
    pass_times_us: list[tuple[float, ...]] = field(default_factory=list)
    reference_us: list[float] = field(default_factory=list)
    disturbed_us: dict[str, list[float]] = field(default_factory=dict)
    error: MeasurementError | None = None
    tried: bool = False

    @property
    def times_us(self) -> list[float]:
        """Times of all runs so far, in microseconds, in the order taken."""
        return [time for times in self.pass_times_us for time in times]


class CacheEvictor:
    """A `Runner` that reads its own memory, which evicts other data from the caches.

    It takes the place of layers that are in the model but not in the group that is timed.
    """

    def __init__(self, nbytes: int) -> None:
        """Prepares to read `nbytes` of memory, which all evictors share; with 0 bytes a run does nothing."""
        pages = math.ceil(nbytes / _PAGE_BYTES)
        _evictor_pages.extend(np.ones(_PAGE_BYTES // 8) for _ in range(pages - len(_evictor_pages)))
        self._pages = _evictor_pages[:pages]

    @property
    def nbytes(self) -> int:
        """Number of bytes that a run reads: whole megabytes."""
        return sum(page.nbytes for page in self._pages)

    def run(self) -> None:
        """Reads all of the allocated memory once."""
        for page in self._pages:
            page.sum()

    def feed(self) -> None:
        """Does nothing, because an evictor has no inputs."""


def take_turns(
    networks: Sequence[TimedNetwork],
    probes: Sequence[TimedNetwork],
    reference: Runner,
    evictor: Runner,
    protocol: Protocol,
    clock_ns: Callable[[], int],
    deadline_ns: float = math.inf,
    monitor: MachineStateMonitor | None = None,
    cpu_ns: Callable[[], int] | None = None,
    *,
    warm: bool = False,
) -> int:
    """Times all networks in passes, with the probes spread evenly between the layers.

    The times are stored in the networks. A network that fails stores its error instead and is not run again.

    Args:
        networks: The networks to time: whole models, and layers in the order of their model.
        probes: Networks that determine the call overhead; see `costmodel.measure.call_overhead`.
        reference: The reference kernel, timed every `protocol.reference_every_us`.
        evictor: Runner that evicts the caches at the beginning of each lap over the layers.
        protocol: Measurement protocol: how many passes to make, and when the times are known well enough.
        clock_ns: Reads a monotonic clock, in nanoseconds.
        deadline_ns: Clock value after which no pass begins, except the first one.
        monitor: Monitor of the machine's state; runs that were timed while the machine was not quiet are repeated.
        cpu_ns: Time that this thread has spent on a CPU, in nanoseconds. The time of a run that lost the CPU to another
            process is then the time that it spent on the CPU. None if other threads take part in a run.
        warm: Whether each layer runs once untimed just before each run that is timed, as for a model that is so small
            that everything it needs stays in a core's own cache.

    Returns:
        Number of passes that were made.

    Raises:
        MeasurementError: The reference kernel failed.
    """
    layers = [network for network in networks if not network.whole]
    laps = [[network] for network in networks if network.whole]
    if layers:
        laps.append([TimedNetwork(evictor), *_interleaved(layers, probes)])
    timer = _Timer(
        reference, protocol, clock_ns, monitor or MachineStateMonitor((), protocol), deadline_ns, cpu_ns, warm
    )
    with garbage_collection_paused():
        # The first runs lay out memory and wake the threads.
        lap_us = [(timer.run_untried if protocol.for_sums else timer.run_untimed)(lap) for lap in laps]
        passes, begin_ns = 0, clock_ns()
        while not _enough(networks, passes, (clock_ns() - begin_ns) / 1000 - timer.monitor.lost_us, protocol):
            if passes and clock_ns() >= deadline_ns:
                break
            for number, lap in enumerate(laps):
                raise_if_interrupted()
                lap_us[number] = timer.turn(lap, lap_us[number])
            passes += 1
        return passes


def try_out(network: TimedNetwork) -> None:
    """Runs a network once; if it fails, stores the error in `network.error`."""
    network.tried = True
    try:
        network.runner.run()
    except MeasurementError as error:
        network.error = error


def _interleaved(networks: Sequence[TimedNetwork], probes: Sequence[TimedNetwork]) -> list[TimedNetwork]:
    order: list[TimedNetwork] = []
    for position, network in enumerate(networks):
        order.append(network)
        first, last = (len(probes) * p // len(networks) for p in (position, position + 1))
        order.extend(probes[first:last])
    return order


@dataclass
class _Timer:
    """A timer of laps.

    Between two runs it also times the reference kernel, when that is due, and checks whether the machine is quiet.

    Attributes:
        reference: The reference kernel.
        protocol: Measurement protocol, which sets the time between runs of the reference kernel and the target length
            of a turn.
        clock_ns: Reads a monotonic clock, in nanoseconds.
        monitor: Monitor of the machine's state.
        deadline_ns: Clock value at which all waiting for a quiet machine ends.
        cpu_ns: Reads the time that this thread has spent on a CPU, in nanoseconds; None if other threads take part in a
            run.
        warm: Whether each layer runs once untimed just before each run that is timed.
        reference_us: Time that the reference kernel took when it was last timed, in microseconds.
        due_ns: Clock value at which the reference kernel is to be timed again.
    """

    reference: Runner
    protocol: Protocol
    clock_ns: Callable[[], int]
    monitor: MachineStateMonitor
    deadline_ns: float
    cpu_ns: Callable[[], int] | None
    warm: bool = False
    reference_us: float = math.nan
    due_ns: float = -math.inf

    def turn(self, lap: Sequence[TimedNetwork], lap_us: float) -> float:
        """Gives a lap its turn and keeps the times of its networks.

        A lap shorter than `Protocol.short_lap_us` first runs once untimed, so that the timed runs find the caches as
        the lap itself leaves them, and is then timed several times.

        Args:
            lap: Networks of the lap, in the order in which they run.
            lap_us: Time that the lap took on average in its last turn, in microseconds.

        Returns:
            Time that the lap took on average in this turn, in microseconds, without waiting and discarded runs.
        """
        runs = 1
        if lap_us < self.protocol.short_lap_us:
            self.run_untimed(lap)
            runs = max(1, min(self.protocol.max_runs, int(self.protocol.turn_us / max(lap_us, 1.0))))
        begin_ns, lost_us = self.clock_ns(), self.monitor.lost_us
        timed: list[tuple[TimedNetwork, float, float]] = []
        confirmed = 0  # number of leading entries of `timed` that are known to have been timed on the quiet machine
        order = [network for _ in range(runs) for network in lap]
        while len(timed) < len(order):
            network = order[len(timed)]
            self._time_reference_if_due()
            timed.append((network, self._run(network) if network.error is None else math.nan, self.reference_us))
            if self.monitor.due or len(timed) == len(order):
                quiet_enough = self.monitor.stayed_quiet(self.deadline_ns)
                if self.monitor.found != QUIET:
                    for disturbed, time_us, _ in timed[confirmed:]:
                        disturbed.disturbed_us.setdefault(self.monitor.found, []).append(time_us)
                if quiet_enough:
                    confirmed = len(timed)
                else:
                    del timed[confirmed:]
                    if lap_us < self.protocol.short_lap_us:
                        self.run_untimed(lap)
        times: dict[TimedNetwork, list[float]] = {network: [] for network in lap}
        references = {}
        for network, time_us, reference_us in timed:
            times[network].append(time_us)
            references[network] = reference_us
        for network in lap:
            if network.error is None:
                network.pass_times_us.append(tuple(times[network]))
                network.reference_us.append(references[network])
        return ((self.clock_ns() - begin_ns) / 1000 - (self.monitor.lost_us - lost_us)) / runs

    def run_untried(self, lap: Sequence[TimedNetwork]) -> float:
        """Runs the networks of a lap that never ran; returns infinity, because the time of the lap stays unknown."""
        self.run_untimed([network for network in lap if not network.tried])
        return math.inf

    def run_untimed(self, lap: Sequence[TimedNetwork]) -> float:
        """Runs a lap without keeping the times of its networks; returns how long the lap took, in microseconds."""
        begin_ns = self.clock_ns()
        for network in lap:
            if network.error is None:
                self._run(network)
        return (self.clock_ns() - begin_ns) / 1000

    def _run(self, network: TimedNetwork) -> float:
        try:
            if not network.whole:
                if self.warm:
                    network.runner.run()
                network.runner.feed()
            if self.cpu_ns is None:
                return timed_us(network.runner, self.clock_ns)
            begin_ns = self.cpu_ns()
            time_us = timed_us(network.runner, self.clock_ns)
            on_cpu_us = (self.cpu_ns() - begin_ns) / 1000
            waited_us = time_us - on_cpu_us
            # The clock of the CPU time may stand still during a short run.
            lost_cpu = on_cpu_us > 0 and waited_us > max(_PREEMPTED_US, _PREEMPTED_SHARE * time_us)
            return on_cpu_us if lost_cpu else time_us
        except MeasurementError as error:
            network.error = error
            return math.nan

    def _time_reference_if_due(self) -> None:
        if self.clock_ns() >= self.due_ns:
            # The first run of the reference kernel brings it back into the caches.
            timed_us(self.reference, self.clock_ns)
            self.reference_us = timed_us(self.reference, self.clock_ns)
            self.due_ns = self.clock_ns() + self.protocol.reference_every_us * 1000


def _enough(networks: Sequence[TimedNetwork], passes: int, took_us: float, protocol: Protocol) -> bool:
    if passes < protocol.passes:
        return passes >= protocol.min_passes and took_us >= protocol.max_group_us
    if passes >= protocol.max_passes or took_us >= protocol.max_group_us:
        return True
    return all(network.error is not None or is_precise(network.pass_times_us, protocol) for network in networks)
