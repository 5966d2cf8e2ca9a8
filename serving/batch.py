"""Batches of models as arrays, in which each different layer sequence is stored once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costmodel.ir.footprint import activation_bytes, read_bytes
from costmodel.ir.sequence import LayerSequence

__all__ = ["Batch"]


@dataclass(frozen=True)
class Batch:
    """A batch of models, as arrays of indices into the layer sequences that the models are made of.

    Attributes:
        sequences: The different layer sequences of all models, each once.
        rows: Index in `sequences` of each sequence of each model, model after model, in execution order; shape
            [num_rows].
        lengths: Number of sequences of each model, repetitions included; shape [num_models].
        shared_bytes: Bytes of weights that the sequences of each model read again because several share them, shape
            [num_models]; None if no model has shared weights, or if it is not known, as of networks of a search space.
    """

    sequences: tuple[LayerSequence, ...]
    rows: np.ndarray
    lengths: np.ndarray
    shared_bytes: np.ndarray | None = None

    @classmethod
    def of(cls, models: Iterable[Sequence[LayerSequence]], shared_bytes: np.ndarray | None = None) -> "Batch":
        """Returns the batch of models that are each given as their layer sequences in execution order.

        Args:
            models: The models.
            shared_bytes: Bytes of weights that each model's sequences read again, shape [num_models]; None if unknown.
        """
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
        return cls(tuple(sequences), np.array(rows, dtype=np.int64), np.array(lengths, dtype=np.int64), shared_bytes)

    @cached_property
    def model(self) -> np.ndarray:
        """Index of the model that each entry of `rows` belongs to, shape [num_rows]."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def weights(self) -> np.ndarray:
        """Bytes of weights that each of `sequences` reads, shape [num_different]."""
        return np.array([read_bytes(sequence) for sequence in self.sequences], dtype=np.float64)

    @cached_property
    def footprints(self) -> np.ndarray:
        """Footprint of each model, as `costmodel.ir.footprint.Footprint` defines it; shape [num_models, 2]."""
        count, different = len(self.lengths), max(1, len(self.sequences))
        active = np.array([activation_bytes(sequence) for sequence in self.sequences], dtype=np.float64)
        once = np.unique(self.model * different + self.rows)
        shared = 0.0 if self.shared_bytes is None else self.shared_bytes
        return np.stack(
            [
                np.bincount(self.model, weights=self.weights[self.rows], minlength=count) - shared,
                np.bincount(once // different, weights=active[once % different], minlength=count),
            ],
            axis=-1,
        )

    def models(self) -> Iterator[list[int]]:
        """Yields, for each model, the indices in `sequences` of its sequences, in execution order."""
        ends = np.cumsum(self.lengths)
        for start, end in zip((ends - self.lengths).tolist(), ends.tolist(), strict=True):
            yield self.rows[start:end].tolist()
