"""Prices many networks at once, as arrays: what a search over architectures asks by the thousand.

The numbers are those of `Predictor.estimate` for each network.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from costmodel.errors import UnpricedLayersError
from costmodel.estimate.composition import PricedBatch
from costmodel.estimate.cost import SOURCES, Cost
from costmodel.ir.sequence import LayerSequence
from costmodel.serving.batch import Batch
from costmodel.serving.predictor import Predictor

__all__ = ["NO_BLOCK", "Networks", "price_blocks", "price_networks", "refuse_unpriced"]

# Fills the row of a network that has fewer blocks than others.
NO_BLOCK = -1


@dataclass(frozen=True)
class Networks:
    """Latencies of networks on a system, in microseconds.

    Attributes:
        latency_us: Latency of each network, shape [num_networks].
        interval_us: Interval that holds each latency with probability `interval_level`, shape [num_networks, 2].
        interval_level: Probability that the intervals are made for, such as 0.9.
        coverage: Share of the latency by source, each of shape [num_networks]; the shares of a network add up to 1.
        version: Version of the regressor that priced what is not measured; "none" if there is none.
    """

    latency_us: np.ndarray
    interval_us: np.ndarray
    interval_level: float
    coverage: dict[str, np.ndarray]
    version: str

    def __len__(self) -> int:
        """Number of networks."""
        return len(self.latency_us)


def price_networks(
    predictor: Predictor,
    blocks: Sequence[Sequence[LayerSequence]],
    networks: "Sequence[Sequence[int]] | np.ndarray",
    *,
    measured: bool = True,
) -> Networks:
    """Prices networks: the latency of each is the sum of its layers with their context correction.

    Args:
        predictor: Predictor of the system.
        blocks: Blocks that networks consist of: layer sequences in a row.
        networks: For each network the positions in `blocks` of its blocks, in execution order: lists, or an array of
            shape [num_networks, most_blocks] that is filled up with `NO_BLOCK`.
        measured: Whether to use measurements; without them every cost is predicted.

    Raises:
        UnpricedLayersError: A layer has no cost.
        ValueError: A network has no layer, or names a block that does not exist.
    """
    layers = tuple({layer.signature: layer for block in blocks for layer in block}.values())
    batch = Batch(layers, *_layers_of(*_flat(networks, len(blocks)), blocks, layers))
    priced = predictor.price(batch, measured=measured)
    refuse_unpriced(predictor, batch, priced)
    found = priced.compose(predictor.uncertainty)
    return Networks(found.latency_us, found.interval_us, predictor.interval_level, found.coverage, predictor.version)


def price_blocks(
    predictor: Predictor, blocks: Sequence[Sequence[LayerSequence]], *, measured: bool = True
) -> list[Cost]:
    """Prices each block in isolation: the sum of its layers without context correction.

    Args:
        predictor: Predictor of the system.
        blocks: Blocks of at least one layer sequence each.
        measured: Whether to use measurements; without them every cost is predicted.

    Raises:
        UnpricedLayersError: A layer has no cost.
    """
    batch = Batch.of(blocks)
    of_layers = predictor.price_sequences(batch.sequences, np.full(len(batch.sequences), math.inf), measured=measured)
    priced = PricedBatch.of([of_layers[row] for row in rows] for rows in batch.models())
    refuse_unpriced(predictor, batch, priced)
    found = priced.compose(predictor.uncertainty)
    costs = priced.costs_in_context()
    result = []
    for number, end in enumerate(np.cumsum(batch.lengths).tolist()):
        members = costs[end - int(batch.lengths[number]) : end]
        low_us, high_us = found.interval_us[number].tolist()
        source = max((cost.source for cost in members), key=SOURCES.index)
        kind = "+".join(cost.kind for cost in members)
        whole = Cost(float(found.latency_us[number]), (low_us, high_us), source, kind)
        result.append(members[0] if len(members) == 1 else whole)
    return result


def refuse_unpriced(predictor: Predictor, batch: Batch, priced: PricedBatch) -> None:
    """Checks that every layer sequence of a batch has a cost.

    Raises:
        UnpricedLayersError: One has none; the error names the kinds of all that have none.
    """
    unpriced = dict.fromkeys(batch.sequences[row].kind for row in batch.rows[priced.unpriced].tolist())
    if unpriced:
        raise UnpricedLayersError("a network", predictor.system.name, list(unpriced))


def _flat(networks: "Sequence[Sequence[int]] | np.ndarray", blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of the blocks of all networks, in a row, and the number of blocks of each network."""
    if isinstance(networks, np.ndarray):
        if networks.ndim != 2 or networks.dtype.kind not in "iu":
            raise ValueError("networks must be an array of integers of shape [num_networks, most_blocks]")
        present = networks != NO_BLOCK
        lengths = present.sum(axis=1)
        rows = networks[present].astype(np.int64)
    else:
        lengths = np.fromiter(map(len, networks), np.int64, len(networks))
        rows = np.fromiter(chain.from_iterable(networks), np.int64, int(lengths.sum()))
    unknown = (rows < 0) | (rows >= blocks)
    if unknown.any():
        place = int(np.argmax(unknown))
        network = int(np.searchsorted(np.cumsum(lengths), place, side="right"))
        raise ValueError(f"network {network} names the block {rows[place]}, and there are {blocks}")
    return rows, lengths


def _layers_of(
    rows: np.ndarray,
    lengths: np.ndarray,
    blocks: Sequence[Sequence[LayerSequence]],
    layers: Sequence[LayerSequence],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of the layers of all networks, and the number of layers of each network."""
    place = {layer.signature: number for number, layer in enumerate(layers)}
    members = [[place[layer.signature] for layer in block] for block in blocks]
    sizes = np.fromiter(map(len, members), np.int64, len(members))
    starts = np.cumsum(sizes) - sizes
    flat = np.fromiter(chain.from_iterable(members), np.int64, int(sizes.sum()))
    of_network = np.repeat(np.repeat(np.arange(len(lengths)), lengths), sizes[rows])
    within = np.arange(int(sizes[rows].sum())) - np.repeat(np.cumsum(sizes[rows]) - sizes[rows], sizes[rows])
    found = np.bincount(of_network, minlength=len(lengths))
    if len(found) and not found.all():
        raise ValueError(f"network {int(np.argmin(found))} has no layers")
    return flat[np.repeat(starts[rows], sizes[rows]) + within], found
