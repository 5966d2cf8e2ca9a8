"""Extrapolation: guesses costs on a system that nobody has measured, from measured systems and facts about processors.

Two facts about the processor are used. Processors of one maker gain speed by a steady rate, so that the years between
two of them tell the typical ratio of their costs; what multiplies also depends on how many operations a core completes
in a cycle. Of the guesses from several systems, the quickest counts, because a system that was measured beside busy
neighbours seems slower than its processor is, and none seems quicker. What else was tried made guesses worse
(docs/adr/0017). Where no system has the number of threads, the costs with it follow from those with two other numbers
(docs/adr/0030).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel.errors import UnknownSystemError
from costmodel.estimate.thread_speedup import GAIN_BOUNDS, TYPICAL, own_half_width, thread_steps
from costmodel.features.schema import SCHEMA
from costmodel.systems.host import Host
from costmodel.systems.microarchitecture import Microarchitecture, microarchitecture_facts
from costmodel.systems.system import System, differ_in_threads_alone
from costmodel.training.adaptation import Adaptation, AdaptationState

__all__ = [
    "extrapolated_half_width",
    "extrapolated_state",
    "extrapolation_bases",
    "guess_capabilities",
    "similar_systems",
]

# Increase of log speed in a year, for one core of server processors.
_YEARLY_GAIN = 0.09
# Standard deviation of log(cost / guess) of a layer, apart from what is common to the layers of a system.
_SPREAD = 0.3
# Half-widths of the 90% interval of log(latency / guess) of a model, from systems of the same maker and of another one.
# About Student's quantiles for the systems on which this could be tried, two and three, with the spread among models;
# so few systems give no more than a hint.
_SAME_MAKER, _OTHER_MAKER = 0.4, 1.1

_MULTIPLY_FLOPS = SCHEMA.names.index("log_multiply_flops")


@dataclass(frozen=True, slots=True)
class _Step:
    """How much quicker a processor is guessed to be than another one.

    Attributes:
        speed: Ratio of their speeds, for all work.
        width: Ratio of the numbers of operations that a core completes in a cycle.
    """

    speed: float
    width: float

    @classmethod
    def between(cls, base: Host, new: Host) -> "_Step":
        """Returns the step from one host to another, both of known microarchitectures."""
        old_facts, new_facts = _facts(base), _facts(new)
        assert old_facts is not None
        assert new_facts is not None
        return cls(
            math.exp(_YEARLY_GAIN * (new_facts.year - old_facts.year)),
            new_facts.flops_per_cycle / old_facts.flops_per_cycle,
        )


def similar_systems(host: Host, systems: Sequence[System]) -> list[System]:
    """Returns the measured systems from which those with another host are extrapolated: those of the same maker.

    If there are none of the same maker, all systems are returned whose microarchitecture is known.

    Args:
        host: The host that nobody has measured.
        systems: Measured systems.

    Raises:
        UnknownSystemError: Nothing is known about the host's microarchitecture, or about those of all systems.
    """
    if _facts(host) is None:
        raise UnknownSystemError(
            f"nothing is known about processors of the kind {host.microarchitecture or host.model_name or 'unknown'}, "
            "so their latencies cannot be guessed: measure that machine, with `costmodel predict --probe` there"
        )
    known = [system for system in systems if system.host is not None and _facts(system.host) is not None]
    if not known:
        raise UnknownSystemError(
            "no system of a known microarchitecture is measured with this runtime and these settings: measure one with "
            "`costmodel bench`"
        )
    same = [system for system in known if system.host is not None and system.host.vendor == host.vendor]
    return same or known


def extrapolation_bases(system: System, systems: Iterable[System]) -> list[System]:
    """Returns the measured systems from which a system is extrapolated.

    They are of the same maker if there are such, and have the same number of threads if there are such. Otherwise they
    are the two of each host whose numbers of threads are nearest; a host with one number of threads counts only if none
    has two.

    Args:
        system: The system that nobody has measured.
        systems: Measured systems with the same runtime and level.

    Raises:
        UnknownSystemError: Nothing is known about the system's microarchitecture, or about those of all systems.
    """
    threads = system.settings.threads
    known = [one for one in systems if replace(one.settings, threads=threads) == system.settings]
    similar = similar_systems(system.host or Host(), known)
    same = [one for one in similar if one.settings.threads == threads]
    if same:
        return same
    hosts = [of_host[:2] for of_host in _by_host(similar, threads)]
    most = max(map(len, hosts))
    return [one for of_host in hosts if len(of_host) == most for one in of_host]


def _by_host(systems: Iterable[System], threads: int) -> list[list[System]]:
    """Returns systems in groups of one host with different numbers of threads, the one nearest to `threads` first."""
    groups: list[list[System]] = []
    for system in systems:
        for group in groups:
            if all(differ_in_threads_alone(system, one) for one in group):
                group.append(system)
                break
        else:
            groups.append([system])
    return [sorted(group, key=lambda one: _steps_between(one, threads)) for group in groups]


def guess_capabilities(host: Host, systems: Sequence[System], threads: int) -> dict[str, float]:
    """Returns the capabilities that a host is guessed to have: of the guesses, the one that multiplies quickest.

    Args:
        host: The host that nobody has measured.
        systems: Measured systems, from `extrapolation_bases`.
        threads: Number of threads with which the rates are to be reached.
    """
    guesses = []
    for system, *_ in _by_host(systems, threads):
        assert system.host is not None
        step, of = _Step.between(system.host, host), system.capabilities
        more = threads / system.settings.threads
        guesses.append({
            "gemm_gflops": of["gemm_gflops"] * step.speed * step.width * more,
            "memory_gbps": of["memory_gbps"] * step.speed * more,
            "scalar_ns": of["scalar_ns"] / step.speed,
            "layer_us": of["layer_us"] / step.speed,
            "reference_us": of["reference_us"]
            / (step.speed * step.width)
            * TYPICAL.factor(threads, system.settings.threads),
        })  # fmt: skip
    return max(guesses, key=lambda guess: guess["gemm_gflops"])


def extrapolated_half_width(host: Host, systems: Sequence[System], threads: int) -> float:
    """Returns the half-width of the 90% interval of log(latency / guess) of a model on a system that is extrapolated.

    Args:
        host: The host that nobody has measured.
        systems: Measured systems, from `extrapolation_bases`.
        threads: Number of threads of the system.
    """
    same = all(system.host is not None and system.host.vendor == host.vendor for system in systems)
    by_threads = 0.0
    for nearest, *others in _by_host(systems, threads):
        gained = [own_half_width(nearest.settings.threads, other.settings.threads) for other in others[:1]]
        by_threads = max(by_threads, _steps_between(nearest, threads) * (*gained, _typical_half_width())[0])
    return (_SAME_MAKER if same else _OTHER_MAKER) + by_threads


def _typical_half_width() -> float:
    low, high = TYPICAL.bounds
    return math.log(high / low) / 2


def _steps_between(system: System, threads: int) -> float:
    return abs(thread_steps(system.settings.threads) - thread_steps(threads))


def extrapolated_state(adaptation: Adaptation, bases: Sequence[System]) -> AdaptationState:
    """Returns guessed costs of all rows of an adaptation, of which none is measured: those of the quickest guess.

    Args:
        adaptation: Sequences with their costs on the base systems, encoded for the system that nobody has measured.
        bases: The base systems, those of the adaptation.

    Raises:
        UnknownSystemError: Nothing is known about the microarchitecture of the system, or about those of all bases.
    """
    host = adaptation.dataset.system.host or Host()
    by_name = {base.name: base for base in bases}
    similar = {system.name for system in similar_systems(host, [by_name[name] for name in adaptation.bases])}
    encoded = adaptation.dataset.encoded
    flops = encoded.totals(np.expm1(encoded.features[:, _MULTIPLY_FLOPS].astype(np.float64)))
    rate = by_name[adaptation.bases[0]].capabilities["gemm_gflops"] * 1e3
    share = np.minimum(1.0, flops / rate / adaptation.anchors_us)
    logs = {name: adaptation.ratios[:, number - 1] if number else 0.0 for number, name in enumerate(adaptation.bases)}
    threads = adaptation.dataset.system.settings.threads
    guesses = []
    for nearest, *others in _by_host((by_name[name] for name in adaptation.bases if name in similar), threads):
        assert nearest.host is not None
        step = _Step.between(nearest.host, host)
        on_base = logs[nearest.name] + _log_gain(nearest, others, logs, threads)
        guesses.append(on_base - np.log(step.speed) + np.log(share / step.width + 1 - share))
    costs = adaptation.anchors_us * np.exp(min(guesses, key=lambda guess: float(np.median(guess))))
    none, unknown = np.zeros(len(costs), dtype=bool), np.full(len(costs), np.nan)
    return AdaptationState(none, costs, np.full(len(costs), _SPREAD), unknown)


def _log_gain(
    system: System, others: Sequence[System], logs: Mapping[str, np.ndarray | float], threads: int
) -> np.ndarray | float:
    """Returns log(cost with `threads` threads / cost on a system) of each row.

    Args:
        system: System whose number of threads is nearest.
        others: The same host with other numbers of threads, the nearest one first.
        logs: Logarithm of the cost of each row, apart from what all systems have in common, by name of the system.
        threads: Number of threads.
    """
    steps = thread_steps(system.settings.threads) - thread_steps(threads)
    if steps == 0 or not others:
        return math.log(TYPICAL.factor(threads, system.settings.threads))
    between = thread_steps(others[0].settings.threads) - thread_steps(system.settings.threads)
    gain: np.ndarray = np.clip((logs[system.name] - logs[others[0].name]) / between, *GAIN_BOUNDS)
    return gain * steps


def _facts(host: Host) -> Microarchitecture | None:
    return microarchitecture_facts(host.microarchitecture)
