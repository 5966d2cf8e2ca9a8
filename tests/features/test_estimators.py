"""Work of estimators, which is in their attributes and not in the shapes of their tensors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
from sklearn.base import BaseEstimator
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVR, NuSVR

from costmodel.features.work import Work, layer_work
from costmodel.ir.attributes import encode_attribute
from costmodel.ir.graph import Attributes, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value

_SPLITS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9), st.sampled_from(("LEAF", "BRANCH_LEQ", "odd"))),
    max_size=10,
)


def _layer(op_type: str, attributes: Attributes, rows: int, columns: int) -> Work:
    values = (
        Value(TensorType("float32", (rows, columns)), "input", None),
        Value(TensorType("float32", (rows, 1)), "internal", None),
    )
    layer = SequenceLayer(op_type, "ai.onnx.ml", 3, attributes, (0,), (1,))
    return layer_work(LayerSequence((layer,), values, (1,)), layer)


def _work_of(estimator: BaseEstimator, rows: int = 100) -> Work:
    """Returns the work of the first operator to which an estimator, fitted to 400 rows, is converted."""
    table = np.random.default_rng(0).uniform(-1, 1, (400, 8)).astype(np.float32)
    fitted = estimator.fit(table, (table[:, 0] * table[:, 1] > 0).astype(np.int64))
    node = convert_sklearn(fitted, initial_types=[("x", FloatTensorType([rows, 8]))], target_opset=15).graph.node[0]
    return _layer(node.op_type, {a.name: encode_attribute(a) for a in node.attribute}, rows, 8)


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (RandomForestClassifier(10, random_state=0), RandomForestClassifier(100, random_state=0)),
        (GradientBoostingRegressor(max_depth=2), GradientBoostingRegressor(max_depth=6)),
        (NuSVR(nu=0.1), NuSVR(nu=0.9)),
    ],
)
def test_a_larger_estimator_has_more_work(small: BaseEstimator, large: BaseEstimator) -> None:
    """Trees, levels and support vectors count, although the tensors are the same."""
    less, more = _work_of(small), _work_of(large)
    assert more.flops > 1.5 * less.flops
    assert more.parameter_bytes > less.parameter_bytes
    assert more.output_bytes == less.output_bytes


def test_a_forest_in_double_precision_has_the_same_nodes() -> None:
    """Its thresholds and weights are in tensors, of which only the sizes are known; each split is then an even one."""
    table = np.random.default_rng(0).uniform(-1, 1, (400, 8))
    fitted = RandomForestClassifier(10, random_state=0).fit(table, (table[:, 0] * table[:, 1] > 0).astype(np.int64))
    works = []
    for kind in (FloatTensorType, DoubleTensorType):
        node = convert_sklearn(
            fitted, initial_types=[("x", kind([100, 8]))], target_opset={"": 18, "ai.onnx.ml": 3}
        ).graph.node[0]
        works.append(_layer(node.op_type, {a.name: encode_attribute(a) for a in node.attribute}, 100, 8))
    single, double = works
    assert double.parameter_bytes == single.parameter_bytes
    assert double.flops == pytest.approx(single.flops, rel=0.5)


def test_each_row_is_estimated() -> None:
    """A forest's work grows with its rows; what they read is at most the whole forest."""
    one, many = (_work_of(RandomForestClassifier(20, random_state=0), rows) for rows in (1, 1000))
    assert many.flops == pytest.approx(1000 * one.flops)
    assert one.weight_bytes < many.weight_bytes == many.parameter_bytes


def test_a_linear_model_is_a_product() -> None:
    """So is a support vector machine, unless its kernel is a function of distances."""
    assert _work_of(LogisticRegression()).contraction is not None
    assert _work_of(SVR(kernel="linear")).multiply_flops > 0
    assert _work_of(SVR(kernel="rbf")).multiply_flops == 0


def test_sure_branches_are_cheap() -> None:
    """A threshold beyond all inputs sends each row the same way, which the processor predicts."""

    def forest(threshold: float) -> Work:
        return _layer(
            "TreeEnsembleRegressor",
            {
                "nodes_treeids": {"ints": [0, 0, 0]},
                "nodes_nodeids": {"ints": [0, 1, 2]},
                "nodes_featureids": {"ints": [0, 0, 0]},
                "nodes_modes": {"strings": ["BRANCH_LEQ", "LEAF", "LEAF"]},
                "nodes_values": {"floats": [threshold, 0.0, 0.0]},
                "nodes_truenodeids": {"ints": [1, 0, 0]},
                "nodes_falsenodeids": {"ints": [2, 0, 0]},
                "target_weights": {"floats": [1.0, 2.0]},
            },
            100,
            4,
        )

    assert forest(3.0).flops < 0.5 * forest(0.0).flops


@given(_SPLITS, st.lists(st.floats(-2, 2), max_size=10))
def test_any_attributes_are_described(nodes: list[tuple[int, int, int, str]], thresholds: list[float]) -> None:
    """Nodes that do not form trees, in circles or without thresholds, are no error: a client may send them."""
    work = _layer(
        "TreeEnsembleClassifier",
        {
            "nodes_treeids": {"ints": [0] * len(nodes)},
            "nodes_nodeids": {"ints": list(range(len(nodes)))},
            "nodes_featureids": {"ints": [feature for feature, *_ in nodes]},
            "nodes_modes": {"strings": [mode for *_, mode in nodes]},
            "nodes_values": {"floats": thresholds},
            "nodes_truenodeids": {"ints": [true for _, true, _, _ in nodes]},
            "nodes_falsenodeids": {"ints": [false for _, _, false, _ in nodes]},
        },
        3,
        4,
    )
    assert 0 <= work.flops < 1e12
