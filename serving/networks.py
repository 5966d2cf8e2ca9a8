"""Many models at once, as arrays: what a search over architectures asks by the thousand.

The same numbers as `Predictor.estimate` gives one by one, of models that are made of a few different layers.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from costmodel.composition import Cost, Uncertainty, compose
from costmodel.decomposition import Decomposition, Piece
from costmodel.errors import HoleError
from costmodel.groups import read_bytes
from costmodel.in_place import InPlace, pressures
from costmodel.sequence import LayerSequence
from costmodel.serving.predictor import Predictor

__all__ = ["NO_BLOCK", "Networks", "price_blocks", "price_networks", "price_sequences", "uncertainty_of"]

# Stands in a row of networks where it is shorter than others.
NO_BLOCK = -1
_SHARES = ("measured", "predicted", "extrapolated")


@dataclass(frozen=True)
class Networks:
    """What models cost on a system, in microseconds.

    Attributes:
        latency_us: Of each, shape [num_networks].
        interval_us: Where it lies with probability `interval_level`, shape [num_networks, 2].
        interval_level: For example 0.9.
        coverage: Shares of the latency by source, each of shape [num_networks]; they add up to 1.
        version: Of the regressor that answered for what is not measured; "none" if there is none.
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
    """The latency of each network: the sum of its layers, each in its place.

    Args:
        predictor: Of the system.
        blocks: What networks are put together from: layers, or several in a row.
        networks: For each network the positions in `blocks` of those that it consists of, in execution order: lists, or
            an array of shape [num_networks, most_blocks] that is filled up with `NO_BLOCK`.
        measured: Whether to use measurements; without them every cost is predicted.

    Raises:
        HoleError: A layer has no cost.
        ValueError: A network has no layer, or names a block that is not there.
    """
    layers = list({layer.signature: layer for block in blocks for layer in block}.values())
    rows, of_network, lengths = _layers_of(*_flat(networks, len(blocks)), blocks, layers)
    if not len(lengths):
        return _answer(predictor, np.zeros(0), np.zeros(0), {source: np.zeros(0) for source in _SHARES})
    read = np.array([read_bytes(layer) for layer in layers], dtype=np.float64)
    footprints = np.bincount(of_network, weights=read[rows], minlength=len(lengths))
    if predictor.regression is not None and predictor.regression.sees_neighbours:
        return _one_by_one(predictor, layers, rows, lengths, measured=measured)
    costs, of_row = _priced(predictor, layers, rows, footprints, of_network, measured=measured)
    table = _Table.of(costs)
    factors = _factors(predictor, table, of_row, footprints, of_network)
    latencies = table.latency_us[of_row] * np.where(lengths[of_network] == 1, 1.0, factors)
    totals = np.bincount(of_network, weights=latencies, minlength=len(lengths))
    shares = latencies / np.maximum(totals, np.finfo(float).tiny)[of_network]
    coverage = {
        source: np.bincount(of_network, weights=shares * (table.source[of_row] == place), minlength=len(lengths))
        for place, source in enumerate(_SHARES)
    }
    widths = _half_widths(table, of_row, shares, of_network, len(lengths), uncertainty_of(predictor))
    return _answer(predictor, totals, widths, coverage)


def price_blocks(
    predictor: Predictor, blocks: Sequence[Sequence[LayerSequence]], *, measured: bool = True
) -> list[Cost]:
    """What each block costs by itself: the sum of its layers.

    Args:
        predictor: Of the system.
        blocks: Each at least one layer.
        measured: Whether to use measurements; without them every cost is predicted.

    Raises:
        HoleError: A layer has no cost.
    """
    costs = iter(price_sequences(predictor, [layer for block in blocks for layer in block], measured=measured))
    return [_sum([next(costs) for _ in block], uncertainty_of(predictor)) for block in blocks]


def price_sequences(
    predictor: Predictor, sequences: Sequence[LayerSequence], footprint: float = math.inf, *, measured: bool = True
) -> list[Cost]:
    """The cost of each sequence by itself, in their order.

    Args:
        predictor: Of the system.
        sequences: What would run.
        footprint: Bytes of weights that the model reads which they are part of; by default more than caches hold.
        measured: Whether to use measurements.

    Raises:
        HoleError: One has no cost.
    """
    unique = {sequence.signature: sequence for sequence in sequences}
    costs = predictor.costs(unique, footprint=footprint, measured=measured)
    _refuse_holes(predictor, unique.values(), costs)
    return [costs[sequence.signature] for sequence in sequences]


def _sum(costs: Sequence[Cost], known: Uncertainty) -> Cost:
    if len(costs) == 1:
        return costs[0]
    latency, interval = compose(costs, uncertainty=known)
    source = max((cost.source for cost in costs), key=_SHARES.index)
    return Cost(latency, interval, source, "+".join(cost.kind for cost in costs))


def _refuse_holes(predictor: Predictor, layers: Iterable[LayerSequence], costs: Mapping[str, Cost]) -> None:
    holes = list(dict.fromkeys(layer.kind for layer in layers if layer.signature not in costs))
    if holes:
        raise HoleError("a network", predictor.system.name, holes)


def _flat(networks: "Sequence[Sequence[int]] | np.ndarray", blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the blocks of all networks in a row, and how many blocks each network has."""
    if isinstance(networks, np.ndarray):
        if networks.ndim != 2 or networks.dtype.kind not in "iu":
            raise ValueError("networks must be an array of integers of shape [num_networks, most_blocks]")
        there = networks != NO_BLOCK
        lengths = there.sum(axis=1)
        rows = networks[there].astype(np.int64)
    else:
        lengths = np.fromiter(map(len, networks), np.int64, len(networks))
        rows = np.fromiter(chain.from_iterable(networks), np.int64, int(lengths.sum()))
    strange = (rows < 0) | (rows >= blocks)
    if strange.any():
        place = int(np.argmax(strange))
        network = int(np.searchsorted(np.cumsum(lengths), place, side="right"))
        raise ValueError(f"network {network} names the block {rows[place]}, and there are {blocks}")
    return rows, lengths


def _layers_of(
    rows: np.ndarray,
    lengths: np.ndarray,
    blocks: Sequence[Sequence[LayerSequence]],
    layers: Sequence[LayerSequence],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same in layers: positions of all networks in a row, the network of each, how many each network has."""
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
    return flat[np.repeat(starts[rows], sizes[rows]) + within], of_network, found


def _priced(
    predictor: Predictor,
    layers: Sequence[LayerSequence],
    rows: np.ndarray,
    footprints: np.ndarray,
    of_network: np.ndarray,
    *,
    measured: bool,
) -> tuple[list[Cost], np.ndarray]:
    """Each different cost once, and for each row which one it is.

    What is measured costs the same wherever it is. What is predicted depends on the footprint, and one footprint stands
    for all between which the regressor sees no difference.
    """
    known = predictor.measured_costs({layer.signature: layer for layer in layers}) if measured else {}
    around, of_step = footprints[:1], np.zeros(len(footprints), dtype=np.int64)
    if predictor.regression is not None:
        steps = predictor.regression.steps.of_all(footprints, predictor.system)
        _, first, of_step = np.unique(steps, axis=0, return_index=True, return_inverse=True)
        around, of_step = footprints[first], of_step.reshape(-1)
    is_known = np.array([layer.signature in known for layer in layers])
    block = np.where(is_known[rows], 0, 1 + of_step[of_network])
    cells, of_row = np.unique(block * len(layers) + rows, return_inverse=True)
    wanted = [layers[place] for place in (cells % len(layers)).tolist()]
    asked = cells // len(layers) - 1
    if predictor.regression is None:
        _refuse_holes(predictor, layers, known)
    new = [layer for layer, step in zip(wanted, asked.tolist(), strict=True) if step >= 0]
    costs = iter(predictor.costs_among(new, around[asked[asked >= 0]], measured=False))
    found: dict[Cost, int] = {}
    numbers = []
    for layer, step in zip(wanted, asked.tolist(), strict=True):
        cost = known[layer.signature] if step < 0 else next(costs)
        assert cost is not None
        numbers.append(found.setdefault(cost, len(found)))
    return list(found), np.array(numbers)[of_row.reshape(-1)]


@dataclass(frozen=True)
class _Table:
    """Different costs as arrays, each of shape [num_costs]."""

    latency_us: np.ndarray
    half_width: np.ndarray
    source: np.ndarray
    kinds: list[str]

    @classmethod
    def of(cls, costs: Sequence[Cost]) -> "_Table":
        latencies = np.array([cost.latency_us for cost in costs])
        highs = np.array([cost.interval_us[1] for cost in costs])
        with np.errstate(divide="ignore", invalid="ignore"):
            widths = np.where(latencies > 0, np.log(highs / latencies), 0.0)
        source = np.array([_SHARES.index(cost.source) for cost in costs], dtype=np.int64)
        return cls(latencies, widths, source, [cost.kind for cost in costs])


def _factors(
    predictor: Predictor, table: _Table, of_row: np.ndarray, footprints: np.ndarray, of_network: np.ndarray
) -> np.ndarray:
    """What the cost of each row is multiplied by in its network; see `costmodel.serving.placing`."""
    if predictor.regression is None:
        return np.ones(len(of_row))
    bundle = predictor.regression.bundle
    under = pressures(footprints, predictor.system.host)
    # A sequence of several layers keeps its cost.
    single = np.array(["+" not in kind for kind in table.kinds])

    def of(in_place: InPlace) -> np.ndarray:
        by_cost = in_place.factors(table.latency_us, table.kinds, 0.0)
        return np.asarray(by_cost[of_row] * np.exp(in_place.footprint * under)[of_network])

    is_measured = table.source[of_row] == _SHARES.index("measured")
    placed = np.where(is_measured, of(bundle.measured_in_place), of(bundle.predicted_in_place))
    return np.where(single[of_row], placed, 1.0)


def _half_widths(
    table: _Table, of_row: np.ndarray, shares: np.ndarray, of_network: np.ndarray, networks: int, known: Uncertainty
) -> np.ndarray:
    """As `costmodel.composition.half_width`, for each network."""
    widened = shares * table.half_width[of_row]
    is_measured = table.source[of_row] == _SHARES.index("measured")
    measured = np.bincount(of_network, weights=np.where(is_measured, widened**2, 0.0), minlength=networks)
    # Predictions that are equal in a network are of one layer that repeats: their errors add up.
    cells = (of_network * len(table.kinds) + of_row)[~is_measured]
    cells, inverse = np.unique(cells, return_inverse=True)
    repeated = np.bincount(inverse.reshape(-1), weights=widened[~is_measured], minlength=len(cells))
    owner = cells // len(table.kinds)
    together = np.bincount(owner, weights=repeated, minlength=networks) ** 2
    apart = np.bincount(owner, weights=repeated**2, minlength=networks)
    rho = known.correlation
    return np.asarray(np.sqrt(measured + np.maximum(0.0, rho * together + (1 - rho) * apart) + known.construction**2))


def uncertainty_of(predictor: Predictor) -> Uncertainty:
    """What is known about errors of sums on a system."""
    return predictor.regression.bundle.calibration.uncertainty if predictor.regression else Uncertainty()


def _answer(
    predictor: Predictor, latencies: np.ndarray, widths: np.ndarray, coverage: dict[str, np.ndarray]
) -> Networks:
    interval = np.stack([latencies * np.exp(-widths), latencies * np.exp(widths)], axis=-1)
    regression = predictor.regression
    level = regression.bundle.calibration.level if regression else 0.9
    return Networks(latencies, interval, level, coverage, regression.id.version if regression else "none")


def _one_by_one(
    predictor: Predictor, layers: Sequence[LayerSequence], rows: np.ndarray, lengths: np.ndarray, *, measured: bool
) -> Networks:
    """With a regressor that sees neighbours: each layer is taken to read the result of the one before."""
    found = []
    for number, members in enumerate(np.split(rows, np.cumsum(lengths)[:-1])):
        pieces = tuple(
            Piece(layers[row], (f"{place}",), (place - 1,) if place else ())
            for place, row in enumerate(members.tolist())
        )
        found.append(predictor.estimate(Decomposition(f"network {number}", 1, pieces), measured=measured))
    return Networks(
        np.array([estimate.latency_us for estimate in found]),
        np.array([estimate.interval_us for estimate in found]),
        found[0].interval_level,
        {source: np.array([estimate.coverage[source] for estimate in found]) for source in _SHARES},
        predictor.regression.id.version if predictor.regression else "none",
    )
