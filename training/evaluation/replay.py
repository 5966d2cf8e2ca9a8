"""Replays an adaptation on stored measurements: what `costmodel adapt` would know after so many minutes.

Layers are revealed in the order in which they would be measured, at the time at which they would be measured
(`costmodel.measure.duration`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from costmodel.measure.protocol import Protocol
from costmodel.training.adaptation import Adaptation, AdaptationState
from costmodel.training.suggestion import MeasurementBatch, choose, value_of_measuring

__all__ = ["Chooser", "by_share_and_uncertainty", "measurable", "replayed"]

# Share of the time for measuring whole models, as in `costmodel adapt`.
_CHECKS = 0.15

# Chooses what to measure next from an adaptation, what is known so far, and the seconds that are left.
Chooser = Callable[[Adaptation, AdaptationState, float], Sequence[MeasurementBatch]]


def measurable(adaptation: Adaptation, latencies_us: Mapping[str, float]) -> Adaptation:
    """Restricts an adaptation to the models of which all sequences are measured on the new system.

    Args:
        adaptation: Adaptation to the new system.
        latencies_us: Latencies on the new system in microseconds, by signature.
    """
    signatures = adaptation.dataset.signatures
    usages = tuple(u for u in adaptation.usages if all(signatures[row] in latencies_us for row in u.rows))
    return replace(adaptation, usages=usages)


def by_share_and_uncertainty(protocol: Protocol) -> Chooser:
    """Returns the function that chooses as `costmodel adapt` does.

    Args:
        protocol: Measurement protocol, which determines how long a measurement takes.
    """

    def chosen(adaptation: Adaptation, learnt: AdaptationState, seconds: float) -> list[MeasurementBatch]:
        left = adaptation.open & ~learnt.measured
        values = value_of_measuring(adaptation.shares(learnt), learnt.spread)
        return choose(adaptation.usages, left, values, adaptation.prices(learnt, protocol), seconds)

    return chosen


def replayed(
    adaptation: Adaptation,
    latencies_us: Mapping[str, float],
    minutes: Sequence[float],
    protocol: Protocol,
    chooser: Chooser | None = None,
) -> Iterator[AdaptationState]:
    """Yields what is known after each of several durations of measuring.

    Args:
        adaptation: Adaptation to the new system, all of whose models can be measured (see `measurable`).
        latencies_us: Latencies on the new system in microseconds, by signature.
        minutes: The durations, in ascending order.
        protocol: Measurement protocol, which determines how long a measurement takes.
        chooser: Chooses what to measure next; by default `by_share_and_uncertainty`.
    """
    chooser = chooser or by_share_and_uncertainty(protocol)
    signatures = adaptation.dataset.signatures
    known: dict[str, float] = {}
    spent_s = 0.0
    for duration in minutes:
        learnt = adaptation.learn(known)
        while (left_s := 60 * duration - spent_s) > 0:
            checks = [signatures[row] for row, _ in adaptation.to_check(learnt, protocol, _CHECKS * left_s)]
            batches = chooser(adaptation, learnt, (1 - _CHECKS) * left_s)
            spent_s += _CHECKS * left_s + sum(batch.seconds for batch in batches)
            rows = np.concatenate([batch.rows for batch in batches]) if batches else np.empty(0, dtype=int)
            revealed = checks + [signatures[row] for row in rows.tolist()]
            known |= {signature: latencies_us[signature] for signature in revealed if signature in latencies_us}
            learnt = adaptation.learn(known)
            if not batches:
                break
        yield learnt
