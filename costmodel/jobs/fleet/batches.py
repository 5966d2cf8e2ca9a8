"""Batches: what one benchmark process measures on one machine, and how it travels there and back.

A portion of a group is the smallest unit that is timed as on one host: sequences of one model that are loaded together
and timed in turn, at most as many as a benchmark on one host would load at a time. A batch is one portion, or several
small ones that are timed one after another, as one host would: starting a process takes about as long as timing a few
layers.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.bench_report import BenchReport
from costmodel.measure.groups import Group, grouped
from costmodel.measure.measurement import Measurement
from costmodel.systems.system import System

__all__ = ["Batch", "BatchResult", "batches_of"]

# As many sequences as one portion may have: what is lost when a machine dies is no more than without small portions.
_MOST_SEQUENCES = 256


@dataclass(frozen=True, slots=True)
class Batch:
    """Portions of groups of layer sequences, to be measured in one process on one machine of one system.

    Attributes:
        system: Name of the system.
        groups: Portions, each of sequences that are timed in turn; whole models run with synthetic weights.
        missing: Signatures of those sequences that are to be measured; the others run as their context.
        common: Whether the batch is the common set of the machines of the system, by which they are compared.
    """

    system: str
    groups: tuple[Group, ...]
    missing: frozenset[str]
    common: bool = False

    @property
    def sequences(self) -> dict[str, LayerSequence]:
        """The sequences of all groups by signature, whole models included."""
        return {sequence.signature: sequence for group in self.groups for sequence in group.members}

    @property
    def label(self) -> str:
        """Name of the batch in messages: that of its first group."""
        more = len(self.groups) - 1
        return self.groups[0].label + (f" and {more} more" if more else "")

    @property
    def key(self) -> str:
        """A name of the batch that is the same whenever the same sequences are to be measured on the same system."""
        digest = hashlib.sha256("".join([*self.sequences, "/", *sorted(self.missing)]).encode()).hexdigest()
        return f"costmodel-{self.system}-{digest[:32]}"

    def to_bytes(self) -> bytes:
        """Returns the batch as compressed JSON."""
        return _packed(
            {
                "system": self.system,
                "groups": [
                    {
                        "label": group.label,
                        "sequences": [sequence.text for sequence in group.sequences],
                        "whole": None if group.whole is None else group.whole.text,
                        "footprint_bytes": group.footprint_bytes,
                    }
                    for group in self.groups
                ],
                "missing": sorted(self.missing),
                "common": self.common,
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> "Batch":
        """Returns the batch from the output of `to_bytes`."""
        data = _unpacked(content)
        return cls(data["system"], tuple(map(_group, data["groups"])), frozenset(data["missing"]), data["common"])


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The measurements of a batch, with the machine that made them.

    Attributes:
        machine: Name of the machine.
        system: The machine, described as a system.
        measurements: Measurements; their environment has the name of the machine, and whether the batch was the common
            set.
        report: Counts and failures.
    """

    machine: str
    system: System
    measurements: tuple[Measurement, ...] = ()
    report: BenchReport = field(default_factory=BenchReport)

    def to_bytes(self) -> bytes:
        """Returns the result as compressed JSON."""
        return _packed(
            {
                "machine": self.machine,
                "system": self.system.to_dict(),
                "measurements": [asdict(measurement) for measurement in self.measurements],
                "report": asdict(self.report),
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> "BatchResult":
        """Returns the result from the output of `to_bytes`."""
        data = _unpacked(content)
        return cls(
            machine=data["machine"],
            system=System.from_dict(data["system"]),
            measurements=tuple(map(_measurement, data["measurements"])),
            report=BenchReport(**data["report"]),
        )


def batches_of(
    system: str, groups: Iterable[Group], known: Set[str], *, most: int = _MOST_SEQUENCES
) -> Iterator[Batch]:
    """Yields the batches that contain what is to be measured on a system, in the order of the groups.

    A group is cut where a benchmark on one host would cut it. A sequence that several groups contain is to be measured
    with the first of them.

    Args:
        system: Name of the system.
        groups: Groups to measure.
        known: Signatures of the sequences that are measured already.
        most: Maximum number of sequences in a batch of several portions.
    """
    parts: list[Group] = []
    missing: set[str] = set()
    for part, of_part in _portions(groups, known):
        if parts and sum(len(one.members) for one in (*parts, part)) > most:
            yield Batch(system, tuple(parts), frozenset(missing))
            parts, missing = [], set()
        parts.append(part)
        missing |= of_part
    if parts:
        yield Batch(system, tuple(parts), frozenset(missing))


def _portions(groups: Iterable[Group], known: Set[str]) -> Iterator[tuple[Group, set[str]]]:
    """Yields the portions of groups that contain something to measure, with the signatures of that."""
    seen = set(known)
    for group in groups:
        bare = {s.signature: s for s in group.sequences if s != group.whole}
        if group.footprint_bytes is None:  # without a model there is no context that would have to run again
            bare = {signature: s for signature, s in bare.items() if signature not in seen}
        whole = group.whole
        for portion in grouped(bare.values()) or [Group("", ())]:
            part = replace(group, sequences=portion.sequences, whole=whole, model=None)
            missing = {sequence.signature for sequence in part.members} - seen
            seen |= missing
            whole = None
            if missing:
                yield part, missing


def _group(data: Mapping[str, Any]) -> Group:
    return Group(
        label=data["label"],
        sequences=tuple(map(LayerSequence.from_text, data["sequences"])),
        whole=None if data["whole"] is None else LayerSequence.from_text(data["whole"]),
        footprint_bytes=data["footprint_bytes"],
    )


def _measurement(data: Mapping[str, Any]) -> Measurement:
    times: Sequence[Sequence[float]] = data["pass_times_us"]
    return Measurement(
        **{**data, "pass_times_us": tuple(map(tuple, times)), "reference_us": tuple(data["reference_us"])}
    )


def _packed(data: Mapping[str, Any]) -> bytes:
    return zlib.compress(json.dumps(data, allow_nan=False, separators=(",", ":")).encode(), 1)


def _unpacked(content: bytes) -> Any:
    return json.loads(zlib.decompress(content))
