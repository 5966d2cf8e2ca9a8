"""Pairs of turns: the same model measured with one release and, directly before or after, with the other.

The measurements are in the results store like any others. An entry of their environment says which comparison, model
and pair they belong to; this module writes that entry and puts the pairs together again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from costmodel.measure.measurement import Measurement
from costmodel.partition.decomposition import Decomposition
from costmodel.store.store import Store

__all__ = ["ComparedModel", "Marks", "Pair", "Turn", "read_pairs", "turn_of", "usable_pairs"]

# Entry of the environment of a measurement that belongs to a comparison.
_ENTRY = "comparison"
# A turn counts as quiet if the probes of the machine's state were slower by no more than this while runs were kept.
_QUIET_SLOWDOWN = 1.02
# Number of quiet pairs from which pairs that were disturbed do not count.
_ENOUGH_QUIET = 4


@dataclass(frozen=True, slots=True)
class Marks:
    """The identity of a comparison, which is stored with its measurements.

    Attributes:
        old: Runtime and full version of the release from which it starts, such as "onnxruntime 1.30.0".
        new: Runtime and full version of the other release.
    """

    old: str
    new: str

    def put(self, measurement: Measurement, model: str, digest: str, pair: str) -> Measurement:
        """Returns a measurement of a turn, marked with the comparison, the model and the pair.

        Args:
            measurement: Measurement to mark.
            model: Name of the model.
            digest: Digest of the model.
            pair: Name of the pair, which is unique among those of the model.
        """
        entry = {"from": self.old, "to": self.new, "model": model, "digest": digest, "pair": pair}
        return replace(measurement, environment={**measurement.environment, _ENTRY: entry})

    def entry_of(self, measurement: Measurement) -> Mapping[str, Any] | None:
        """Returns the entry of a measurement of this comparison; None for other measurements."""
        entry: Mapping[str, Any] | None = measurement.environment.get(_ENTRY)
        return entry if entry is not None and (entry["from"], entry["to"]) == (self.old, self.new) else None


@dataclass(frozen=True, slots=True)
class Turn:
    """The latencies that one release measured of one model in one turn.

    Attributes:
        layers_us: Latency of each layer in microseconds, by signature.
        whole_us: Latency of the whole model in microseconds; None if it was not measured.
        quiet: Whether the machine was quiet.
    """

    layers_us: Mapping[str, float]
    whole_us: float | None
    quiet: bool


@dataclass(frozen=True, slots=True)
class Pair:
    """The turns of both releases on one model, one directly after the other.

    Attributes:
        old: Turn of the release from which the comparison starts.
        new: Turn of the other release.
    """

    old: Turn
    new: Turn

    @property
    def quiet(self) -> bool:
        """Whether the machine was quiet in both turns."""
        return self.old.quiet and self.new.quiet


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """A model as both releases execute it, with the pairs of turns in which it was measured.

    Attributes:
        name: Name of the model.
        old: Layers that the release executes from which the comparison starts.
        new: Layers that the other release executes.
        pairs: Pairs in the order in which they were measured.
    """

    name: str
    old: Decomposition
    new: Decomposition
    pairs: Sequence[Pair] = ()


def turn_of(measurements: Iterable[Measurement]) -> Turn:
    """Returns the measurements of a turn as latencies."""
    found = list(measurements)
    wholes = [one.latency_us for one in found if one.kind == "model"]
    return Turn(
        layers_us={one.signature: one.latency_us for one in found if one.kind != "model"},
        whole_us=wholes[0] if wholes else None,
        quiet=all(one.environment.get("slowdown", 1.0) <= _QUIET_SLOWDOWN for one in found),
    )


def read_pairs(
    store: Store, systems: tuple[str, str], marks: Marks, digests: Mapping[str, str]
) -> dict[str, list[Pair]]:
    """Returns the pairs of a comparison that are in the store, by name of the model and in the order of measuring.

    Turns without a counterpart, which are left over when a comparison is interrupted, are not among them.

    Args:
        store: Store with the measurements.
        systems: Names of the systems of both releases.
        marks: Identity of the comparison.
        digests: Digest of each model, by name.
    """
    turns: tuple[dict[tuple[str, str], list[Measurement]], ...] = ({}, {})
    for system, of_system in zip(systems, turns, strict=True):
        for measurement in store.measurements(system):
            entry = marks.entry_of(measurement)
            if entry is not None and digests.get(entry["model"]) == entry["digest"]:
                of_system.setdefault((entry["model"], entry["pair"]), []).append(measurement)
    old, new = turns
    pairs: dict[str, list[Pair]] = {}
    for key in sorted(old.keys() & new.keys()):
        pairs.setdefault(key[0], []).append(Pair(turn_of(old[key]), turn_of(new[key])))
    return pairs


def usable_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Returns the pairs that count: the complete ones, and of these the quiet ones if there are enough.

    A pair is complete if each of its turns has everything that any turn of the same release has.
    """
    complete = [
        pair
        for pair in pairs
        if _has_all(pair.old, [one.old for one in pairs]) and _has_all(pair.new, [one.new for one in pairs])
    ]
    quiet = [pair for pair in complete if pair.quiet]
    return quiet if len(quiet) >= _ENOUGH_QUIET else complete


def _has_all(turn: Turn, turns: Sequence[Turn]) -> bool:
    known = set(chain.from_iterable(one.layers_us for one in turns))
    whole = any(one.whole_us is not None for one in turns)
    return turn.layers_us.keys() >= known and (turn.whole_us is not None) == whole
