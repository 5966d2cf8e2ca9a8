"""Finds the systems of a host, and those among them that are nearest to a setting."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from costmodel.estimate.thread_speedup import TYPICAL, ThreadSpeedup
from costmodel.serving.tuning.settings import Setting
from costmodel.systems.host import Host
from costmodel.systems.system import System, default_name, same_hardware

__all__ = ["Nearest", "by_distance", "by_own_speedup", "systems_of_host", "with_other_threads"]


@dataclass(frozen=True, slots=True)
class Nearest:
    """A system from which a setting can be priced.

    Attributes:
        system: The system.
        differences: What distinguishes the setting from the system, one sentence each; empty if the system is that of
            the setting.
        factor: Ratio of the latency under the setting to that on the system.
        bounds: Lower and upper bound of `factor`.
    """

    system: System
    differences: tuple[str, ...] = ()
    factor: float = 1.0
    bounds: tuple[float, float] = (1.0, 1.0)


def systems_of_host(systems: Iterable[System], host: Host) -> list[System]:
    """Returns the systems that are measured or extrapolated on hosts of this kind, with layers one after the other."""
    return [
        system
        for system in systems
        if system.capabilities
        and system.host is not None
        and same_hardware(system.host, host)
        and system.settings.inter_threads == 1
    ]


def by_distance(setting: Setting, systems: Sequence[System]) -> list[Nearest]:
    """Returns the systems with the runtime of a setting, the nearest one first.

    The number of threads counts most, then the level, then spinning; among equals, a system under its default name and
    the newest runtime are preferred.
    """

    def distance(system: System) -> tuple[object, ...]:
        settings = system.settings
        assert system.host is not None
        named = system.name == default_name(system.host, system.runtime, system.runtime_version, settings)
        return (
            abs(math.log2(setting.threads / settings.threads)), settings.level != setting.level,
            settings.spinning != setting.spinning, not named,
            [-int(part) for part in re.findall(r"\d+", system.runtime_version)], system.name,
        )  # fmt: skip

    return [
        _nearest(setting, system)
        for system in sorted((one for one in systems if one.runtime == setting.runtime), key=distance)
    ]


def with_other_threads(system: System, systems: Iterable[System]) -> list[System]:
    """Returns those of some systems that differ from a system in nothing but the number of threads."""
    return [
        other
        for other in systems
        if other.settings.threads != system.settings.threads
        and replace(other.settings, threads=system.settings.threads) == system.settings
        and (other.runtime, other.runtime_version) == (system.runtime, system.runtime_version)
    ]


def by_own_speedup(setting: Setting, systems: tuple[System, System], latencies_us: tuple[float, float]) -> Nearest:
    """Returns the first of two systems, with the factor that follows from what the model gains between the two.

    Args:
        setting: Setting to price, with another number of threads than either.
        systems: Systems that differ in nothing but the number of threads.
        latencies_us: Latency of the model on each of them in microseconds.
    """
    threads = systems[0].settings.threads, systems[1].settings.threads
    speedup = ThreadSpeedup.between(threads, latencies_us)
    fewer, more = sorted(threads)
    return _nearest(setting, systems[0], speedup, f"what follows from its gain between {fewer} and {more} threads")


def _nearest(setting: Setting, system: System, speedup: ThreadSpeedup = TYPICAL, reason: str = "typical") -> Nearest:
    settings, differences = system.settings, []
    factor = speedup.factor(setting.threads, settings.threads)
    bounds = speedup.factor_bounds(setting.threads, settings.threads)
    if setting.threads != settings.threads:
        differences.append(
            f"no system with threads={setting.threads} is known: a run is taken to be {1 / factor:.2f} times as fast "
            f"({1 / bounds[1]:.2f} to {1 / bounds[0]:.2f}) as on {system.name}, which is {reason}"
        )
    if setting.level != settings.level:
        differences.append(
            f"no system at level {setting.level} is known: its layers are priced as those of {system.name}, and taken "
            f"to be no faster than at level {settings.level}"
        )
    # One thread has no others that could spin.
    if setting.spinning != settings.spinning and setting.threads > 1:
        differences.append(f"spinning is {'off' if settings.spinning else 'on'}, and its effect is not priced")
    return Nearest(system, tuple(differences), factor, bounds)
