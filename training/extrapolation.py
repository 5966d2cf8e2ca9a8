"""Extrapolation: guesses costs on a system that nobody has measured, from measured systems and facts about processors.

Two facts about the processor are used. Processors of one maker gain speed by a steady rate, so that the years between
two of them tell the typical ratio of their costs; what multiplies also depends on how many operations a core completes
in a cycle. Of the guesses from several systems, the quickest counts, because a system that was measured beside busy
neighbours seems slower than its processor is, and none seems quicker. What else was tried made guesses worse
(docs/adr/0017). Where no system has the number of threads, the costs with it follow from those with fewer, and from how
the kernels divide their work (docs/adr/0030).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel.errors import UnknownSystemError
from costmodel.estimate.thread_speedup import ThreadDivision, thread_half_width
from costmodel.features.schema import SCHEMA
from costmodel.features.thread_division import divide_work
from costmodel.ir.sequence import LayerSequence
from costmodel.systems.host import Host
from costmodel.systems.microarchitecture import Microarchitecture, microarchitecture_facts
from costmodel.systems.system import System
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

    They are of the same maker if there are such. Of these they are the ones with the same number of threads, or else
    with the next smaller one, or else with the smallest.

    Args:
        system: The system that nobody has measured.
        systems: Measured systems with the same runtime and level.

    Raises:
        UnknownSystemError: Nothing is known about the system's microarchitecture, or about those of all systems.
    """
    threads = system.settings.threads
    known = [one for one in systems if replace(one.settings, threads=threads) == system.settings]
    similar = similar_systems(system.host or Host(), known)
    numbers = {one.settings.threads for one in similar}
    number = max((few for few in numbers if few <= threads), default=min(numbers))
    return [one for one in similar if one.settings.threads == number]


def guess_capabilities(host: Host, systems: Sequence[System], threads: int) -> dict[str, float]:
    """Returns the capabilities that a host is guessed to have: of the guesses, the one that multiplies quickest.

    Args:
        host: The host that nobody has measured.
        systems: Measured systems, from `extrapolation_bases`.
        threads: Number of threads with which the rates are to be reached.
    """
    guesses = []
    for system in systems:
        assert system.host is not None
        step, of = _Step.between(system.host, host), system.capabilities
        more = threads / system.settings.threads
        guesses.append({
            "gemm_gflops": of["gemm_gflops"] * step.speed * step.width * more,
            "memory_gbps": of["memory_gbps"] * step.speed * more,
            "scalar_ns": of["scalar_ns"] / step.speed,
            "layer_us": of["layer_us"] / step.speed,
            "reference_us": of["reference_us"] / (step.speed * step.width) * _evenly_divided(system, threads),
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
    by_threads = (thread_half_width(threads, system.settings.threads, known=False) for system in systems)
    return (_SAME_MAKER if same else _OTHER_MAKER) + max(by_threads)


def _evenly_divided(system: System, threads: int) -> float:
    """Returns the cost of a layer that is divided evenly among some threads, over its cost on a system."""
    base, new = (ThreadDivision.even(number, 1) for number in (system.settings.threads, threads))
    return float(new.costs_us(np.ones(1), base)[0])


def extrapolated_state(
    adaptation: Adaptation, bases: Sequence[System], sequences: Mapping[str, LayerSequence]
) -> AdaptationState:
    """Returns guessed costs of all rows of an adaptation, of which none is measured: those of the quickest guess.

    Args:
        adaptation: Sequences with their costs on the base systems, encoded for the system that nobody has measured.
        bases: The base systems, those of the adaptation.
        sequences: Layer sequences of the rows by signature. Those of whole models may be missing, because their costs
            follow from those of their layers.

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
    on_bases = {
        name: adaptation.anchors_us * np.exp(adaptation.ratios[:, number - 1] if number else 0.0)
        for number, name in enumerate(adaptation.bases)
    }
    threads = adaptation.dataset.system.settings.threads
    systems = [by_name[name] for name in adaptation.bases if name in similar]
    divisions = _divisions(adaptation, sequences, [threads, *(system.settings.threads for system in systems)])
    guesses = []
    for system in systems:
        assert system.host is not None
        step = _Step.between(system.host, host)
        on_base = divisions[threads].costs_us(on_bases[system.name], divisions[system.settings.threads])
        guesses.append(np.log(on_base) - np.log(step.speed) + np.log(share / step.width + 1 - share))
    costs = np.exp(min(guesses, key=lambda guess: float(np.median(guess))))
    none, unknown = np.zeros(len(costs), dtype=bool), np.full(len(costs), np.nan)
    return AdaptationState(none, costs, np.full(len(costs), _SPREAD), unknown)


def _divisions(
    adaptation: Adaptation, sequences: Mapping[str, LayerSequence], numbers: Iterable[int]
) -> dict[int, ThreadDivision]:
    """Returns how each number of threads divides the rows of an adaptation; rows without a sequence are not divided."""
    dataset = adaptation.dataset
    known = [row for row, signature in enumerate(dataset.signatures) if signature in sequences]
    found = {}
    for number in set(numbers):
        of_known = divide_work([sequences[dataset.signatures[row]] for row in known], dataset.system, number)
        speedups, waits_us = np.ones(len(dataset)), np.zeros(len(dataset))
        speedups[known], waits_us[known] = of_known.speedups, of_known.waits_us
        found[number] = ThreadDivision(number, speedups, waits_us)
    return found


def _facts(host: Host) -> Microarchitecture | None:
    return microarchitecture_facts(host.microarchitecture)
