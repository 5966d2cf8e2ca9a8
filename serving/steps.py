"""Between which footprints a regressor sees no difference.

The same layer is asked about in many models, each of which reads another number of bytes of weights. Trees see of it
only between which two of their thresholds it lies, so that a layer priced in one model is priced for its like.
"""

from collections.abc import Hashable

import numpy as np
import onnx
from onnx import NodeProto, helper

from costmodel.features.row import footprint_features
from costmodel.features.schema import GROUPS, SCHEMA
from costmodel.systems import System

__all__ = ["Steps"]

_FOOTPRINT = tuple(SCHEMA.names.index(name) for name in GROUPS["footprint"])
_TREES = "TreeEnsembleRegressor"
_LEQ, _LEAF = b"BRANCH_LEQ", b"LEAF"


class Steps:
    """Thresholds of the features that tell of the footprint; every regressor but trees sees each number."""

    def __init__(self, model: bytes) -> None:
        """Of a network in ONNX."""
        nodes = [node for node in onnx.load_model_from_string(model).graph.node if "features" in node.input]
        found = [_thresholds(node) for node in nodes]
        self._cuts: list[np.ndarray] | None = None
        if nodes and all(thresholds is not None for thresholds in found):
            every = [threshold for thresholds in found for threshold in thresholds or ()]
            self._cuts = [
                np.unique(np.array([value for column, value in every if column == wanted], dtype=np.float32))
                for wanted in _FOOTPRINT
            ]

    def of(self, footprint: float, system: System) -> Hashable:
        """What is the same for footprints that make no difference to any layer.

        Args:
            footprint: Bytes of weights that a model reads.
            system: Where it would run.
        """
        return tuple(self.of_all(np.array([footprint]), system)[0].tolist())

    def of_all(self, footprints: np.ndarray, system: System) -> np.ndarray:
        """The same of several models: rows that are equal make no difference; shape [num_models, num_features]."""
        features = footprint_features(footprints, system)
        if self._cuts is not None:
            places = (np.searchsorted(cuts, values) for cuts, values in zip(self._cuts, features, strict=True))
            return np.stack(list(places), axis=-1)
        return np.stack(features, axis=-1)


def _thresholds(node: NodeProto) -> list[tuple[int, float]] | None:
    """Columns and thresholds on the footprint of an ensemble of trees; None if it is none, or not of our kind."""
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if node.op_type != _TREES or not set(attributes["nodes_modes"]) <= {_LEQ, _LEAF}:
        return None
    parts = (attributes[f"nodes_{part}"] for part in ("featureids", "values", "modes"))
    return [
        (column, value) for column, value, mode in zip(*parts, strict=True) if column in _FOOTPRINT and mode == _LEQ
    ]
