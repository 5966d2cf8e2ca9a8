"""Work of estimators: operators of ai.onnx.ml whose parameters are attributes, to which scikit-learn models convert.

Nothing in the shapes of their tensors tells how much they compute: that is in the number of nodes of a forest, or of
support vectors. Constants are times on a Zen 4, in simple operations of `costmodel.features.analytical_bound`, of which
a core makes about 20 per nanosecond (docs/adr/0031).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any, NamedTuple

from costmodel.features.contraction import Contraction
from costmodel.ir.graph import Attributes, TensorType

__all__ = ["ESTIMATORS", "NO_ESTIMATOR", "Estimator", "estimator_of", "estimator_products"]

_Types = Sequence[TensorType | None]

_FORESTS = {"TreeEnsembleClassifier": "class", "TreeEnsembleRegressor": "target", "TreeEnsemble": "leaf"}
_VECTOR_MACHINES = {"SVMClassifier", "SVMRegressor"}
_LINEAR = {"LinearClassifier", "LinearRegressor"}
ESTIMATORS = frozenset({*_FORESTS, *_VECTOR_MACHINES, *_LINEAR})

_NODE_BYTES = 24
_STEP_FLOPS = 40.0  # a row at one node of a tree
_MISPREDICTION_FLOPS = 200.0  # a branch that the processor predicts wrongly
_LEAF_FLOPS = 26.0  # adding one number of a leaf to a result
_DISTANCE_FLOPS = 12.0  # one element of a squared distance, one after another
_RADIAL_FLOPS = 30.0  # one exponential of such a distance
_KERNEL_FLOPS = 6.0  # one value of another kernel function
_VOTE_FLOPS = 14.0  # one coefficient of one support vector
_MOST_TREES = 32  # of which the paths are followed
_MOST_NODES = 500_000  # that are looked at; the first trees stand for the others, also those that a client invents
_LEAST_SHARE = 1e-4  # share of the rows below which a path is not followed
_UP_TO = {"BRANCH_LEQ", "BRANCH_LT"}  # comparisons that are true of small values


@dataclass(frozen=True, slots=True)
class Estimator:
    """The work of an estimator besides its matrix product.

    Attributes:
        flops: Arithmetic in simple operations.
        parameter_bytes: Size of all parameters.
        bytes_read: Bytes of the parameters that are read: of a forest, the nodes that rows pass.
    """

    flops: float
    parameter_bytes: int
    bytes_read: int


NO_ESTIMATOR = Estimator(0.0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Forest:
    """The size of a forest.

    Attributes:
        trees: Number of trees.
        nodes: Number of nodes of all trees, leaves included.
        steps: Number of splits that a row passes in a tree, on average.
        mispredictions: Number of these at which a row goes the less likely way.
        weights: Number of numbers in all leaves that results are sums of.
    """

    trees: int
    nodes: int
    steps: float
    mispredictions: float
    weights: int


class _Split(NamedTuple):
    """A node that is no leaf: rows whose feature is at most the threshold go on to `low`, the others to `high`.

    The threshold is None if it is not known; a child that is a leaf, or does not exist, is no key of a split.
    """

    feature: int
    threshold: float | None
    low: Hashable
    high: Hashable


def estimator_products(inputs: _Types, outputs: Sequence[TensorType], attributes: Attributes) -> list[Contraction]:
    """Returns the matrix product of a linear model, or of a support vector machine whose kernel is one; else none."""
    rows, columns = _table(inputs)
    if "support_vectors" in attributes:
        vectors = _vectors(attributes, columns)
        return [Contraction(1, rows, vectors, columns)] if _text(attributes, "kernel_type") != "RBF" else []
    coefficients = len(_list(attributes, "coefficients"))
    return [Contraction(1, rows, max(1, coefficients // columns), columns)]


def estimator_of(op_type: str, inputs: _Types, outputs: Sequence[TensorType], attributes: Attributes) -> Estimator:
    """Returns the work of an operator of `ESTIMATORS` besides its matrix product."""
    rows, columns = _table(inputs)
    written = float(sum(kind.elements for kind in outputs))
    if op_type in _FORESTS:
        forest = _forest(op_type, attributes)
        size = _NODE_BYTES * forest.nodes
        leaves = max(1, forest.nodes - forest.nodes // 2)
        passing = _STEP_FLOPS * forest.steps + _MISPREDICTION_FLOPS * forest.mispredictions
        each = forest.trees * (passing + _LEAF_FLOPS * forest.weights / leaves)
        passed = _NODE_BYTES * rows * forest.trees * (forest.steps + 1)
        return Estimator(rows * each + written, size, int(min(size, passed)))
    size = 4 * sum(len(_list(attributes, name)) for name in ("support_vectors", "coefficients"))
    if op_type in _LINEAR:
        return Estimator(written, size, size)
    vectors = _vectors(attributes, columns)
    radial = _text(attributes, "kernel_type") == "RBF"
    each = _DISTANCE_FLOPS * columns + _RADIAL_FLOPS if radial else _KERNEL_FLOPS
    if op_type == "SVMClassifier":
        each += _VOTE_FLOPS * len(_list(attributes, "coefficients")) / vectors
    return Estimator(rows * vectors * each + written, size, size)


def _forest(op_type: str, attributes: Attributes) -> _Forest:
    in_leaves = f"{_FORESTS[op_type]}_weights"
    weights = _count(attributes, in_leaves) or _count(attributes, f"{in_leaves}_as_tensor")
    if op_type == "TreeEnsemble":
        return _new_forest(attributes, weights)
    trees = _list(attributes, "nodes_treeids")
    names = list(islice(zip(trees, _list(attributes, "nodes_nodeids"), strict=False), _MOST_NODES))
    features, *children = (_list(attributes, f"nodes_{name}") for name in ("featureids", "truenodeids", "falsenodeids"))
    # Thresholds in double precision are in a tensor, whose elements are not known.
    thresholds = _list(attributes, "nodes_values") or [None] * len(features)
    rows = zip(features, thresholds, *children, _list(attributes, "nodes_modes"), strict=False)
    splits: dict[Hashable, _Split] = {
        (tree, node): _split(feature, value, (tree, true), (tree, false), mode in _UP_TO)
        for (tree, node), (feature, value, true, false, mode) in zip(names, rows, strict=False)
        if mode != "LEAF"
    }
    roots: dict[Any, Hashable] = {}  # the first node of each tree
    for tree, node in names:
        roots.setdefault(tree, (tree, node))
    return _Forest(len(set(trees)), len(trees), *_passed(splits, list(roots.values())), weights)


def _new_forest(attributes: Attributes, weights: int) -> _Forest:
    """Returns the size of a TreeEnsemble, whose leaves are in lists of their own."""
    names = ("featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs")
    features = _list(attributes, "nodes_featureids")
    rows = list(islice(zip(*(_list(attributes, f"nodes_{name}") for name in names), strict=False), _MOST_NODES))
    known = attributes.get("nodes_splits", {}).get("t", {}).get("data")
    thresholds = known if known and len(known) == len(rows) else [None] * len(rows)
    splits: dict[Hashable, _Split] = {
        node: _split(feature, threshold, None if true_leaf else true, None if false_leaf else false, True)
        for node, ((feature, true, true_leaf, false, false_leaf), threshold) in enumerate(
            zip(rows, thresholds, strict=True)
        )
    }
    roots = _list(attributes, "tree_roots")
    followed = [root for root in roots if root in splits]
    return _Forest(len(roots), len(features) + weights, *_passed(splits, followed), weights)


def _split(feature: int, threshold: Any, true: Hashable, false: Hashable, up_to: bool) -> _Split:
    known = threshold if isinstance(threshold, int | float) else None
    return _Split(feature, known, true, false) if up_to else _Split(feature, known, false, true)


def _passed(splits: Mapping[Hashable, _Split], roots: Sequence[Hashable]) -> tuple[float, float]:
    """Returns how many splits a row passes in a tree on average, and how many of them are mispredicted.

    Mispredicted are those where it goes the less likely way.

    Rows are taken to be uniform between -1 and 1 in each feature, as synthetic inputs are. Some trees stand for all.
    """
    steps = mispredictions = 0.0
    looked_at = roots[:: -(-len(roots) // _MOST_TREES)] if roots else []
    for root in looked_at:
        pending: list[tuple[Hashable, float, Mapping[int, tuple[float, float]]]] = [(root, 1.0, {})]
        seen: set[Hashable] = set()  # a client may send circles
        while pending:
            node, share, ranges = pending.pop()
            split = splits.get(node)
            if split is None or share < _LEAST_SHARE or node in seen:
                continue
            seen.add(node)
            low, high = ranges.get(split.feature, (-1.0, 1.0))
            at = (low + high) / 2 if split.threshold is None else min(max(split.threshold, low), high)
            below = (at - low) / (high - low) if high > low else 0.5
            steps += share
            mispredictions += share * min(below, 1 - below)
            pending.append((split.low, share * below, {**ranges, split.feature: (low, at)}))
            pending.append((split.high, share * (1 - below), {**ranges, split.feature: (at, high)}))
    return steps / max(1, len(looked_at)), mispredictions / max(1, len(looked_at))


def _table(inputs: _Types) -> tuple[int, int]:
    """Returns the numbers of rows and columns of the first input, which is one row if it has fewer than two axes."""
    shape = inputs[0].shape if inputs and inputs[0] is not None else ()
    rows, columns = shape[:2] if len(shape) >= 2 else (1, *(shape or (1,)))
    return max(1, rows), max(1, columns)


def _vectors(attributes: Attributes, columns: int) -> int:
    return max(1, len(_list(attributes, "support_vectors")) // columns)


def _text(attributes: Attributes, name: str) -> str:
    return str(attributes.get(name, {}).get("s", "LINEAR"))


def _list(attributes: Attributes, name: str) -> Sequence[Any]:
    return next((values for values in attributes.get(name, {}).values() if isinstance(values, list)), ())


def _count(attributes: Attributes, name: str) -> int:
    """Returns the number of elements of a list or of a tensor."""
    tensor = attributes.get(name, {}).get("t")
    return len(_list(attributes, name)) if tensor is None else prod(tensor["shape"])
