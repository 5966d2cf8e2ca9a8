"""Random instances of ai.onnx.ml operators, to which scikit-learn models are converted."""

from collections.abc import Iterator

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep

__all__ = ["SWEEPS"]


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
