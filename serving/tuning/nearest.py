"""Finds the systems of a host, and the one among them that is nearest to a setting."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from costmodel.serving.tuning.settings import Setting
from costmodel.systems.host import Host
from costmodel.systems.system import System, default_name, same_hardware

__all__ = ["Nearest", "by_distance", "systems_of_host"]

# How many times as fast a run becomes with twice the threads, and the bounds of that in 90% of cases: geometric mean
# and quantiles over the models that data/ has at one thread and at two, under ONNX Runtime on three processors (927
# pairs). `benchmarks/thread_doubling.py` prints them.
_DOUBLING, _DOUBLING_BOUNDS = 1.68, (1.19, 1.96)


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


def _nearest(setting: Setting, system: System) -> Nearest:
    settings, differences = system.settings, []
    doublings = math.log2(setting.threads / settings.threads)
    factor, bounds = 1.0, (1.0, 1.0)
    if doublings:
        factor = _DOUBLING**-doublings
        ends = [bound**-doublings for bound in _DOUBLING_BOUNDS]
        bounds = min(ends), max(ends)
        differences.append(
            f"no system with threads={setting.threads} is known: a run is taken to be {1 / factor:.2f} times as fast "
            f"({1 / bounds[1]:.2f} to {1 / bounds[0]:.2f}) as on {system.name}, which is typical"
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
