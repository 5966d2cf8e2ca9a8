"""Groups the footprints of models into bins within which a regressor predicts the same.

A footprint (`costmodel.ir.footprint.Footprint`) tells how much memory a model touches. The same layer occurs in many
models with different footprints. A regression tree only compares the features of a footprint with its thresholds, so
that a layer that was priced in one model need not be priced again in models with a similar footprint.
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
    """Bins of footprints: for all footprints in a bin, a regressor predicts the same cost of a layer.

    If the regressor is an ensemble of trees, the thresholds of the trees are the bounds of the bins; for any other
    regressor every different footprint is a bin of its own.
    """

    def __init__(self, model: bytes) -> None:
        """Reads the thresholds with which a regressor compares footprints.

        Args:
            model: Content of the regressor's ONNX file.
        """
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
        """Returns the bin of each model as a row of numbers; rows are equal exactly if the models are in the same bin.

        Args:
            footprints: `Footprint` of each model, shape [num_models, 2].
            system: System on which the models would run.

        Returns:
            Array of shape [num_models, num_features]: for each feature that is computed from the footprint, the number
            of its bin, or the feature itself where the regressor is no ensemble of trees.
        """
        features = footprint_features(footprints, system)
        if self._cuts is None:
            return np.stack(features, axis=-1)
        bins = [np.searchsorted(cuts, values) for cuts, values in zip(self._cuts, features, strict=True)]
        return np.stack(bins, axis=-1)


def _thresholds(node: NodeProto) -> list[tuple[int, float]] | None:
    """Returns the thresholds with which an ONNX node, an ensemble of trees, compares features of the footprint.

    Returns:
        For each comparison, the column of the feature and the threshold; None if the node is no ensemble of trees.
    """
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if node.op_type != _TREES or not set(attributes["nodes_modes"]) <= {_LEQ, _LEAF}:
        return None
    parts = (attributes[f"nodes_{part}"] for part in ("featureids", "values", "modes"))
    return [
        (column, value) for column, value, mode in zip(*parts, strict=True) if column in _FOOTPRINT and mode == _LEQ
    ]
