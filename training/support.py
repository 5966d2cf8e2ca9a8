"""Support of a regressor: the layers that it was trained on as points, and the distance of other layers to them.

A prediction interpolates between measured layers of the same operator. It is less certain the further away the nearest
of these is; calibration turns that distance into a wider interval (`costmodel.training.calibration`).
"""

import io
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded

__all__ = ["MAX_DISTANCE", "Support", "sequence_distances"]

# Features that serve as coordinates: logarithms of sizes, in which a difference of 1 is a factor of e, and others of
# comparable scale. None depends on the model around a layer, so that a layer has the same point in every model.
_COORDINATES = (
    "log_batch", "log_rows", "log_columns", "log_depth", "log_in_channels", "log_out_channels", "log_in_positions",
    "log_out_positions", "log_kernel_area", "stride", "log_group", "item_bytes", "log_inner_run", "log_axis_size",
    "log_output_bytes", "log_weight_bytes", "blocked_input", "interpolation", "rank",
)  # fmt: skip
# Distance of a layer whose operator was never measured, and the largest distance.
MAX_DISTANCE = 10.0
# Coordinates are whole tenths, limited in size so that float32 sums their squares exactly, in whatever order.
_TENTHS, _MAX_TENTHS = 10, 400
# Number of points whose distances are computed at a time.
_CHUNK = 512
_COLUMNS = [SCHEMA.names.index(name) for name in _COORDINATES]
_FIRST_OPERATOR = next(i for i, name in enumerate(SCHEMA.names) if name.startswith("op_"))


@dataclass(frozen=True)
class Support:
    """The layers that a regressor was trained on, as points whose coordinates are mostly logarithms of sizes.

    Attributes:
        points: Coordinates of the points in tenths, int16, shape [num_points, num_coordinates].
        operators: Index of the operator of each point among the operator columns of the schema, int16, shape
            [num_points].
    """

    points: np.ndarray
    operators: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray) -> Self:
        """Creates a support from the features of the layers trained on; layers with equal coordinates become one point.

        Args:
            features: float32, shape [num_layers, num_features], columns as in `SCHEMA`.
        """
        layers = np.unique(np.column_stack([_operators(features), _points(features)]), axis=0)
        return cls(layers[:, 1:], layers[:, 0])

    def distances(self, features: np.ndarray) -> np.ndarray:
        """Returns the distance of each layer to the nearest point of the same operator.

        Args:
            features: float32, shape [num_layers, num_features], columns as in `SCHEMA`.

        Returns:
            Distances, at most `MAX_DISTANCE`; shape [num_layers].
        """
        points, operators = _points(features), _operators(features)
        nearest = np.full(len(points), MAX_DISTANCE)
        for operator in np.unique(operators).tolist():
            if operator in self._known:
                chosen = operators == operator
                nearest[chosen] = _nearest(points[chosen], *self._known[operator])
        return nearest

    @cached_property
    def _known(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Points of each operator: their coordinates times -2 as columns, and the squared norms of the points."""
        known = {}
        for operator in np.unique(self.operators).tolist():
            points = self.points[self.operators == operator].astype(np.float32)
            known[operator] = (np.ascontiguousarray(-2 * points.T), (points**2).sum(axis=1))
        return known

    def to_bytes(self) -> bytes:
        """Returns the support as a NumPy archive of two numeric arrays, to be read back by `from_bytes`."""
        file = io.BytesIO()
        np.savez_compressed(file, points=self.points, operators=self.operators)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Creates a support from the result of `to_bytes`.

        Raises:
            ValueError: `data` is not an archive of `to_bytes`, or has coordinates other than this version of costmodel.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                points, operators = arrays["points"], arrays["operators"]
        except Exception as error:  # zipfile, zlib and NumPy raise errors of their own
            raise ValueError(f"no points of layers: {error}") from error
        if points.dtype != np.int16 or operators.dtype != np.int16 or points.shape != (len(operators), len(_COLUMNS)):
            raise ValueError("points of layers in other coordinates")
        return cls(points, operators)


def _nearest(points: np.ndarray, columns: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Returns the distance of each point to the nearest point of a support, shape [num_points].

    Args:
        points: Coordinates in tenths, shape [num_points, num_coordinates].
        columns: Points of the support times -2 as columns, shape [num_coordinates, num_support_points].
        squares: Squared norms of the points of the support, shape [num_support_points].
    """
    squared = np.empty(len(points))
    for start in range(0, len(points), _CHUNK):
        chunk = points[start : start + _CHUNK].astype(np.float32)
        squared[start : start + _CHUNK] = (chunk @ columns + squares).min(axis=1) + (chunk**2).sum(axis=1)
    return np.asarray(np.minimum(MAX_DISTANCE, np.sqrt(squared) / _TENTHS))


def _points(features: np.ndarray) -> np.ndarray:
    tenths = np.clip(np.rint(features[:, _COLUMNS] * _TENTHS), -_MAX_TENTHS, _MAX_TENTHS)
    return np.asarray(tenths, dtype=np.int16)


def _operators(features: np.ndarray) -> np.ndarray:
    return np.asarray(np.argmax(features[:, _FIRST_OPERATOR:], axis=1), dtype=np.int16)


def sequence_distances(encoded: Encoded, support: Support) -> np.ndarray:
    """Returns the distance of each sequence to a support, shape [num_sequences].

    It is the largest distance of any layer of the sequence to the nearest point of the same operator.
    """
    if not len(encoded):
        return np.zeros(0)
    return np.asarray(np.maximum.reduceat(support.distances(encoded.features), encoded.starts[:-1]))
