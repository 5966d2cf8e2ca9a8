"""Types of the callbacks through which long jobs report their progress."""

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

__all__ = ["Progress", "Stages", "no_progress", "reported"]

_Step = TypeVar("_Step")

Progress = Callable[[int, int, str], None]
"""Callback that receives the number of steps done, the total number of steps, and a label of the next step."""

Stages = Callable[[str], Progress]
"""Function that takes the name of a stage of a job and returns the progress callback of that stage."""


def no_progress(_stage: str) -> Progress:
    """Returns a progress callback that does nothing, whatever the stage of the job."""
    return lambda _done, _total, _what: None


def reported(steps: Collection[_Step], label: Callable[[_Step], str], progress: Progress | None) -> Iterator[_Step]:
    """Yields the steps of a job; calls `progress` before each step and once after the last.

    Args:
        steps: Steps of the job.
        label: Function that returns the label of a step.
        progress: Progress callback; None to report nothing.
    """
    report = progress or no_progress("")
    for done, step in enumerate(steps):
        report(done, len(steps), label(step))
        yield step
    report(len(steps), len(steps), "")
