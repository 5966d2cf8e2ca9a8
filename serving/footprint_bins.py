"""Groups the footprints of models into bins between which a regressor sees no difference.

The same layer occurs in many models, each of which reads another number of bytes of weights. A tree only compares that
number with its thresholds, so that a layer that was priced in one model need not be priced again in similar ones.
"""

import numpy as np
import onnx
from onnx import NodeProto, helper

from costmodel.features.row import footprint_features
from costmodel.features.schema import FEATURE_GROUPS, SCHEMA
from costmodel.systems.system import System

__all__ = ["FootprintBins"]

_FOOTPRINT = tuple(SCHEMA.names.index(name) for name in FEATURE_GROUPS["footprint"])
_TREES = "TreeEnsembleRegressor"
_LEQ, _LEAF = b"BRANCH_LEQ", b"LEAF"


class FootprintBins:
    """Bins of footprints within which a regressor predicts the same.

    In an ensemble of trees their bounds are the thresholds of the trees; for any other regressor every different
    footprint is a bin.
    """

    def __init__(self, model: bytes) -> None:
        """Reads the thresholds from a regressor in ONNX."""
        nodes = [node for node in onnx.load_model_from_string(model).graph.node if "features" in node.input]
        found = [_thresholds(node) for node in nodes]
        self._cuts: list[np.ndarray] | None = None
        if nodes and all(thresholds is not None for thresholds in found):
            every = [threshold for thresholds in found for threshold in thresholds or ()]
            self._cuts = [
                np.unique(np.array([value for column, value in every if column == wanted], dtype=np.float32))
                for wanted in _FOOTPRINT
            ]

    def of(self, footprints: np.ndarray, system: System) -> np.ndarray:
        """Returns a row for each model; rows are equal where the regressor sees no difference.

        Args:
            footprints: Bytes of weights that each model reads, shape [num_models].
            system: System on which the models would run.

        Returns:
            Shape [num_models, num_features].
        """
        features = footprint_features(footprints, system)
        if self._cuts is None:
            return np.stack(features, axis=-1)
        bins = [np.searchsorted(cuts, values) for cuts, values in zip(self._cuts, features, strict=True)]
        return np.stack(bins, axis=-1)


def _thresholds(node: NodeProto) -> list[tuple[int, float]] | None:
    """Returns columns and thresholds on the footprint in an ensemble of trees; None for any other kind of node."""
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if node.op_type != _TREES or not set(attributes["nodes_modes"]) <= {_LEQ, _LEAF}:
        return None
    parts = (attributes[f"nodes_{part}"] for part in ("featureids", "values", "modes"))
    return [
        (column, value) for column, value, mode in zip(*parts, strict=True) if column in _FOOTPRINT and mode == _LEQ
    ]
