"""Finds the systems of a host, and those among them that are nearest to a setting."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from costmodel.serving.tuning.settings import Setting
from costmodel.systems.host import Host
from costmodel.systems.names import default_name
from costmodel.systems.system import System, same_hardware

__all__ = ["Nearest", "by_distance", "systems_of_host", "with_threads"]


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
        if "gemm_gflops" in system.capabilities  # some are known of systems that were never probed
        and system.host is not None
        and same_hardware(system.host, host)
        and system.settings.inter_threads == 1
    ]


def by_distance(setting: Setting, systems: Sequence[System]) -> list[Nearest]:
    """Returns the systems with the runtime of a setting, the nearest one first.

    The number of threads counts most: the setting's own, or else the smallest, because the fewer threads there are, the
    less their sharing of work has changed the costs. Then come level and spinning; among equals, a system under its
    default name and the newest runtime are preferred.
    """

    def distance(system: System) -> tuple[object, ...]:
        settings = system.settings
        assert system.host is not None
        named = system.name == default_name(system.host, system.runtime, system.runtime_version, settings)
        return (
            settings.threads != setting.threads, settings.threads, settings.level != setting.level,
            settings.spinning != setting.spinning, not named,
            [-int(part) for part in re.findall(r"\d+", system.runtime_version)], system.name,
        )  # fmt: skip

    same_runtime = [system for system in systems if system.runtime == setting.runtime]
    return [Nearest(system, _differences(setting, system)) for system in sorted(same_runtime, key=distance)]


def with_threads(setting: Setting, nearest: Nearest, factor: float, half_width: float, known: Sequence[int]) -> Nearest:
    """Returns a system with what the threads of a setting make of a latency on it.

    Args:
        setting: Setting to price.
        nearest: The system, which has another number of threads.
        factor: Ratio of the latency with the threads of the setting to that on the system.
        half_width: Half-width of the 90% interval of log(factor).
        known: Two numbers of threads between which the model's own gain is known, or none.
    """
    low, high = (math.exp(sign * half_width) / factor for sign in (-1, 1))
    numbers = " and ".join(map(str, known))
    own = f", and by its gain between {numbers} threads" if numbers else ""
    reason = (
        f"no system with threads={setting.threads} is known: a run is taken to be {1 / factor:.2f} times as fast "
        f"({low:.2f} to {high:.2f}) as on {nearest.system.name}, by how its layers can be divided{own}"
    )
    return replace(
        nearest,
        differences=(reason, *nearest.differences),
        factor=factor,
        bounds=(factor * math.exp(-half_width), factor * math.exp(half_width)),
    )


def _differences(setting: Setting, system: System) -> tuple[str, ...]:
    """Returns what distinguishes a setting from a system besides the number of threads, one sentence each."""
    settings, differences = system.settings, []
    if setting.level != settings.level:
        differences.append(
            f"no system at level {setting.level} is known: its layers are priced as those of {system.name}, and taken "
            f"to be no faster than at level {settings.level}"
        )
    # One thread has no others that could spin.
    if setting.spinning != settings.spinning and setting.threads > 1:
        differences.append(f"spinning is {'off' if settings.spinning else 'on'}, and its effect is not priced")
    return tuple(differences)
