"""Chooses the layers that hold most of the time of some models, so that only these need to be measured."""

from collections import defaultdict
from collections.abc import Iterable, Set

from costmodel.estimate.estimate import Estimate

__all__ = ["holding_share"]


def holding_share(estimates: Iterable[Estimate], share: float, known: Set[str] = frozenset()) -> set[str]:
    """Returns the signatures of layers that together hold a share of the estimated latency of each model.

    Of each model, the layers that take longest are chosen first, and layers that were chosen for the models before it
    count.

    Args:
        estimates: Estimates of the models.
        share: Share of each model's latency, from 0 to 1.
        known: Signatures of layers that are measured already; they count, and are not returned.
    """
    chosen = set(known)
    for estimate in estimates:
        held_us: dict[str, float] = defaultdict(float)
        for layer in estimate.layers:
            held_us[layer.signature] += layer.share * layer.cost.latency_us
        missing_us = share * sum(held_us.values()) - sum(us for signature, us in held_us.items() if signature in chosen)
        for signature, us in sorted(held_us.items(), key=lambda item: -item[1]):
            if missing_us <= 0:
                break
            if signature not in chosen:
                chosen.add(signature)
                missing_us -= us
    return chosen - known
