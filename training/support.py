"""What a regressor was trained on, as points: how far a layer lies from the nearest of its operator.

A prediction interpolates between layers that were measured. The further away the nearest of them, the less there is to
interpolate between; calibration turns that distance into a wider interval (`costmodel.training.calibration`).
"""

import io
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded

__all__ = ["FARTHEST", "Support", "farthest"]

# What a layer does, in sizes whose difference of 1 is a factor of e, and what counts as much as that. Nothing of the
# model around it: a layer has one place, wherever it runs.
_COORDINATES = (
    "log_batch", "log_rows", "log_columns", "log_depth", "log_in_channels", "log_out_channels", "log_in_positions",
    "log_out_positions", "log_kernel_area", "stride", "log_group", "item_bytes", "log_inner_run", "log_axis_size",
    "log_output_bytes", "log_weight_bytes", "blocked_input", "interpolation", "rank",
)  # fmt: skip
# Of a layer whose operator was never measured; no other counts as farther.
FARTHEST = 10.0
# Coordinates are whole tenths: small enough that float32 adds up their squares exactly, in whatever order.
_TENTHS, _MOST = 10, 400
_PORTION = 512
_COLUMNS = [SCHEMA.names.index(name) for name in _COORDINATES]
_FIRST_OPERATOR = next(i for i, name in enumerate(SCHEMA.names) if name.startswith("op_"))


@dataclass(frozen=True)
class Support:
    """Layers that were trained on.

    Attributes:
        points: Their coordinates in tenths, int16, shape [num_points, num_coordinates].
        operators: Operator of each as its place among those of the schema, int16, shape [num_points].
    """

    points: np.ndarray
    operators: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray) -> Self:
        """That of layers, each once.

        Args:
            features: float32, shape [num_layers, num_features], columns as in `SCHEMA`.
        """
        found = np.unique(np.column_stack([_operators(features), _points(features)]), axis=0)
        return cls(found[:, 1:], found[:, 0])

    def distances(self, features: np.ndarray) -> np.ndarray:
        """How far each layer is from the nearest of its operator, at most `FARTHEST`; shape [num_layers].

        Args:
            features: float32, shape [num_layers, num_features], columns as in `SCHEMA`.
        """
        points, operators = _points(features), _operators(features)
        nearest = np.full(len(points), FARTHEST)
        for operator in np.unique(operators).tolist():
            if operator in self._known:
                asked = operators == operator
                nearest[asked] = _nearest(points[asked], *self._known[operator])
        return nearest

    @cached_property
    def _known(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """For each operator its points in columns, and the squares of their lengths."""
        found = {}
        for operator in np.unique(self.operators).tolist():
            points = self.points[self.operators == operator].astype(np.float32)
            found[operator] = (np.ascontiguousarray(-2 * points.T), (points**2).sum(axis=1))
        return found

    def to_bytes(self) -> bytes:
        """As a NumPy archive of two arrays of numbers; read back by `from_bytes`."""
        file = io.BytesIO()
        np.savez_compressed(file, points=self.points, operators=self.operators)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What `to_bytes` wrote down.

        Raises:
            ValueError: It is something else.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                points, operators = arrays["points"], arrays["operators"]
        except Exception as error:  # zipfile's, zlib's and NumPy's own
            raise ValueError(f"no points of layers: {error}") from error
        if points.dtype != np.int16 or operators.dtype != np.int16 or points.shape != (len(operators), len(_COLUMNS)):
            raise ValueError("points of layers in other coordinates")
        return cls(points, operators)


def _nearest(points: np.ndarray, columns: np.ndarray, squares: np.ndarray) -> np.ndarray:
    found = np.empty(len(points))
    for start in range(0, len(points), _PORTION):
        some = points[start : start + _PORTION].astype(np.float32)
        found[start : start + _PORTION] = (some @ columns + squares).min(axis=1) + (some**2).sum(axis=1)
    return np.asarray(np.minimum(FARTHEST, np.sqrt(found) / _TENTHS))


def _points(features: np.ndarray) -> np.ndarray:
    tenths = np.clip(np.rint(features[:, _COLUMNS] * _TENTHS), -_MOST, _MOST)
    return np.asarray(tenths, dtype=np.int16)


def _operators(features: np.ndarray) -> np.ndarray:
    return np.asarray(np.argmax(features[:, _FIRST_OPERATOR:], axis=1), dtype=np.int16)


def farthest(encoded: Encoded, support: Support) -> np.ndarray:
    """The distance of the farthest layer of each sequence; shape [num_sequences]."""
    if not len(encoded):
        return np.zeros(0)
    return np.asarray(np.maximum.reduceat(support.distances(encoded.features), encoded.starts[:-1]))
