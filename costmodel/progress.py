"""Types of the callbacks through which long jobs report their progress."""

from collections.abc import Callable

__all__ = ["Progress", "Stages", "no_progress"]

Progress = Callable[[int, int, str], None]
"""Callback that receives the number of steps done, the total number of steps, and a label of the next step."""

Stages = Callable[[str], Progress]
"""Function that returns the progress callback of the stage of a job with a given name."""


def no_progress(_stage: str) -> Progress:
    """Returns a progress callback that ignores what it receives."""
    return lambda _done, _total, _what: None
