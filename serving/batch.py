"""A batch of models that are made of a few different layer sequences."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costmodel.ir.footprint import read_bytes
from costmodel.ir.sequence import LayerSequence

__all__ = ["Batch"]


@dataclass(frozen=True)
class Batch:
    """Models as positions of their layer sequences, one model after another, in execution order.

    Attributes:
        sequences: The different layer sequences.
        rows: Position in `sequences` of each sequence of each model, shape [num_rows].
        lengths: Number of sequences of each model, shape [num_models].
    """

    sequences: tuple[LayerSequence, ...]
    rows: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, models: Iterable[Sequence[LayerSequence]]) -> "Batch":
        """Returns the batch of models that are given as their layer sequences."""
        positions: dict[str, int] = {}
        sequences: list[LayerSequence] = []
        rows, lengths = [], []
        for model in models:
            for sequence in model:
                position = positions.setdefault(sequence.signature, len(sequences))
                if position == len(sequences):
                    sequences.append(sequence)
                rows.append(position)
            lengths.append(len(model))
        return cls(tuple(sequences), np.array(rows, dtype=np.int64), np.array(lengths, dtype=np.int64))

    @cached_property
    def model(self) -> np.ndarray:
        """Number of the model that each row belongs to, shape [num_rows]."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def footprints(self) -> np.ndarray:
        """Bytes of weights that each model reads, shape [num_models]."""
        read = np.array([read_bytes(sequence) for sequence in self.sequences], dtype=np.float64)
        return np.bincount(self.model, weights=read[self.rows], minlength=len(self.lengths))

    def models(self) -> Iterator[list[int]]:
        """Yields the rows of each model."""
        ends = np.cumsum(self.lengths)
        for start, end in zip((ends - self.lengths).tolist(), ends.tolist(), strict=True):
            yield self.rows[start:end].tolist()
