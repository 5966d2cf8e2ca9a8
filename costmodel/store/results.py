"""Results: the measurements of one system with the models they belong to, as values for transfer between stores."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from costmodel.ir.sequence import LayerSequence
from costmodel.measure.measurement import Measurement
from costmodel.systems.system import System

__all__ = ["ImportSummary", "Results", "StoredModel", "StoredSegment"]


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A layer sequence in its place in a stored model.

    Attributes:
        signature: Signature of the layer sequence.
        layers: Names of the layers, as in the layer graph.
        predecessors: Positions, in the decomposition, of the segments whose outputs this segment reads.
    """

    signature: str
    layers: tuple[str, ...]
    predecessors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model of the corpus at one granularity.

    Attributes:
        name: Name of the model.
        lowering: Key of the lowering that produced the layers: runtime, its version, optimisation level, vector width.
        granularity: Granularity of the decomposition.
        family: Architecture lineage, which is never split across training and test.
        whole: Signature of the whole model as one sequence.
        segments: Segments of the decomposition, in execution order.
        digest: Digest of the model that was lowered; empty if it is unknown.
    """

    name: str
    lowering: str
    granularity: int
    family: str
    whole: str
    segments: tuple[StoredSegment, ...]
    digest: str = ""

    @property
    def signatures(self) -> set[str]:
        """Signatures of the whole model and of its segments."""
        return {self.whole, *(segment.signature for segment in self.segments)}


@dataclass(frozen=True)
class Results:
    """The measurements of one system, with the sequences, models and samples that they refer to.

    Attributes:
        system: System on which the measurements were made.
        measurements: Measurements; of those with the same signature, the first comes before its repeats.
        sequences: Layer sequences by signature, for every signature that occurs in the other attributes.
        models: Models of the corpus at each granularity; empty if the models are not to be disclosed.
        samples: Signature of the sequence that each sample was made from, by the sample's signature.
    """

    system: System
    measurements: tuple[Measurement, ...]
    sequences: Mapping[str, LayerSequence]
    models: tuple[StoredModel, ...] = ()
    samples: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """A summary of what an import added to a store.

    Attributes:
        measurements: Number of measurements that were new.
        known: Number of imported measurements that the store already had.
        models: Names of the models that were new or were added at a new granularity.
        removed: Number of observed latencies that the import replaced.
    """

    measurements: int
    known: int
    models: frozenset[str] = frozenset()
    removed: int = 0
