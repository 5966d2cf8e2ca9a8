"""What one machine has measured, as a value: what travels between stores, and what of it was new where it arrived."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from costmodel.measurement import Measurement
from costmodel.sequence import LayerSequence
from costmodel.systems import System

__all__ = ["Added", "Results", "StoredModel", "StoredPiece"]


@dataclass(frozen=True, slots=True)
class StoredPiece:
    """One sequence at its place in a stored model; fields as in `costmodel.decomposition.Piece`."""

    signature: str
    layers: tuple[str, ...]
    needs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model of the corpus.

    Attributes:
        name: Of the model.
        lowering: What made its graph of layers: runtime, version, level, vector width.
        granularity: Of its decomposition.
        family: Architecture lineage; never split across training and test.
        whole: Signature of the model as one sequence.
        pieces: Its decomposition.
        digest: Of the model that was lowered; empty where that is not known.
    """

    name: str
    lowering: str
    granularity: int
    family: str
    whole: str
    pieces: tuple[StoredPiece, ...]
    digest: str = ""

    @property
    def signatures(self) -> set[str]:
        """Of the model as one sequence and of its pieces."""
        return {self.whole, *(piece.signature for piece in self.pieces)}


@dataclass(frozen=True)
class Results:
    """What was measured on one system, and what is needed to make sense of it.

    Attributes:
        system: Where.
        measurements: First ones before repeats.
        sequences: What every signature in these attributes stands for.
        models: Of the corpus, at every granularity; none where they are nobody's business.
        samples: For sampled signatures, the signature that each was sampled around.
    """

    system: System
    measurements: tuple[Measurement, ...]
    sequences: Mapping[str, LayerSequence]
    models: tuple[StoredModel, ...] = ()
    samples: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Added:
    """What results brought to a store that had some.

    Attributes:
        measurements: How many are new.
        known: How many were here already.
        models: Names of those that are new, or cut at a granularity that is new.
    """

    measurements: int
    known: int
    models: frozenset[str] = frozenset()
