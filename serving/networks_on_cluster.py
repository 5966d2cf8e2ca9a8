"""Prices millions of networks on the workers of a Dask cluster, in portions; the results equal those of one process."""

import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from costmodel.cluster import Cluster, LostTaskError
from costmodel.errors import ClusterError, CostModelError
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.measurement import Timing
from costmodel.serving.loaded_regressor import Regression
from costmodel.serving.networks import Networks, flat_networks, price_flat_networks, refuse_empty
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from costmodel.systems.system import System
from costmodel.training.artefact import Bundle

__all__ = ["price_networks_on"]

# Rows (layers or blocks of networks) of a portion: about a second of work, in a message of 1 to 4 MB.
_PORTION_ROWS = 1_000_000
_IN_FLIGHT = 2  # portions of a worker at a time, so that the next one is there when one is done
_TRIES = 4
_WAIT_S = 5.0


@dataclass(frozen=True)
class _Pricing:
    """Everything with which a worker prices networks, without access to the store.

    Attributes:
        token: Name of this pricing, under which a worker keeps its predictor.
        system: The system.
        bundle: Regressor of what is not measured; None if none was trained.
        timings: Timings of the measured layers, by signature.
        blocks: Canonical texts of the layer sequences of each block.
        measured: Whether measurements are used.
    """

    token: str
    system: System
    bundle: Bundle | None
    timings: dict[str, Timing]
    blocks: tuple[tuple[str, ...], ...]
    measured: bool


class _Timings:
    """Stands for the results store on a worker: the timings that the client has read from it."""

    def __init__(self, timings: dict[str, Timing]) -> None:
        self._timings = timings

    def version(self) -> tuple[int, ...]:
        return ()

    def timings(self, _system: str, signatures: Iterable[str]) -> dict[str, Timing]:
        return {signature: self._timings[signature] for signature in signatures if signature in self._timings}


# The predictor and the blocks of the pricing that this worker took part in last, by its token.
_loaded: dict[str, tuple[Predictor, tuple[tuple[LayerSequence, ...], ...]]] = {}


def price_networks_on(
    address: str,
    predictor: Predictor,
    blocks: Sequence[Sequence[LayerSequence]],
    networks: "Sequence[Sequence[int]] | np.ndarray",
    *,
    measured: bool = True,
    portion_rows: int = _PORTION_ROWS,
) -> Networks:
    """Returns the latency of each network as `costmodel.serving.networks.price_networks` does, priced on a cluster.

    Args:
        address: Address of the scheduler of the cluster; costmodel must be installed on its workers.
        predictor: Predictor of the system.
        blocks: Blocks that the networks consist of, each as its layer sequences in execution order.
        networks: For each network the positions in `blocks` of its blocks, as in `price_networks`.
        measured: Whether to use measurements; without them every cost is predicted.
        portion_rows: Number of blocks of networks that are sent at a time.

    Raises:
        ClusterError: The cluster cannot be reached, has no worker, or its workers cannot price.
        UnpricedLayersError: A layer has no cost on the system.
        ValueError: A network has no layer, or names a block that does not exist.
    """
    rows, lengths = flat_networks(networks, len(blocks))
    refuse_empty(rows, lengths, blocks)
    layers = {layer.signature for block in blocks for layer in block}
    pricing = _Pricing(
        token=uuid.uuid4().hex,
        system=predictor.system,
        bundle=None if predictor.regression is None else predictor.regression.bundle,
        timings=predictor.store.timings(predictor.system.name, layers) if measured else {},
        blocks=tuple(tuple(layer.text for layer in block) for block in blocks),
        measured=measured,
    )
    # Few different blocks: their numbers travel in one byte each, or two.
    small = rows.astype(np.min_scalar_type(max(0, len(blocks) - 1)))
    with Cluster.connect(address) as cluster:
        parts = _run(cluster, pricing, list(_portions(small, lengths, portion_rows)))
    if not parts:
        return price_flat_networks(predictor, blocks, rows, lengths, measured=measured)
    return Networks(
        np.concatenate([part.latency_us for part in parts]),
        np.concatenate([part.interval_us for part in parts]),
        parts[0].interval_level,
        {source: np.concatenate([part.coverage[source] for part in parts]) for source in parts[0].coverage},
        parts[0].version,
    )


def _portions(rows: np.ndarray, lengths: np.ndarray, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the rows and lengths of consecutive networks with about `most` rows together."""
    ends = np.cumsum(lengths)
    start = 0
    while start < len(lengths):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield rows[before : int(ends[stop - 1])], lengths[start:stop]
        start = stop


def _run(cluster: Cluster, pricing: _Pricing, portions: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[Networks]:
    """Returns the result of each portion, in order; a portion whose worker dies is priced by another one."""
    parts: dict[int, Networks] = {}
    waiting, running = deque(range(len(portions))), dict[str, int]()
    tries = [0] * len(portions)
    shared = None
    while len(parts) < len(portions):
        workers = len(cluster.workers())
        if not workers:
            raise ClusterError(
                f"the cluster at {cluster.address} has no worker: start `dask worker {cluster.address}` with costmodel "
                "installed"
            )
        if shared is None:
            shared = cluster.share(pricing)
        while waiting and len(running) < _IN_FLIGHT * workers:
            place = waiting.popleft()
            tries[place] += 1
            key = f"costmodel-price-{pricing.token}-{place}-{tries[place]}"
            running[key] = place
            cluster.submit(key, _price, shared, *portions[place])
        finished = cluster.next_finished(_WAIT_S)
        if finished is None:
            continue
        place = running.pop(finished.key)
        if finished.error is None:
            parts[place] = finished.result
        elif isinstance(finished.error, LostTaskError) and tries[place] < _TRIES:
            waiting.append(place)
            shared = None  # what was shared may have been lost with the worker
        elif isinstance(finished.error, CostModelError | ValueError):
            raise finished.error
        else:
            raise ClusterError(
                f"the workers at {cluster.address} cannot price ({type(finished.error).__name__}: {finished.error}): "
                "install the same costmodel on them as here"
            ) from finished.error
    return [parts[place] for place in range(len(portions))]


def _price(pricing: _Pricing, rows: np.ndarray, lengths: np.ndarray) -> Networks:
    """Prices a portion of the networks; the task that a worker runs."""
    if pricing.token not in _loaded:
        regression = None if pricing.bundle is None else Regression(pricing.bundle)
        # Pricing asks the store for timings only.
        store = cast(Store, _Timings(pricing.timings))
        blocks = tuple(tuple(map(LayerSequence.from_text, block)) for block in pricing.blocks)
        _loaded.clear()
        _loaded[pricing.token] = Predictor(store, pricing.system, regression, settled=True), blocks
    predictor, blocks = _loaded[pricing.token]
    return price_flat_networks(predictor, blocks, rows.astype(np.int64), lengths, measured=pricing.measured)
