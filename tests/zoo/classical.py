"""Operators of ai.onnx.ml, to which scikit-learn models are converted."""

from tests.zoo.specimen import Specimen

__all__ = ["SPECIMENS"]

_NODES = """nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2], nodes_featureids = [1, 0, 0],
    nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values = [0.5, 0.0, 0.0],
    nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0]"""
_SVM = 'kernel_type = "RBF", kernel_params = [0.5, 0.0, 3.0], support_vectors = [0.1, 0.2, 0.3, 0.4]'

SPECIMENS: dict[str, Specimen] = {
    "ai.onnx.ml.ArrayFeatureExtractor": Specimen(
        "(float[3,4] x, int64[2] i) => (float[3,2] y) { y = ai.onnx.ml.ArrayFeatureExtractor(x, i) }"
    ),
    "ai.onnx.ml.Binarizer": Specimen(
        "(float[3,4] x) => (float[3,4] y) { y = ai.onnx.ml.Binarizer<threshold = 0.5>(x) }"
    ),
    "ai.onnx.ml.FeatureVectorizer": Specimen(
        """(float[3,2] a, float[3,1] b) => (float[3,3] y)
        { y = ai.onnx.ml.FeatureVectorizer<inputdimensions = [2, 1]>(a, b) }"""
    ),
    "ai.onnx.ml.Imputer": Specimen(
        """(float[3,2] x) => (float[3,2] y)
        { y = ai.onnx.ml.Imputer<imputed_value_floats = [0.1, 0.2], replaced_value_float = 0.0>(x) }"""
    ),
    "ai.onnx.ml.LabelEncoder": Specimen(
        """(int64[9] x) => (float[9] y)
        { y = ai.onnx.ml.LabelEncoder<keys_int64s = [0, 1], values_floats = [0.1, 0.2], default_float = 0.3>(x) }"""
    ),
    "ai.onnx.ml.LabelEncoder/tensors": Specimen(
        """(int64[9] x) => (float[9] y) { y = ai.onnx.ml.LabelEncoder
            <keys_tensor = int64[2] {0, 1}, values_tensor = float[2] {0.1, 0.2}, default_tensor = float[1] {0.3}>
            (x) }""",
        ml=4,
    ),
    "ai.onnx.ml.LinearClassifier": Specimen(
        """(float[3,2] x) => (int64[3] y, float[3,2] z) { y, z = ai.onnx.ml.LinearClassifier
            <coefficients = [0.1, 0.2, 0.3, 0.4], intercepts = [0.1, 0.2], classlabels_ints = [0, 1],
             post_transform = "SOFTMAX">(x) }"""
    ),
    "ai.onnx.ml.LinearRegressor": Specimen(
        """(float[3,2] x) => (float[3,1] y)
        { y = ai.onnx.ml.LinearRegressor<coefficients = [0.1, 0.2], intercepts = [0.1]>(x) }"""
    ),
    "ai.onnx.ml.Normalizer": Specimen('(float[3,4] x) => (float[3,4] y) { y = ai.onnx.ml.Normalizer<norm = "L2">(x) }'),
    "ai.onnx.ml.OneHotEncoder": Specimen(
        "(int64[3] x) => (float[3,3] y) { y = ai.onnx.ml.OneHotEncoder<cats_int64s = [0, 1, 2], zeros = 1>(x) }"
    ),
    "ai.onnx.ml.Scaler": Specimen(
        "(float[3,2] x) => (float[3,2] y) { y = ai.onnx.ml.Scaler<offset = [0.1, 0.2], scale = [2.0, 3.0]>(x) }"
    ),
    "ai.onnx.ml.SVMClassifier": Specimen(
        f"""(float[3,2] x) => (int64[3] y, float[3,2] z) {{ y, z = ai.onnx.ml.SVMClassifier
            <{_SVM}, classlabels_ints = [0, 1], coefficients = [0.5, -0.5], rho = [0.1],
             vectors_per_class = [1, 1]>(x) }}"""
    ),
    "ai.onnx.ml.SVMRegressor": Specimen(
        f"""(float[3,2] x) => (float[3,1] y)
        {{ y = ai.onnx.ml.SVMRegressor<{_SVM}, coefficients = [0.5, -0.5], rho = [0.1], n_supports = 2>(x) }}"""
    ),
    "ai.onnx.ml.TreeEnsemble": Specimen(
        """(float[3,2] x) => (float[3,1] y) { y = ai.onnx.ml.TreeEnsemble
            <aggregate_function = 1, post_transform = 0, n_targets = 1, tree_roots = [0], nodes_featureids = [1],
             nodes_modes = uint8[1] {0}, nodes_splits = float[1] {0.5}, nodes_truenodeids = [0], nodes_trueleafs = [1],
             nodes_falsenodeids = [1], nodes_falseleafs = [1], leaf_targetids = [0, 0],
             leaf_weights = float[2] {0.1, 0.2}>(x) }""",
        ml=5,
    ),
    "ai.onnx.ml.TreeEnsembleClassifier": Specimen(
        f"""(float[3,2] x) => (int64[3] y, float[3,2] z) {{ y, z = ai.onnx.ml.TreeEnsembleClassifier
            <{_NODES}, class_treeids = [0, 0], class_nodeids = [1, 2], class_ids = [0, 1], class_weights = [1.0, 1.0],
             classlabels_int64s = [0, 1]>(x) }}"""
    ),
    "ai.onnx.ml.TreeEnsembleRegressor": Specimen(
        f"""(float[3,2] x) => (float[3,1] y) {{ y = ai.onnx.ml.TreeEnsembleRegressor
            <{_NODES}, n_targets = 1, target_treeids = [0, 0], target_nodeids = [1, 2], target_ids = [0, 0],
             target_weights = [0.1, 0.2]>(x) }}"""
    ),
}
