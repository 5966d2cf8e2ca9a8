"""Trials: sessions of a model under one setting, which are timed for a while whenever it is their turn."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from costmodel.measure.stopwatch import timed_us
from costmodel.runtimes.base import Runner, RuntimeSettings

__all__ = ["OpenSession", "Session", "SessionSource", "slice_times_us"]

_LEAST_RUNS = 2


@dataclass(frozen=True, slots=True)
class SessionSource:
    """The file and the settings that a session is opened from.

    Attributes:
        runtime: Name of the runtime.
        settings: Settings of the runtime.
        path: Path of the model file.
        batch: Batch size; None for the shapes of the file.
        shapes: Full shape of inputs by name.
        values: Values of inputs that control what the model does, by name.
    """

    runtime: str
    settings: RuntimeSettings
    path: Path
    batch: int | None = None
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    values: tuple[tuple[str, float], ...] = ()


class Session(Protocol):
    """A model that is being loaded or is loaded, in a process of its own."""

    def wait(self) -> None:
        """Waits until the model is loaded and has run once.

        Raises:
            CostModelError: The model cannot be loaded or run.
        """

    def start(self, slice_s: float) -> None:
        """Begins to run the model back to back for a time in seconds; does not wait for the end."""

    def times_us(self) -> list[float]:
        """Waits for the end and returns the times of the runs in microseconds.

        Raises:
            CostModelError: The model failed to run.
        """

    def close(self) -> None:
        """Ends the session."""


OpenSession = Callable[[SessionSource], Session]
"""Function that begins to load a model and returns the session without waiting."""


def slice_times_us(runner: Runner, slice_s: float, clock_ns: Callable[[], int]) -> list[float]:
    """Runs a model once untimed, then back to back for a time, and returns the times of the runs in microseconds.

    The first run finds caches and threads as other sessions left them.

    Args:
        runner: Runner of the model.
        slice_s: Time in seconds after which no run begins, except the first two.
        clock_ns: Reads a monotonic clock, in nanoseconds.

    Raises:
        MeasurementError: The model failed to run.
    """
    runner.run()
    begin_ns, times = clock_ns(), list[float]()
    while len(times) < _LEAST_RUNS or (clock_ns() - begin_ns) / 1e9 < slice_s:
        times.append(timed_us(runner, clock_ns))
    return times
