"""A neighbour: a second process that loops networks on other CPUs of this host, while this process measures."""

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import median
from typing import Any, Protocol

from costmodel.errors import CostModelError, MeasurementError
from costmodel.measure.denormals import denormals_flushed
from costmodel.runtimes.base import Runner

__all__ = ["NEAR_NS", "Neighbour", "NeighbourProcess"]

# Longest round trip between CPUs that share a last-level cache. On a Zen 4, about 160 ns were usual while they shared
# one, and 500 ns while they did not (docs/adr/0025).
NEAR_NS = 250.0
# What the process is asked to do instead of running a network.
_REST, _ECHO, _END = -1, -2, -3
# Positions of the shared cells, each in a cache line of its own: what is asked, what runs, and both ends of an echo.
_ASKED, _RUNNING, _PING, _PONG, _CELLS = 0, 16, 32, 48, 64
# Seconds in which a network that was asked for has to have run once; the slowest takes a fraction of a second.
_PATIENCE_S = 60.0
_POLL_S = 0.0005
_SAMPLES, _TRIPS = 7, 100


class Neighbour(Protocol):
    """Something that keeps other CPUs of this host busy on request."""

    def loop(self, number: int) -> None:
        """Starts to run one of its networks, given by its position, again and again; returns after the first run.

        Raises:
            MeasurementError: The network does not run.
        """

    def rest(self) -> None:
        """Ends the loop; returns when the last run has ended."""

    def round_trip_ns(self) -> float:
        """Returns how long a cache line takes to its CPU and back, in nanoseconds; at most `NEAR_NS` if it is near."""


class NeighbourProcess:
    """A `Neighbour` that is a process of its own, pinned to CPUs. Use it as a context manager."""

    def __init__(self, open_networks: Callable[[], Sequence[Runner]], cpus: Sequence[int]) -> None:
        """Prepares the process, which starts when the context is entered.

        Args:
            open_networks: Function that opens the networks in the new process; it is sent there by pickling.
            cpus: Numbers of the CPUs to pin the process to; not pinned if there are none.
        """
        context = multiprocessing.get_context("spawn")
        shared = context.RawArray("q", _CELLS)
        self._cells = _view(shared)
        self._cells[_ASKED] = self._cells[_RUNNING] = _REST
        self._receiver, self._sender = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_serve, args=(open_networks, tuple(cpus), shared, self._sender), daemon=True
        )
        self._own_ns = 0.0

    def __enter__(self) -> "NeighbourProcess":
        """Starts the process and waits until it has opened the networks.

        Raises:
            CostModelError: A network cannot be opened.
        """
        self._process.start()
        self._sender.close()  # so that `recv` ends when the process does
        try:
            self._raise_what_it_sends()
        except BaseException:
            self.__exit__()
            raise
        self._own_ns = self._trip_ns(_PING)
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the process."""
        self._cells[_ASKED] = _END
        self._process.join(timeout=1.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._receiver.close()

    def loop(self, number: int) -> None:
        """Starts to run a network, given by its position, again and again; returns after its first run."""
        self._ask(number)

    def rest(self) -> None:
        """Ends the loop; returns when the last run has ended."""
        self._ask(_REST)

    def round_trip_ns(self) -> float:
        """Returns the time of a round trip in nanoseconds, less what the same loop takes in this process alone."""
        self._ask(_ECHO)
        trip_ns = self._trip_ns(_PONG)
        self._cells[_PING] = -1
        self.rest()
        return max(0.0, trip_ns - self._own_ns)

    def _trip_ns(self, answer: int) -> float:
        """Returns the median time from writing a cell to reading the value in the cell `answer`, in nanoseconds."""
        cells, value, taken_ns = self._cells, 0, []
        for _ in range(_SAMPLES):
            begin_ns = time.perf_counter_ns()
            for _ in range(_TRIPS):
                value += 1
                cells[_PING] = value
                while cells[answer] != value:
                    pass
            taken_ns.append((time.perf_counter_ns() - begin_ns) / _TRIPS)
        return median(taken_ns)

    def _ask(self, number: int) -> None:
        self._cells[_ASKED] = number
        end_s = time.monotonic() + _PATIENCE_S
        while self._cells[_RUNNING] != number:
            if self._receiver.poll(_POLL_S):
                self._raise_what_it_sends()
            if time.monotonic() > end_s:
                raise MeasurementError(f"a network of the neighbour did not run within {_PATIENCE_S:.0f} s")

    def _raise_what_it_sends(self) -> None:
        """Waits for what the process sends, and raises it if it is an error.

        Raises:
            CostModelError: A network cannot be opened, or fails to run.
        """
        try:
            error = self._receiver.recv()
        except EOFError:
            raise MeasurementError(
                "the process beside the measured one ended: is there enough memory for two?"
            ) from None
        if error is not None:
            raise error


def _view(shared: Any) -> memoryview:
    return memoryview(shared).cast("B").cast("q")


def _serve(open_networks: Callable[[], Sequence[Runner]], cpus: Sequence[int], shared: Any, sender: Any) -> None:
    """Does what is asked of the process, until its parent ends or asks for the end."""
    cells = _view(shared)
    with suppress(KeyboardInterrupt, BrokenPipeError):  # the parent gets the signal too, and reports it
        try:
            if cpus:
                os.sched_setaffinity(0, cpus)
            networks = open_networks()
            sender.send(None)
            parent = os.getppid()
            with denormals_flushed():
                while (asked := cells[_ASKED]) != _END and os.getppid() == parent:
                    if asked == _ECHO:
                        _echo(cells)
                    elif asked == _REST:
                        cells[_RUNNING] = asked
                        time.sleep(_POLL_S)
                    while asked >= 0 and cells[_ASKED] == asked:
                        networks[asked].run()
                        cells[_RUNNING] = asked
        except CostModelError as error:
            sender.send(error)


def _echo(cells: memoryview) -> None:
    """Writes each value of one cell to another one, until a negative value ends it."""
    cells[_PING] = value = 0
    cells[_RUNNING] = _ECHO
    while value >= 0:
        if (new := cells[_PING]) != value:
            cells[_PONG] = value = new
    while cells[_ASKED] == _ECHO:
        time.sleep(0)
