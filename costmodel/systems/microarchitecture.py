"""Facts about microarchitectures, from which the speed of a processor is guessed that nobody has measured."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["Microarchitecture", "microarchitecture_facts"]


@dataclass(frozen=True, slots=True)
class Microarchitecture:
    """Facts about a microarchitecture.

    Attributes:
        year: When the first server processor with it was released, as a year with a fraction.
        flops_per_cycle: Number of float32 operations that one core completes in a cycle, counting a multiplication with
            an addition as two.
    """

    year: float
    flops_per_cycle: int


@cache
def microarchitecture_facts(slug: str) -> Microarchitecture | None:
    """Returns the facts about a microarchitecture, named as `Host.microarchitecture`; None if it is not listed."""
    text = (files("costmodel.systems") / "microarchitectures.toml").read_text(encoding="utf-8")
    entry = tomllib.loads(text).get(slug)
    return None if entry is None else Microarchitecture(**entry)
