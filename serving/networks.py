"""Prices many networks at once, as arrays, for architecture searches that need thousands of latencies.

The results equal those of `Predictor.estimate` for each single network.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from costmodel.errors import UnpricedLayersError
from costmodel.estimate.composition import PricedBatch
from costmodel.estimate.cost import SOURCES, Cost, Source
from costmodel.ir.footprint import COLD
from costmodel.ir.sequence import LayerSequence
from costmodel.serving.batch import Batch
from costmodel.serving.predictor import Predictor

__all__ = [
    "NO_BLOCK", "Networks", "flat_networks", "price_blocks", "price_flat_networks", "price_networks", "refuse_empty",
    "refuse_unpriced",
]  # fmt: skip

# Pads the row of a network that has fewer blocks than other networks.
NO_BLOCK = -1


@dataclass(frozen=True)
class Networks:
    """Estimated latencies of networks on one system, in microseconds.

    Attributes:
        latency_us: Latency of each network, shape [num_networks].
        interval_us: Lower and upper bound of each latency, shape [num_networks, 2].
        interval_level: Probability with which a latency lies in its interval, such as 0.9.
        coverage: For each source of costs, its share of the latency of each network, shape [num_networks]; the shares
            of a network add up to 1.
        version: Version of the regressor that priced the layers without measurements; "none" if there is no regressor.
    """

    latency_us: np.ndarray
    interval_us: np.ndarray
    interval_level: float
    coverage: dict[Source, np.ndarray]
    version: str

    def __len__(self) -> int:
        """Returns the number of networks."""
        return len(self.latency_us)


def price_networks(
    predictor: Predictor,
    blocks: Sequence[Sequence[LayerSequence]],
    networks: "Sequence[Sequence[int]] | np.ndarray",
    *,
    measured: bool = True,
) -> Networks:
    """Returns the latency of each network: the sum of the costs of its layers, each with its context correction.

    Args:
        predictor: Predictor of the system.
        blocks: Blocks that the networks consist of, each as its layer sequences in execution order.
        networks: For each network the positions in `blocks` of its blocks, in execution order: as lists, or as an array
            of shape [num_networks, most_blocks] in which shorter networks are padded with `NO_BLOCK`.
        measured: Whether to use measurements; without them every cost is predicted.

    Raises:
        UnpricedLayersError: A layer has no cost on the system.
        ValueError: A network has no layer, or names a block that does not exist.
    """
    rows, lengths = flat_networks(networks, len(blocks))
    refuse_empty(rows, lengths, blocks)
    return price_flat_networks(predictor, blocks, rows, lengths, measured=measured)


def price_flat_networks(
    predictor: Predictor,
    blocks: Sequence[Sequence[LayerSequence]],
    rows: np.ndarray,
    lengths: np.ndarray,
    *,
    measured: bool = True,
) -> Networks:
    """Returns the latency of each network, as `price_networks` does, from the results of `flat_networks`.

    Args:
        predictor: Predictor of the system.
        blocks: Blocks that the networks consist of.
        rows: Positions in `blocks` of the blocks of all networks, network after network, shape [num_rows].
        lengths: Number of blocks of each network, shape [num_networks].
        measured: Whether to use measurements; without them every cost is predicted.

    Raises:
        UnpricedLayersError: A layer has no cost on the system.
    """
    layers = tuple({layer.signature: layer for block in blocks for layer in block}.values())
    batch = Batch(layers, *_layers_of(rows, lengths, blocks, layers))
    priced = predictor.price(batch, measured=measured)
    refuse_unpriced(predictor, batch, priced)
    found = priced.compose(predictor.uncertainty)
    return Networks(found.latency_us, found.interval_us, predictor.interval_level, found.coverage, predictor.version)


def price_blocks(
    predictor: Predictor, blocks: Sequence[Sequence[LayerSequence]], *, measured: bool = True
) -> list[Cost]:
    """Returns the cost of each block in isolation: the sum of the costs of its layers, without context correction.

    Args:
        predictor: Predictor of the system.
        blocks: Blocks, each as its layer sequences in execution order, at least one.
        measured: Whether to use measurements; without them every cost is predicted.

    Raises:
        UnpricedLayersError: A layer has no cost on the system.
    """
    batch = Batch.of(blocks)
    of_layers = predictor.price_sequences(batch.sequences, np.tile(COLD, (len(batch.sequences), 1)), measured=measured)
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
    """Checks that every layer sequence of the models has a cost.

    Args:
        predictor: Predictor that priced the models; the error names its system.
        batch: Models that were priced together.
        priced: Costs of the models' layer sequences.

    Raises:
        UnpricedLayersError: A sequence has no cost; the error lists the operators of each such sequence.
    """
    unpriced = dict.fromkeys(batch.sequences[row].kind for row in batch.rows[priced.unpriced].tolist())
    if unpriced:
        raise UnpricedLayersError("a network", predictor.system.name, list(unpriced))


def flat_networks(networks: "Sequence[Sequence[int]] | np.ndarray", blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the block numbers of all networks, network after network, and the number of blocks of each network.

    Args:
        networks: For each network, the numbers of its blocks, as in `price_networks`.
        blocks: Number of blocks that exist.

    Raises:
        ValueError: The array has the wrong shape or type, or a network names a block that does not exist.
    """
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


def refuse_empty(rows: np.ndarray, lengths: np.ndarray, blocks: Sequence[Sequence[LayerSequence]]) -> None:
    """Checks that every network has a layer.

    Args:
        rows: Positions in `blocks` of the blocks of all networks, one network after another.
        lengths: Number of blocks of each network.
        blocks: Layer sequences of each block.

    Raises:
        ValueError: A network has no layers.
    """
    found = lengths
    if not all(blocks):
        has_layers = np.array([len(block) > 0 for block in blocks], dtype=np.int64)
        of_network = np.repeat(np.arange(len(lengths)), lengths)
        found = np.bincount(of_network, weights=has_layers[rows], minlength=len(lengths))
    if len(found) and not found.all():
        raise ValueError(f"network {int(np.argmin(found))} has no layers")


def _layers_of(
    rows: np.ndarray,
    lengths: np.ndarray,
    blocks: Sequence[Sequence[LayerSequence]],
    layers: Sequence[LayerSequence],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions in `layers` of the layers of all networks, one network after another.

    Args:
        rows: Positions in `blocks` of the blocks of all networks, one network after another.
        lengths: Number of blocks of each network.
        blocks: Layer sequences of each block.
        layers: The different layer sequences of all blocks.

    Returns:
        The positions, and the number of layers of each network.
    """
    place = {layer.signature: number for number, layer in enumerate(layers)}
    members = [[place[layer.signature] for layer in block] for block in blocks]
    sizes = np.fromiter(map(len, members), np.int64, len(members))
    starts = np.cumsum(sizes) - sizes
    flat = np.fromiter(chain.from_iterable(members), np.int64, int(sizes.sum()))
    of_network = np.repeat(np.repeat(np.arange(len(lengths)), lengths), sizes[rows])
    within = np.arange(int(sizes[rows].sum())) - np.repeat(np.cumsum(sizes[rows]) - sizes[rows], sizes[rows])
    found = np.bincount(of_network, minlength=len(lengths))
    return flat[np.repeat(starts[rows], sizes[rows]) + within], found
