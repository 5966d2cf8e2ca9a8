"""Costs of layer sequences on base systems, complete: what a base has not measured is predicted from the others.

Two systems rarely measure the same sequences. Adaptation needs a cost of every sequence on every base, because it
learns how the new system relates to all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from costmodel.training.dataset import Dataset
from costmodel.training.regressors.anchors import anchored, anchors
from costmodel.training.regressors.transfer import CostTransfer

__all__ = ["BaseCosts", "base_costs"]

# Two bases that measured fewer single layers both are not predicted from each other.
_LEAST_COMMON = 10


@dataclass(frozen=True)
class BaseCosts:
    """The cost of each row of a data set on the base systems.

    Attributes:
        anchors_us: Cost on the first base in microseconds, shape [num_rows].
        others: Names of the other bases.
        ratios: log(cost / anchor) on the other bases, shape [num_rows, num_others].
    """

    anchors_us: np.ndarray
    others: tuple[str, ...]
    ratios: np.ndarray


def base_costs(dataset: Dataset, others: Mapping[str, Mapping[str, float]]) -> BaseCosts:
    """Returns the cost of each row of a data set on several base systems.

    What the first base has not measured is predicted from the other bases in their order, or else by a regressor that
    learns from the first base. What another base has not measured is predicted from the first. A base that shares too
    few layers with the first one is left out.

    Args:
        dataset: Sequences with their costs on the first base, nan where they are unknown.
        others: For each other base, by its name, its measured costs in microseconds, by signature.
    """
    single = ~dataset.whole & (dataset.encoded.lengths == 1)
    measured = {}
    for name, costs in others.items():
        of = np.array([costs.get(signature, np.nan) for signature in dataset.signatures])
        shared = single & ~np.isnan(of) & ~np.isnan(dataset.latencies_us)
        if shared.sum() >= _LEAST_COMMON:
            measured[name] = of
    first = dataset.latencies_us
    for of in measured.values():
        first = np.where(np.isnan(first) & ~np.isnan(of), _transferred(dataset, of, first), first)
    anchors_us = np.where(np.isnan(first), anchors(dataset), first)
    ratios = [
        np.log(np.where(np.isnan(of), _transferred(dataset, anchors_us, of), of) / anchors_us)
        for of in measured.values()
    ]
    together = np.stack(ratios, axis=1) if ratios else np.zeros((len(dataset), 0))
    return BaseCosts(anchors_us, tuple(measured), together)


def _transferred(dataset: Dataset, from_us: np.ndarray, to_us: np.ndarray) -> np.ndarray:
    """Returns the cost of each row on a system, predicted from another system; shape [num_rows].

    Args:
        dataset: The sequences.
        from_us: Costs on the other system in microseconds, nan where they are unknown; shape [num_rows].
        to_us: Costs on the system in microseconds, nan where they are unknown; shape [num_rows].
    """
    given = ~np.isnan(from_us)
    wanted = given & np.isnan(to_us) & ~dataset.whole
    known = given & ~np.isnan(to_us) & ~dataset.whole & (dataset.encoded.lengths == 1)
    # Rows without a cost on the other system get none here either; meanwhile their bounds stand for it.
    bounds_us = dataset.encoded.totals(dataset.encoded.bounds_us)
    transfer = CostTransfer(anchored(dataset.encoded, np.where(given, from_us, bounds_us)))
    costs, _ = transfer.predict_costs(to_us, known, wanted, np.where(known, from_us, 0.0))
    return np.where(given, costs, np.nan)
