"""Random instances of ai.onnx.ml operators, to which scikit-learn models are converted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from costmodel.training.corpora.operator_instances.draw import Draw, TooExpensiveError
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep

__all__ = ["MORE", "SWEEPS"]

_MOST_NODES = 40_000  # of a forest, whose nodes are in its file
_DIFFERENT_TREES = 4  # the others are the same on other features, so that stored layers take little room
_MOST_COEFFICIENTS = 40_000


def _floats(d: Draw, count: int) -> str:
    return f"[{', '.join(str(d.size(1, 999) / 1000) for _ in range(count))}]"


def _simple(call: str) -> Drawer:
    return lambda d: f"(float[{d.table}] x) => (float y) {{ y = ai.onnx.ml.{call}(x) }}"


def _features(d: Draw) -> int:
    return d.size(2, 128)


def _picked(d: Draw) -> str:
    return f"""(float[{d.table}] x, int64[{d.size(1, 16)}] i) => (float y)
        {{ y = ai.onnx.ml.ArrayFeatureExtractor(x, i) }}"""


def _joined(d: Draw) -> str:
    left, right = _features(d), _features(d)
    return f"""(float[{d.rows},{left}] a, float[{d.rows},{right}] b) => (float y)
        {{ y = ai.onnx.ml.FeatureVectorizer<inputdimensions = [{left}, {right}]>(a, b) }}"""


def _imputed(d: Draw) -> str:
    count = _features(d)
    return f"""(float[{d.rows},{count}] x) => (float y)
        {{ y = ai.onnx.ml.Imputer<imputed_value_floats = {_floats(d, count)}, replaced_value_float = 0.0>(x) }}"""


def _labels(d: Draw) -> str:
    count = _features(d)
    return f"""(int64[{d.rows}] x) => (float y) {{ y = ai.onnx.ml.LabelEncoder
        <keys_int64s = {list(range(count))}, values_floats = {_floats(d, count)}, default_float = 0.3>(x) }}"""


def _one_hot(d: Draw) -> str:
    return f"""(int64[{d.rows}] x) => (float y)
        {{ y = ai.onnx.ml.OneHotEncoder<cats_int64s = {list(range(_features(d)))}, zeros = 1>(x) }}"""


def _scaled(d: Draw) -> str:
    count = _features(d)
    return f"""(float[{d.rows},{count}] x) => (float y)
        {{ y = ai.onnx.ml.Scaler<offset = {_floats(d, count)}, scale = {_floats(d, count)}>(x) }}"""


def _linear(d: Draw) -> str:
    count = _features(d)
    return f"""(float[{d.rows},{count}] x) => (float y)
        {{ y = ai.onnx.ml.LinearRegressor<coefficients = {_floats(d, count)}, intercepts = [0.1]>(x) }}"""


def _linear_classes(d: Draw) -> str:
    count, classes = _features(d), d.size(2, 20)
    return f"""(float[{d.rows},{count}] x) => (int64 y, float z) {{ y, z = ai.onnx.ml.LinearClassifier
        <coefficients = {_floats(d, count * classes)}, intercepts = {_floats(d, classes)},
         classlabels_ints = {list(range(classes))}, post_transform = "SOFTMAX">(x) }}"""


def _vectors(d: Draw, *, classes: bool) -> str:
    count, vectors = d.size(2, 32), d.size(2, 64)
    kernel = f"""kernel_type = "RBF", kernel_params = [0.5, 0.0, 3.0], rho = [0.1],
        support_vectors = {_floats(d, count * vectors)}, coefficients = {_floats(d, vectors)}"""
    if classes:
        parts = [vectors // 2, vectors - vectors // 2]
        return f"""(float[{d.rows},{count}] x) => (int64 y, float z) {{ y, z = ai.onnx.ml.SVMClassifier
            <{kernel}, classlabels_ints = [0, 1], vectors_per_class = {parts}>(x) }}"""
    return f"""(float[{d.rows},{count}] x) => (float y)
        {{ y = ai.onnx.ml.SVMRegressor<{kernel}, n_supports = {vectors}>(x) }}"""


def _tree(depth: int) -> Iterator[tuple[int, bool]]:
    """Yields the index of each node of a full binary tree of this depth, and whether the node is a leaf.

    The children of node i have the indices 2i + 1 and 2i + 2.
    """
    count = 2 ** (depth + 1) - 1
    return ((node, node >= count // 2) for node in range(count))


def _forest(d: Draw, *, classes: bool) -> str:
    count, trees, depth = d.size(2, 32), d.size(1, 50), d.size(1, 5)
    nodes = [(tree, node, leaf) for tree in range(trees) for node, leaf in _tree(depth)]
    leaves = [(tree, node) for tree, node, leaf in nodes if leaf]
    modes = ", ".join('"LEAF"' if leaf else '"BRANCH_LEQ"' for _, _, leaf in nodes)
    target = "class" if classes else "target"
    text = f"""nodes_treeids = {[tree for tree, _, _ in nodes]}, nodes_nodeids = {[node for _, node, _ in nodes]},
        nodes_featureids = {[node % count for _, node, _ in nodes]}, nodes_modes = [{modes}],
        nodes_values = {_floats(d, len(nodes))},
        nodes_truenodeids = {[0 if leaf else 2 * node + 1 for _, node, leaf in nodes]},
        nodes_falsenodeids = {[0 if leaf else 2 * node + 2 for _, node, leaf in nodes]},
        {target}_treeids = {[tree for tree, _ in leaves]}, {target}_nodeids = {[node for _, node in leaves]},
        {target}_ids = {[node % 2 if classes else 0 for _, node in leaves]},
        {target}_weights = {_floats(d, len(leaves))}"""
    if classes:
        return f"""(float[{d.rows},{count}] x) => (int64 y, float z)
            {{ y, z = ai.onnx.ml.TreeEnsembleClassifier<{text}, classlabels_int64s = [0, 1]>(x) }}"""
    return f"""(float[{d.rows},{count}] x) => (float y)
        {{ y = ai.onnx.ml.TreeEnsembleRegressor<{text}, n_targets = 1>(x) }}"""


def _new_forest(d: Draw) -> str:
    """Returns a random TreeEnsemble, the newest forest operator, as ONNX text; each of its trees has one split."""
    count, trees = d.size(2, 32), d.size(1, 100)
    each = f"uint8[{trees}] {{{', '.join('0' * trees)}}}"
    splits = f"float[{trees}] {{{_floats(d, trees)[1:-1]}}}"
    weights = f"float[{2 * trees}] {{{_floats(d, 2 * trees)[1:-1]}}}"
    return f"""(float[{d.rows},{count}] x) => (float y) {{ y = ai.onnx.ml.TreeEnsemble
        <aggregate_function = 1, post_transform = 0, n_targets = 1, tree_roots = {list(range(trees))},
         nodes_featureids = {[tree % count for tree in range(trees)]}, nodes_modes = {each}, nodes_splits = {splits},
         nodes_truenodeids = {[2 * tree for tree in range(trees)]}, nodes_trueleafs = {[1] * trees},
         nodes_falsenodeids = {[2 * tree + 1 for tree in range(trees)]}, nodes_falseleafs = {[1] * trees},
         leaf_targetids = {[0] * (2 * trees)}, leaf_weights = {weights}>(x) }}"""


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of a tree: the values of one feature up to `threshold` go to `low`, others to `high`; 0, 0 for a leaf."""

    feature: int
    threshold: float
    low: int = 0
    high: int = 0


def _grown_tree(random: Random, features: int, leaves: int, skew: float) -> list[_Node]:
    """Returns a tree as fitting grows it: each split lies within what the splits above it leave of its feature.

    Args:
        random: Source of random numbers.
        features: Number of features, whose values lie between -1 and 1.
        leaves: Number of leaves.
        skew: How far a split may be from the middle; 0 for a balanced tree.
    """
    nodes: list[_Node] = []
    # Leaves below, ranges of features, the node above, and whether the node is its low side.
    pending: list[tuple[int, dict[int, tuple[float, float]], int, bool]] = [(leaves, {}, -1, True)]
    while pending:
        below, ranges, above, is_low = pending.pop()
        if above >= 0:
            parent, here = nodes[above], len(nodes)
            nodes[above] = _Node(
                parent.feature, parent.threshold, here if is_low else parent.low, parent.high if is_low else here
            )
        feature = int(random.random() * features)
        low, high = ranges.get(feature, (-1.0, 1.0))
        share = 0.5 + skew * (random.random() - 0.5)
        nodes.append(_Node(feature, round(low + (high - low) * share, 3)))
        if below > 1:
            left = min(below - 1, max(1, round(below * share)))
            at = nodes[-1].threshold
            pending.append((below - left, {**ranges, feature: (at, high)}, len(nodes) - 1, False))
            pending.append((left, {**ranges, feature: (low, at)}, len(nodes) - 1, True))
    return nodes


def _grown_forest(d: Draw) -> tuple[int, list[list[_Node]]]:
    """Returns a number of features and the trees of a random forest, whose size is that of fitted ones."""
    features, trees, leaves = d.size(4, 200), d.size(1, 300), d.size(4, 1000)
    if 2 * trees * leaves > _MOST_NODES or trees > _DIFFERENT_TREES * features:
        raise TooExpensiveError
    random, skew = Random(d.size(1, 1 << 30)), d.pick(0.3, 0.6, 0.9)  # noqa: S311  # not used for security
    different = [_grown_tree(random, features, leaves, skew) for _ in range(min(trees, _DIFFERENT_TREES))]
    return features, [
        _on_other_features(different[tree % len(different)], tree // len(different), features) for tree in range(trees)
    ]


def _on_other_features(nodes: Sequence[_Node], shift: int, features: int) -> list[_Node]:
    return [replace(node, feature=(node.feature + shift) % features) for node in nodes]


def _repeated(count: int) -> str:
    """Returns some numbers on whose values no time depends; they repeat, so that stored layers take little room."""
    return f"[{', '.join(str(1 + number % 9) + 'e-1' for number in range(count))}]"


def _estimated_rows(d: Draw) -> int:
    return d.pick(1, d.size(2, 64), d.size(64, 2048), d.size(64, 2048))


def _fitted_forest(d: Draw, *, classes: bool) -> str:
    features, forest = _grown_forest(d)
    rows, results = _estimated_rows(d), d.pick(2, 2, d.size(3, 10)) if classes else d.pick(1, 1, 1, d.size(2, 5))
    nodes = [(tree, at, node) for tree, nodes in enumerate(forest) for at, node in enumerate(nodes)]
    leaves = [(tree, at, result) for tree, at, node in nodes if not node.low for result in range(results)]
    target = "class" if classes else "target"
    modes = ", ".join('"BRANCH_LEQ"' if node.low else '"LEAF"' for _, _, node in nodes)
    text = f"""nodes_treeids = {[tree for tree, _, _ in nodes]}, nodes_nodeids = {[at for _, at, _ in nodes]},
        nodes_featureids = {[node.feature for _, _, node in nodes]}, nodes_modes = [{modes}],
        nodes_values = {[node.threshold for _, _, node in nodes]},
        nodes_truenodeids = {[node.low for _, _, node in nodes]},
        nodes_falsenodeids = {[node.high for _, _, node in nodes]},
        {target}_treeids = {[tree for tree, _, _ in leaves]}, {target}_nodeids = {[at for _, at, _ in leaves]},
        {target}_ids = {[result for _, _, result in leaves]}, {target}_weights = {_repeated(len(leaves))}"""
    if classes:
        return f"""(float[{rows},{features}] x) => (int64 y, float z)
            {{ y, z = ai.onnx.ml.TreeEnsembleClassifier<{text}, classlabels_int64s = {list(range(results))}>(x) }}"""
    return f"""(float[{rows},{features}] x) => (float y)
        {{ y = ai.onnx.ml.TreeEnsembleRegressor<{text}, n_targets = {results}>(x) }}"""


def _fitted_new_forest(d: Draw) -> str:
    """Returns a TreeEnsemble as ONNX text; its leaves and its other nodes are numbered apart, over all trees."""
    features, forest = _grown_forest(d)
    branches = [(tree, at) for tree, nodes in enumerate(forest) for at, node in enumerate(nodes) if node.low]
    leaves = [(tree, at) for tree, nodes in enumerate(forest) for at, node in enumerate(nodes) if not node.low]
    number = {key: index for keys in (branches, leaves) for index, key in enumerate(keys)}
    nodes = [forest[tree][at] for tree, at in branches]
    sides = [
        f"""nodes_{side}nodeids = {[number[key] for key in keys]},
            nodes_{side}leafs = {[int(not forest[key[0]][key[1]].low) for key in keys]}"""
        for side, keys in (
            ("true", [(tree, node.low) for (tree, _), node in zip(branches, nodes, strict=True)]),
            ("false", [(tree, node.high) for (tree, _), node in zip(branches, nodes, strict=True)]),
        )
    ]
    thresholds = ", ".join(str(node.threshold) for node in nodes)
    return f"""(float[{_estimated_rows(d)},{features}] x) => (float y) {{ y = ai.onnx.ml.TreeEnsemble
        <aggregate_function = 1, post_transform = 0, n_targets = 1,
         tree_roots = {[number[tree, 0] for tree in range(len(forest))]},
         nodes_featureids = {[node.feature for node in nodes]},
         nodes_modes = uint8[{len(nodes)}] {{{", ".join("0" * len(nodes))}}},
         nodes_splits = float[{len(nodes)}] {{{thresholds}}}, {sides[0]}, {sides[1]},
         leaf_targetids = {[0] * len(leaves)},
         leaf_weights = float[{len(leaves)}] {{{_repeated(len(leaves))[1:-1]}}}>(x) }}"""


def _fitted_vectors(d: Draw, *, classes: bool) -> str:
    features, vectors, rows = d.size(4, 128), d.size(32, 2000), _estimated_rows(d)
    count = d.pick(2, 2, d.size(3, 10)) if classes else 1
    vectors -= vectors % count
    if features * vectors > _MOST_COEFFICIENTS:
        raise TooExpensiveError
    d.flops(20, rows, features, vectors)
    kernel = f"""kernel_type = "{d.pick("RBF", "RBF", "LINEAR", "POLY")}", kernel_params = [0.5, 0.0, 3.0],
        support_vectors = {_repeated(features * vectors)}"""
    if not classes:
        return f"""(float[{rows},{features}] x) => (float y) {{ y = ai.onnx.ml.SVMRegressor
            <{kernel}, coefficients = {_repeated(vectors)}, n_supports = {vectors}, rho = [0.1]>(x) }}"""
    pairs = count * (count - 1) // 2
    return f"""(float[{rows},{features}] x) => (int64 y, float z) {{ y, z = ai.onnx.ml.SVMClassifier
        <{kernel}, coefficients = {_repeated(vectors * (count - 1))}, rho = {[0.1] * pairs},
         classlabels_ints = {list(range(count))}, vectors_per_class = {[vectors // count] * count}>(x) }}"""


# Instances of the sizes that fitted estimators have, for the corpus of kernels.
MORE: dict[str, tuple[Drawer, ...]] = {
    "ai.onnx.ml.SVMClassifier": (lambda d: _fitted_vectors(d, classes=True),),
    "ai.onnx.ml.SVMRegressor": (lambda d: _fitted_vectors(d, classes=False),),
    "ai.onnx.ml.TreeEnsemble": (_fitted_new_forest,),
    "ai.onnx.ml.TreeEnsembleClassifier": (lambda d: _fitted_forest(d, classes=True),),
    "ai.onnx.ml.TreeEnsembleRegressor": (lambda d: _fitted_forest(d, classes=False),),
}

SWEEPS: dict[str, Sweep] = {
    f"ai.onnx.ml.{name}": sweep
    for name, sweep in {
        "ArrayFeatureExtractor": Sweep((_picked,), 3),
        "Binarizer": Sweep((_simple("Binarizer<threshold = 0.5>"),), 3),
        "FeatureVectorizer": Sweep((_joined,), 3),
        "Imputer": Sweep((_imputed,), 3),
        "LabelEncoder": Sweep((_labels,), 3),
        "LinearClassifier": Sweep((_linear_classes,), 4),
        "LinearRegressor": Sweep((_linear,), 4),
        "Normalizer": Sweep((_simple('Normalizer<norm = "L2">'),), 3),
        "OneHotEncoder": Sweep((_one_hot,), 3),
        "Scaler": Sweep((_scaled,), 3),
        "SVMClassifier": Sweep((lambda d: _vectors(d, classes=True),), 4),
        "SVMRegressor": Sweep((lambda d: _vectors(d, classes=False),), 4),
        "TreeEnsemble": Sweep((_new_forest,), 4, ml=5),
        "TreeEnsembleClassifier": Sweep((lambda d: _forest(d, classes=True),), 4),
        "TreeEnsembleRegressor": Sweep((lambda d: _forest(d, classes=False),), 4),
    }.items()
}
