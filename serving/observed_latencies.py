"""Finds models whose latency was observed on a system, and not measured, so that an estimate can use it."""

from collections import Counter
from collections.abc import Mapping

from costmodel.partition.decomposition import Decomposition
from costmodel.store.store import Store

__all__ = ["ObservedLatencies"]

# A model, as its layer sequences with the number of occurrences of each.
_Layers = frozenset[tuple[str, int]]


class ObservedLatencies:
    """Latencies of whole models that were imported for one system; threads may share it.

    They are read again whenever any process writes to the results store; each time, if the database does not tell.
    """

    def __init__(self, store: Store, system: str, *, settled: bool = False) -> None:
        """Reads nothing yet.

        Args:
            store: Results store with the latencies.
            system: Name of the system.
            settled: Whether latencies that are added to the store later are ignored.
        """
        self._store = store
        self._system = system
        self._settled = settled
        self._cached: tuple[tuple[int, ...] | None, Mapping[_Layers, float]] | None = None

    def find(self, cut: Decomposition) -> float | None:
        """Returns the observed latency of a model in microseconds; None if there is none.

        Args:
            cut: Decomposition of the model into single layers, or the whole model as one sequence.
        """
        known = self._read()
        return known.get(frozenset(cut.counts.items())) if known else None

    def _read(self) -> Mapping[_Layers, float]:
        version = () if self._settled else self._store.version()
        if self._cached is None or version is None or self._cached[0] != version:
            latencies_us = self._store.observed_latencies_us(self._system)
            known: dict[_Layers, float] = {}
            for model in self._store.models() if latencies_us else ():
                if model.granularity == 1 and model.whole in latencies_us:
                    counts = Counter(segment.signature for segment in model.segments)
                    known[frozenset(counts.items())] = latencies_us[model.whole]
                    known[frozenset([(model.whole, 1)])] = latencies_us[model.whole]
            self._cached = version, known
        return self._cached[1]
