"""Finds the systems of a host, and those among them that are nearest to a setting."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from costmodel.estimate.thread_speedup import TYPICAL, ThreadSpeedup, thread_steps
from costmodel.serving.tuning.settings import Setting
from costmodel.systems.host import Host
from costmodel.systems.system import System, default_name, same_hardware

__all__ = ["Nearest", "by_distance", "by_own_speedup", "systems_of_host"]


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
            abs(thread_steps(setting.threads) - thread_steps(settings.threads)), settings.level != setting.level,
            settings.spinning != setting.spinning, not named,
            [-int(part) for part in re.findall(r"\d+", system.runtime_version)], system.name,
        )  # fmt: skip

    return [
        _nearest(setting, system)
        for system in sorted((one for one in systems if one.runtime == setting.runtime), key=distance)
    ]


def by_own_speedup(setting: Setting, system: System, speedup: ThreadSpeedup, threads: tuple[int, int]) -> Nearest:
    """Returns a system with the factor that follows from what the model gains between two numbers of threads.

    Args:
        setting: Setting to price.
        system: The system that is nearest to it.
        speedup: What the model gains.
        threads: The two numbers of threads that tell it, the smaller one first.
    """
    return _nearest(
        setting, system, speedup, f"what follows from its gain between {threads[0]} and {threads[1]} threads"
    )


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
