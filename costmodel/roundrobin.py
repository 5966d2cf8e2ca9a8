"""Timing in turn: every network of a group once, then all of them again, until the times are known well enough.

Inside a model a layer follows other layers: its weights have left the caches since it last ran, its input has just
been written, and the memory system has been busy with something else. A network that is run over and over has none
of that; one that takes its turn among others has all of it, at no cost, because every run is timed (docs/adr/0005).
"""

import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from costmodel.errors import MeasurementError
from costmodel.handover import Handover
from costmodel.measurement import Protocol, timed_us
from costmodel.runtimes import Runner

__all__ = ["Entry", "Sweep", "is_known", "relative_error", "take_turns", "try_out"]

_PAGE_BYTES = 1 << 20
# Times that differ by less agree, whatever share of them it is.
_CLOCK_US = 0.25


@dataclass(eq=False)
class Entry:
    """One network that takes its turns.

    Attributes:
        runner: Loaded and fed.
        whole: Whether it is a whole model, timed as its user meets it: back to back, not in turn with its layers.
        rounds_us: Times so far, those of each pass together.
        reference_us: For each pass the latest time of the reference kernel before it.
        error: What ended it, if it failed.
    """

    runner: Runner
    whole: bool = False
    rounds_us: list[tuple[float, ...]] = field(default_factory=list)
    reference_us: list[float] = field(default_factory=list)
    error: MeasurementError | None = None

    @property
    def times_us(self) -> list[float]:
        """Every time so far."""
        return [time for times in self.rounds_us for time in times]


class Sweep:
    """Reads memory, so that the caches hold that: a `Runner` that stands for layers that are not in a group."""

    def __init__(self, nbytes: int) -> None:
        """Take the memory; 0 bytes make a sweep that does nothing."""
        self._pages = [np.ones(_PAGE_BYTES // 8) for _ in range(math.ceil(nbytes / _PAGE_BYTES))]

    def run(self) -> None:
        """Read all of it."""
        for page in self._pages:
            page.sum()

    def feed(self) -> None:
        """It has no inputs."""


def take_turns(
    entries: Sequence[Entry],
    probes: Sequence[Entry],
    reference: Runner,
    sweep: Runner,
    protocol: Protocol,
    clock_ns: Callable[[], int],
    deadline_ns: float = math.inf,
    handover: Handover | None = None,
) -> int:
    """Time all entries, each once in a pass, with the probes spread evenly between them.

    An entry that fails keeps its error and takes no more turns.

    Args:
        entries: In the order of their model, if they are of one.
        probes: Networks that show what a call costs beside its layers; see `costmodel.overhead`.
        reference: The reference kernel, timed every `protocol.reference_every_us`.
        sweep: Run each time before all layers take their turn.
        protocol: How many passes, and when they are enough.
        clock_ns: A monotonic clock, in nanoseconds.
        deadline_ns: After this no pass begins, unless none has been made.
        handover: Says whether the threads stayed near each other; what was timed while they did not is timed again.
            None if there is one thread.

    Returns:
        How many passes were made.
    """
    layers = [entry for entry in entries if not entry.whole]
    circles = [[entry] for entry in entries if entry.whole]
    if layers:
        circles.append([Entry(sweep), *_spread(layers, probes)])
    timer = _Timer(reference, protocol, clock_ns, handover or Handover(None, protocol), deadline_ns)
    collecting = gc.isenabled()
    gc.disable()
    try:
        once_us = [timer.circle(circle) for circle in circles]  # the first runs lay out memory and wake the threads
        passes, begin_ns = 0, clock_ns()
        while not _enough(entries, passes, (clock_ns() - begin_ns) / 1000 - timer.handover.lost_us, protocol):
            if passes and clock_ns() >= deadline_ns:
                break
            for number, circle in enumerate(circles):
                once_us[number] = timer.turn(circle, once_us[number])
            passes += 1
        return passes
    finally:
        if collecting:
            gc.enable()


def try_out(entry: Entry) -> None:
    """Run an entry once; one that fails keeps its error."""
    try:
        entry.runner.run()
    except MeasurementError as error:
        entry.error = error


def _spread(entries: Sequence[Entry], probes: Sequence[Entry]) -> list[Entry]:
    order: list[Entry] = []
    for position, entry in enumerate(entries):
        order.append(entry)
        first, last = (len(probes) * p // len(entries) for p in (position, position + 1))
        order.extend(probes[first:last])
    return order


@dataclass
class _Timer:
    """Runs circles of entries: each after the other, the reference kernel now and then.

    Attributes:
        reference: The reference kernel.
        protocol: How often it is due, and how long a turn takes.
        clock_ns: A monotonic clock, in nanoseconds.
        handover: Says whether the threads stayed near each other.
        deadline_ns: When nothing is waited for any more.
        reference_us: Its latest time.
        due_ns: When it is due again.
    """

    reference: Runner
    protocol: Protocol
    clock_ns: Callable[[], int]
    handover: Handover
    deadline_ns: float
    reference_us: float = math.nan
    due_ns: float = -math.inf

    def turn(self, circle: Sequence[Entry], once_us: float) -> float:
        """Go around and keep the times; a quick circle once before that, to find its own traces in the caches.

        Args:
            circle: Entries.
            once_us: What going around took the last time.

        Returns:
            What it took this time.
        """
        rounds = 1
        if once_us < self.protocol.cold_start_us:
            self.circle(circle)
            rounds = max(1, min(self.protocol.most_runs, int(self.protocol.turn_us / max(once_us, 1.0))))
        begin_ns, lost_us = self.clock_ns(), self.handover.lost_us
        taken: list[tuple[Entry, float, float]] = []
        stretch = 0  # of what is taken, how much is known to have been timed with threads near each other
        order = [entry for _ in range(rounds) for entry in circle]
        while len(taken) < len(order):
            entry = order[len(taken)]
            self._refer()
            taken.append((entry, self._run(entry) if entry.error is None else math.nan, self.reference_us))
            if self.handover.due or len(taken) == len(order):
                if self.handover.stayed_near(self.deadline_ns):
                    stretch = len(taken)
                else:
                    del taken[stretch:]
                    if once_us < self.protocol.cold_start_us:
                        self.circle(circle)
        times: dict[Entry, list[float]] = {entry: [] for entry in circle}
        references = {}
        for entry, time_us, reference_us in taken:
            times[entry].append(time_us)
            references[entry] = reference_us
        for entry in circle:
            if entry.error is None:
                entry.rounds_us.append(tuple(times[entry]))
                entry.reference_us.append(references[entry])
        return ((self.clock_ns() - begin_ns) / 1000 - (self.handover.lost_us - lost_us)) / rounds

    def circle(self, circle: Sequence[Entry]) -> float:
        """Go around without keeping the times; what it took."""
        begin_ns = self.clock_ns()
        for entry in circle:
            if entry.error is None:
                self._run(entry)
        return (self.clock_ns() - begin_ns) / 1000

    def _run(self, entry: Entry) -> float:
        try:
            if not entry.whole:
                entry.runner.feed()
            return timed_us(entry.runner, self.clock_ns)
        except MeasurementError as error:
            entry.error = error
            return math.nan

    def _refer(self) -> None:
        if self.clock_ns() >= self.due_ns:
            # The first run of the reference brings it back into the caches.
            timed_us(self.reference, self.clock_ns)
            self.reference_us = timed_us(self.reference, self.clock_ns)
            self.due_ns = self.clock_ns() + self.protocol.reference_every_us * 1000


def relative_error(rounds_us: Sequence[Sequence[float]]) -> float:
    """Standard error of the median over rounds, as a share of it; estimated from their spread, outliers aside."""
    lows = np.array([np.median(times) for times in rounds_us])
    centre = float(np.median(lows))
    spread = 1.4826 * float(np.median(np.abs(lows - centre)))
    return 1.2533 * spread / math.sqrt(len(lows)) / centre


def _enough(entries: Sequence[Entry], passes: int, took_us: float, protocol: Protocol) -> bool:
    if passes < protocol.passes:
        return passes >= protocol.fewest_passes and took_us >= protocol.enough_us
    if passes >= protocol.most_passes or took_us >= protocol.enough_us:
        return True
    return all(entry.error is not None or is_known(entry.rounds_us, protocol) for entry in entries)


def is_known(rounds_us: Sequence[Sequence[float]], protocol: Protocol) -> bool:
    """Whether enough rounds agree well enough: to a share of the time, or to less than the clock's own noise."""
    if len(rounds_us) < protocol.fewest_passes:
        return False
    error = relative_error(rounds_us)
    return error <= protocol.agreement or error * float(np.median([t for r in rounds_us for t in r])) <= _CLOCK_US
