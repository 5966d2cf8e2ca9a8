"""Which sequences to measure next: where the most error of the most models goes away in a second of measuring."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costmodel.duration import group_s
from costmodel.groups import swept_bytes
from costmodel.host import Host
from costmodel.measurement import Protocol

__all__ = ["Portion", "Prices", "Usage", "choose", "importance", "worth"]


@dataclass(frozen=True)
class Usage:
    """The sequences that a model consists of, as rows of what can be measured.

    Attributes:
        name: Of the model.
        rows: Of its sequences in execution order; one that it has twice is there twice.
        footprint_bytes: Weights that all of them read.
    """

    name: str
    rows: np.ndarray
    footprint_bytes: int

    @cached_property
    def unique(self) -> np.ndarray:
        """Its rows, each once, in execution order."""
        return np.array(list(dict.fromkeys(self.rows.tolist())), dtype=int)


@dataclass(frozen=True)
class Portion:
    """Sequences of one model that are to be measured.

    Attributes:
        usage: The model. All of its sequences take turns: a few by themselves, with the caches swept in between, would
            take longer than among the others (docs/adr/0010).
        rows: In execution order.
        seconds: That it is expected to take.
        worth: What is expected of it, in the unit of the values that it was chosen by.
    """

    usage: Usage
    rows: np.ndarray
    seconds: float
    worth: float


def importance(usages: Sequence[Usage], latencies_us: np.ndarray) -> np.ndarray:
    """How much of a model's latency each row is, as a mean over the models; shape [num_rows], sums to 1."""
    shares = np.zeros(len(latencies_us))
    for usage in usages:
        costs = latencies_us[usage.rows]
        np.add.at(shares, usage.rows, costs / costs.sum())
    return shares / max(1, len(usages))


def worth(shares: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """What measuring each row is worth: the error of the models' latencies that goes away by it; shape [num_rows].

    Args:
        shares: Of the models' latencies, as `importance` gives them.
        spread: How unsure each cost is, in log cost.
    """
    return np.asarray(shares * spread)


@dataclass(frozen=True)
class Prices:
    """How long measuring takes.

    Attributes:
        latencies_us: Expected of each row, shape [num_rows].
        weights_bytes: Of each row, shape [num_rows].
        reads_bytes: Of its weights that a run reads, shape [num_rows].
        host: Whose caches are swept.
        protocol: How often is timed.
    """

    latencies_us: np.ndarray
    weights_bytes: np.ndarray
    reads_bytes: np.ndarray
    host: Host | None
    protocol: Protocol

    def seconds(self, usage: Usage, rows: np.ndarray) -> float:
        """Of some rows of a model, measured together."""
        swept = swept_bytes(usage.footprint_bytes, int(self.reads_bytes[rows].sum()), self.host)
        return group_s(self.latencies_us[rows].tolist(), int(self.weights_bytes[rows].sum()), swept, self.protocol)

    def alone_s(self, row: int) -> float:
        """Of one row among many, which share what a group needs besides."""
        return group_s([float(self.latencies_us[row])], int(self.weights_bytes[row]), 0, self.protocol)


@dataclass(frozen=True)
class _Chooser:
    values: np.ndarray
    prices: Prices

    def best(self, usage: Usage, left: np.ndarray) -> Portion | None:
        """The rows of a model that are left and worth something; None if none of them is."""
        rows = usage.unique[left[usage.unique]]
        rows = rows[self.values[rows] > 0]
        if not len(rows):
            return None
        return Portion(usage, rows, self.prices.seconds(usage, usage.unique), float(self.values[rows].sum()))


def choose(
    usages: Sequence[Usage], left: np.ndarray, values: np.ndarray, prices: Prices, budget_s: float
) -> list[Portion]:
    """Portions of models, each of the model that is worth most for its time when it is chosen.

    Args:
        usages: The models.
        left: Which rows can be chosen, shape [num_rows].
        values: What measuring each row is worth, not negative; shape [num_rows].
        prices: How long that takes.
        budget_s: Seconds for all of them; the last one may take longer than is left, so that there is always one.
    """
    chooser = _Chooser(values, prices)
    left = left.copy()
    # The best portion of each model, dearest last; of a model that shares rows with what was chosen, the worth has only
    # fallen since, so that it is looked at again when it is its turn and not before.
    heap = []
    for number, usage in enumerate(usages):
        portion = chooser.best(usage, left)
        if portion is not None:
            heap.append((-portion.worth / portion.seconds, number, portion))
    heapq.heapify(heap)
    chosen: list[Portion] = []
    spent_s = 0.0
    while heap and spent_s < budget_s:
        _, number, portion = heapq.heappop(heap)
        if left[portion.rows].all():
            chosen.append(portion)
            spent_s += portion.seconds
            left[portion.rows] = False
        again = chooser.best(usages[number], left)
        if again is not None:
            heapq.heappush(heap, (-again.worth / again.seconds, number, again))
    return chosen
