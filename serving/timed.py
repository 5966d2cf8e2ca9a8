"""Measured costs of a system, kept in memory until the store is written to."""

from collections.abc import Mapping

from costmodel.composition import Cost
from costmodel.recent import Recent
from costmodel.sequence import LayerSequence
from costmodel.store import Store

__all__ = ["Timed"]

_MOST_KEPT = 100_000
_NOT_MEASURED = Cost(0.0, (0.0, 0.0), "unpriced", "")


class Timed:
    """What is measured on a system; threads may share it.

    A measurement that anybody adds to the store is seen at once: what is kept counts for one version of the store. A
    store that cannot tell its version is asked each time.
    """

    def __init__(self, store: Store, system: str, *, settled: bool = False) -> None:
        """Of a system.

        Args:
            store: Where measurements are.
            system: Its name.
            settled: Whether what was read once is kept for good: whoever asks looks for changes, and then asks anew.
        """
        self._settled = settled
        self._store = store
        self._system = system
        self._kept: tuple[tuple[int, ...] | None, Recent[str, Cost]] = (None, Recent(_MOST_KEPT))

    def costs(self, sequences: Mapping[str, LayerSequence]) -> dict[str, Cost]:
        """The costs of those that are measured, by signature.

        Args:
            sequences: By signature.
        """
        # Before anything is read: what is written meanwhile then belongs to another version.
        version = () if self._settled else self._store.version()
        if version is None:
            return self._read(sequences)
        kept_for, recent = self._kept
        if version != kept_for:
            recent = Recent(_MOST_KEPT)
            self._kept = version, recent
        found: dict[str, Cost] = {}
        missing: dict[str, LayerSequence] = {}
        for signature, sequence in sequences.items():
            cost = recent.get(signature)
            if cost is None:
                missing[signature] = sequence
            elif cost is not _NOT_MEASURED:
                found[signature] = cost
        if missing:
            read = self._read(missing)
            for signature in missing:
                recent.put(signature, read.get(signature, _NOT_MEASURED))
            found |= read
        return found

    def _read(self, sequences: Mapping[str, LayerSequence]) -> dict[str, Cost]:
        timings = self._store.timings(self._system, sequences)
        return {
            signature: Cost(timing.latency_us, timing.interval_us, "measured", sequences[signature].kind)
            for signature, timing in timings.items()
        }
