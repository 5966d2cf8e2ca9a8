"""The part of a results store that a benchmark session uses, and a store of one batch in memory."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from costmodel.ir.sequence import LayerSequence
from costmodel.measure.measurement import Measurement
from costmodel.systems.system import System

__all__ = ["BatchStore", "SessionStore"]


class SessionStore(Protocol):
    """The methods of `costmodel.store.store.Store` that a benchmark session calls."""

    def systems(self) -> dict[str, System]:
        """Returns all systems by name."""

    def put_system(self, system: System) -> None:
        """Adds or replaces the record of a system."""

    def latencies_us(self, system: str, signatures: Iterable[str] | None = None) -> Mapping[str, float]:
        """Returns latencies on a system in microseconds by signature."""

    def put_sequences(self, sequences: Iterable[LayerSequence]) -> None:
        """Adds the layer sequences that the store does not have yet."""

    def put_measurements(self, system: str, measurements: Iterable[Measurement]) -> None:
        """Adds measurements."""


class BatchStore:
    """A store in memory, which holds what one benchmark process measures until it is sent to the results store.

    Attributes:
        system: Record of the system; None until a session has stored one.
        measurements: Measurements in the order in which they were made.
    """

    def __init__(self, system: System | None = None, known: Mapping[str, float] | None = None) -> None:
        """Creates a store without measurements.

        Args:
            system: Record of the system, with its capabilities; None if they are not measured yet.
            known: Latencies in microseconds, by signature, of sequences that need no measurement.
        """
        self.system = system
        self.measurements: list[Measurement] = []
        self._known = dict(known or {})

    def systems(self) -> dict[str, System]:
        """Returns the system by name."""
        return {} if self.system is None else {self.system.name: self.system}

    def put_system(self, system: System) -> None:
        """Replaces the record of the system."""
        self.system = system

    def latencies_us(self, system: str, signatures: Iterable[str] | None = None) -> Mapping[str, float]:
        """Returns the latencies, in microseconds, of the sequences that need no measurement, by signature."""
        return self._known

    def put_sequences(self, sequences: Iterable[LayerSequence]) -> None:
        """Does nothing, because the results store has the sequences."""

    def put_measurements(self, system: str, measurements: Iterable[Measurement]) -> None:
        """Adds measurements."""
        self.measurements.extend(measurements)
