"""Chooses the sequences to measure next: those that reduce the models' errors most per second of measuring."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costmodel.measure.duration import estimated_group_seconds
from costmodel.measure.groups import evicted_bytes
from costmodel.measure.protocol import Protocol
from costmodel.systems.host import Host

__all__ = ["BenchmarkTimeModel", "MeasurementBatch", "Usage", "choose", "importance", "value_of_measuring"]


@dataclass(frozen=True)
class Usage:
    """The sequences of one model, each as its row in the data set of all sequences that can be measured.

    Attributes:
        name: Name of the model.
        rows: Row of each sequence in execution order; the row of a sequence that occurs twice is listed twice.
        footprint_bytes: Bytes of weights that the sequences of the model read, those that several share once.
    """

    name: str
    rows: np.ndarray
    footprint_bytes: int

    @cached_property
    def unique(self) -> np.ndarray:
        """Rows of the model's sequences in execution order, each only once."""
        return np.array(list(dict.fromkeys(self.rows.tolist())), dtype=int)


@dataclass(frozen=True)
class MeasurementBatch:
    """Sequences of one model that are chosen to be measured together.

    Attributes:
        usage: The model. All of its sequences take turns while they are timed: measuring a few of them alone, with
            cache eviction in between, would take longer (docs/adr/0010).
        rows: Rows of the chosen sequences in the data set, in execution order.
        seconds: Expected duration, in seconds, of measuring all sequences of the model.
        value: Sum of the values of measuring the chosen rows, in the unit of the values that `choose` was given.
    """

    usage: Usage
    rows: np.ndarray
    seconds: float
    value: float


def importance(usages: Sequence[Usage], latencies_us: np.ndarray) -> np.ndarray:
    """Returns the share of a model's latency that each row of the data set makes up, averaged over the models.

    Args:
        usages: Models with their sequences as rows of the data set.
        latencies_us: Cost of each row in microseconds, shape [num_rows].

    Returns:
        Shares of the rows, which sum to 1; shape [num_rows].
    """
    shares = np.zeros(len(latencies_us))
    for usage in usages:
        costs = latencies_us[usage.rows]
        np.add.at(shares, usage.rows, costs / costs.sum())
    return shares / max(1, len(usages))


def value_of_measuring(shares: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Returns the value of measuring each row of the data set: by how much this reduces the error of models' latencies.

    Args:
        shares: Share of the models' latencies that each row makes up, as `importance` returns it; shape [num_rows].
        spread: Uncertainty of each row's cost as the standard deviation of its logarithm, shape [num_rows].

    Returns:
        Values of the rows, shape [num_rows].
    """
    return np.asarray(shares * spread)


@dataclass(frozen=True)
class BenchmarkTimeModel:
    """A model of how long it takes to measure sequences, each given as its row in the data set.

    Attributes:
        latencies_us: Expected latency of each row in microseconds, shape [num_rows].
        weights_bytes: Size in bytes of the weights of each row, shape [num_rows].
        reads_bytes: Bytes of weights that one run of each row reads, shape [num_rows].
        host: Host whose caches are evicted between laps; None if it is not known.
        protocol: Measurement protocol, which determines the number of runs.
    """

    latencies_us: np.ndarray
    weights_bytes: np.ndarray
    reads_bytes: np.ndarray
    host: Host | None
    protocol: Protocol

    def seconds(self, usage: Usage, rows: np.ndarray) -> float:
        """Returns the expected seconds for measuring the given rows of a model together."""
        swept = evicted_bytes(usage.footprint_bytes, int(self.reads_bytes[rows].sum()), self.host)
        return estimated_group_seconds(
            self.latencies_us[rows].tolist(), int(self.weights_bytes[rows].sum()), swept, self.protocol
        )

    def marginal_seconds(self, row: int) -> float:
        """Returns the seconds that one row adds to a large group, without the overhead that the group's rows share."""
        return estimated_group_seconds([float(self.latencies_us[row])], int(self.weights_bytes[row]), 0, self.protocol)


@dataclass(frozen=True)
class _Chooser:
    """The value and the measuring time of each row, to derive from them the best batch of a model."""

    values: np.ndarray
    prices: BenchmarkTimeModel

    def best(self, usage: Usage, left: np.ndarray) -> MeasurementBatch | None:
        """Returns a batch of all rows of a model that can still be chosen and have a positive value.

        Returns None if there are no such rows.

        Args:
            usage: The model.
            left: Mask of the rows that can still be chosen, shape [num_rows].
        """
        rows = usage.unique[left[usage.unique]]
        rows = rows[self.values[rows] > 0]
        if not len(rows):
            return None
        return MeasurementBatch(usage, rows, self.prices.seconds(usage, usage.unique), float(self.values[rows].sum()))


def choose(
    usages: Sequence[Usage], left: np.ndarray, values: np.ndarray, prices: BenchmarkTimeModel, budget_s: float
) -> list[MeasurementBatch]:
    """Chooses batches of sequences to measure, each time the batch with the highest value per second of measuring.

    A batch has those sequences of one model that have a positive value and are in no batch chosen before.

    Args:
        usages: Models to choose from, with their sequences as rows of the data set.
        left: Mask of the rows that can be chosen, shape [num_rows].
        values: Value of measuring each row, not negative; shape [num_rows].
        prices: Predicts how long it takes to measure rows.
        budget_s: Seconds for measuring all batches; the last one may exceed it, so that at least one is chosen.
    """
    chooser = _Chooser(values, prices)
    left = left.copy()
    # The best batch of each model, the highest value per second first. If a model shares rows with a batch that was
    # chosen since, its value has only fallen, so it is computed anew when the model comes first and not before.
    heap = []
    for number, usage in enumerate(usages):
        batch = chooser.best(usage, left)
        if batch is not None:
            heap.append((-batch.value / batch.seconds, number, batch))
    heapq.heapify(heap)
    chosen: list[MeasurementBatch] = []
    spent_s = 0.0
    while heap and spent_s < budget_s:
        _, number, batch = heapq.heappop(heap)
        if left[batch.rows].all():
            chosen.append(batch)
            spent_s += batch.seconds
            left[batch.rows] = False
        next_batch = chooser.best(usages[number], left)
        if next_batch is not None:
            heapq.heappush(heap, (-next_batch.value / next_batch.seconds, number, next_batch))
    return chosen
