"""Caches the measured costs of a system until the results store is written to."""

from collections.abc import Mapping

from costmodel.bounded_cache import BoundedCache
from costmodel.estimate.cost import UNPRICED, Cost
from costmodel.ir.sequence import LayerSequence
from costmodel.store.store import Store

__all__ = ["MeasuredCostCache"]

_MAX_COSTS = 100_000


class MeasuredCostCache:
    """Cache of the measured costs of layer sequences on one system; threads may share it.

    The cache is emptied whenever any process writes to the results store, so that new measurements are used at once. If
    the database does not tell whether it was written to, the store is read each time.
    """

    def __init__(self, store: Store, system: str, *, settled: bool = False) -> None:
        """Creates an empty cache.

        Args:
            store: Results store with the measurements.
            system: Name of the system.
            settled: Whether cached costs stay valid although the store is written to, because the caller itself looks
                for changes and then creates a new cache.
        """
        self._settled = settled
        self._store = store
        self._system = system
        self._cached: tuple[tuple[int, ...] | None, BoundedCache[str, Cost]] = (None, BoundedCache(_MAX_COSTS))

    def costs(self, sequences: Mapping[str, LayerSequence]) -> dict[str, Cost]:
        """Returns the measured costs of sequences by signature; sequences without a measurement are left out.

        Args:
            sequences: Layer sequences by signature.
        """
        # The version of the store is read before the costs: what is written meanwhile belongs to a later version.
        version = () if self._settled else self._store.version()
        if version is None:
            return self._read(sequences)
        valid_for, cache = self._cached
        if version != valid_for:
            cache = BoundedCache(_MAX_COSTS)
            self._cached = version, cache
        found: dict[str, Cost] = {}
        missing: dict[str, LayerSequence] = {}
        for signature, sequence in sequences.items():
            cost = cache.get(signature)
            if cost is None:
                missing[signature] = sequence
            elif cost is not UNPRICED:
                found[signature] = cost
        if missing:
            read = self._read(missing)
            for signature in missing:
                cache.put(signature, read.get(signature, UNPRICED))
            found |= read
        return found

    def _read(self, sequences: Mapping[str, LayerSequence]) -> dict[str, Cost]:
        timings = self._store.timings(self._system, sequences)
        return {
            signature: Cost(timing.latency_us, timing.interval_us, "measured", sequences[signature].kind)
            for signature, timing in timings.items()
        }
