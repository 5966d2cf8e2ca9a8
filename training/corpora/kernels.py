"""The corpus of kernels: the operators on which models spend their time, each in many sizes and forms.

Like those of the corpus of operators, these models are training data only and belong to no family. Sizes are drawn over
the whole range that models use, so that a regressor interpolates where a new model has shapes that no other one has
(docs/adr/0018).
"""

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from costmodel.training.corpora.operator_instances import (
    classical,
    control,
    convolutions,
    deployed,
    indexing,
    large,
    matrices,
    recurrent,
    reshaping,
    small,
)
from costmodel.training.corpora.operator_instances.instance import Sweep, mixed_model_of, model_of
from costmodel.training.corpora.operators import SWEEPS as OPERATORS
from costmodel.training.corpora.quantised import DENSE, quantise_file
from costmodel.training.corpora.recipe import Recipe

__all__ = ["RECIPES"]

# Instances in one model, so that no file becomes too large.
_MOST_IN_MODEL = 60
_MORE = {**convolutions.MORE, **matrices.MORE, **indexing.MORE, **reshaping.MORE, **classical.MORE, **control.MORE}
# Number of instances of each operator: more for those whose cost depends on more sizes and takes more of the time.
_COUNTS = {
    "com.microsoft.nchwc.Conv": 420, "Conv": 360, "com.microsoft.FusedConv": 60, "ConvTranspose": 120,
    "MatMul": 300, "com.microsoft.FusedMatMul": 60, "Gemm": 180, "com.microsoft.FusedGemm": 60, "Einsum": 120,
    "Gather": 120, "Transpose": 180, "Concat": 60, "Slice": 60, "Split": 40, "Pad": 30, "Expand": 30, "Tile": 20,
    "DepthToSpace": 20, "SpaceToDepth": 20, "Softmax": 120, "ReduceMean": 60, "ReduceSum": 40, "ReduceMax": 30,
    "ArgMax": 20, "CumSum": 20, "LayerNormalization": 60, "com.microsoft.SkipLayerNormalization": 30,
    "InstanceNormalization": 40, "BatchNormalization": 40, "Add": 80, "Mul": 80, "Sub": 40, "Div": 40, "Where": 30,
    "Relu": 20, "Sigmoid": 30, "Tanh": 30, "Erf": 20, "Gelu": 30, "Exp": 20, "Sqrt": 10,
    "LeakyRelu": 20, "Elu": 20, "PRelu": 30, "Clip": 20, "Pow": 20, "Softplus": 20, "MaxPool": 30, "AveragePool": 40,
    "GlobalAveragePool": 30, "Resize": 60, "com.microsoft.nchwc.MaxPool": 40, "com.microsoft.nchwc.AveragePool": 30,
    "com.microsoft.nchwc.Upsample": 30, "com.microsoft.nchwc.ReorderOutput": 30, "com.microsoft.nchwc.ReorderInput": 30,
    "LSTM": 60, "GRU": 60, "RNN": 20, "DFT": 30, "com.microsoft.QuickGelu": 20, "com.microsoft.BiasGelu": 20,
    "com.microsoft.MultiHeadAttention": 30, "com.microsoft.Attention": 30, "com.microsoft.RotaryEmbedding": 20,
    "ai.onnx.ml.TreeEnsembleClassifier": 40, "ai.onnx.ml.TreeEnsembleRegressor": 40, "ai.onnx.ml.TreeEnsemble": 24,
    "ai.onnx.ml.SVMClassifier": 32, "ai.onnx.ml.SVMRegressor": 32, "ai.onnx.ml.LinearClassifier": 10,
    "ai.onnx.ml.LinearRegressor": 10, "ai.onnx.ml.Normalizer": 6, "ai.onnx.ml.Scaler": 6, "Scan": 30, "TopK": 20,
    "ai.onnx.ml.ArrayFeatureExtractor": 10,
}  # fmt: skip
_MOST_BYTES = {"Gather": 128 << 20}
# Number of models of lookups. Among many large tables a lookup reads memory; in a model of few it reads caches.
_LOOKUP_MODELS = 32
# Most bytes of weights of the models of small networks. Half of the level 2 cache of all processors has room for the
# smallest, of one of 1 MB for the next; of the others some is in that cache, and all in the next one.
_SMALL_BYTES = (200 << 10, 420 << 10, 700 << 10, 1200 << 10, 2000 << 10)
_SMALL_MODELS = 100
_MOST_SHARE = 1 / 3  # of these weights that one instance has
# Number of models of layers of large images, and the most bytes of their weights.
_LARGE_MODELS, _LARGE_BYTES = 24, 40 << 20
# Number of models of layers that deployed networks have, and the most bytes of their weights.
_DEPLOYED_MODELS, _DEPLOYED_BYTES = 24, 12 << 20
# Number of instances of each operator in a network that is quantised, and the most bytes of its weights, as floats.
_INT8_COUNTS = {
    "com.microsoft.nchwc.Conv": 10, "Conv": 2, "convolution": 3, "depthwise": 3, "MatMul": 6, "Gemm": 3, "Add": 3,
    "Mul": 1, "Concat": 1, "Softmax": 1, "Sigmoid": 1, "MaxPool": 1, "AveragePool": 1, "GlobalAveragePool": 1,
    "Resize": 1, "Transpose": 1,
}  # fmt: skip
# The same for the last networks, which have more of what surrounds products. What only moves or chooses elements stays
# in floats where nothing quantised comes before it.
_INT8_SURROUNDINGS = {
    "Where": 4, "DepthToSpace": 2, "SpaceToDepth": 1, "Transpose": 6, "Concat": 3, "Split": 2, "Slice": 2, "Pad": 1,
    "Gather": 1, "MaxPool": 3, "AveragePool": 2, "GlobalAveragePool": 2, "ReduceMean": 2, "Softmax": 3, "Add": 3,
    "Mul": 2, "Sigmoid": 1, "LeakyRelu": 1, "Resize": 2, "MatMul": 4, "Gemm": 2, "com.microsoft.nchwc.Conv": 4,
    "Conv": 4, "convolution": 2, "depthwise": 2, "ConvTranspose": 2,
}  # fmt: skip
_INT8_BYTES = (2 << 20, 6 << 20, 12 << 20, 24 << 20)
_INT8_MOST_MOVED = 24 << 20  # by one instance
_INT8_MODELS, _INT8_SURROUNDED_MODELS = 40, 24


def _sweep(name: str, count: int) -> Sweep:
    known = OPERATORS[name]
    return replace(
        known,
        drawers=(*known.drawers, *_MORE.get(name, ())),
        count=count,
        most_bytes=_MOST_BYTES.get(name, known.most_bytes),
    )


def _write(sweep: Sweep, name: str, part: int, path: Path) -> None:
    # The seed differs from that of the corpus of operators, which would draw the same instances first.
    model = model_of(sweep, f"kernels/{name}/{part}")
    path.write_bytes(model.SerializeToString(deterministic=True))


def _write_small(part: int, path: Path) -> None:
    nbytes = _SMALL_BYTES[part % len(_SMALL_BYTES)]
    sweeps = {name: replace(sweep, most_weight_bytes=int(_MOST_SHARE * nbytes)) for name, sweep in small.SWEEPS.items()}
    model = mixed_model_of(sweeps, f"kernels/small/{part}", nbytes)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _write_large(part: int, path: Path) -> None:
    model = mixed_model_of(large.SWEEPS, f"kernels/large/{part}", _LARGE_BYTES)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _write_deployed(part: int, path: Path) -> None:
    model = mixed_model_of(deployed.SWEEPS, f"kernels/deployed/{part}", _DEPLOYED_BYTES)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _write_int8(part: int, path: Path) -> None:
    """Writes a quantised network; half of the first are quantised in their products only, as transformers are."""
    surrounded = part >= _INT8_MODELS
    nbytes = _INT8_BYTES[part % len(_INT8_BYTES)]
    sweeps = {
        name: replace(
            (OPERATORS | small.SWEEPS)[name], count=count, most_bytes=_INT8_MOST_MOVED, most_weight_bytes=nbytes // 3
        )
        for name, count in (_INT8_SURROUNDINGS if surrounded else _INT8_COUNTS).items()
    }
    model = mixed_model_of(sweeps, f"kernels/int8/{part}", nbytes)
    for value in model.graph.output:
        # Instances declare outputs without dimensions, of which ONNX Runtime would warn while it calibrates.
        value.type.tensor_type.ClearField("shape")
    with tempfile.TemporaryDirectory(prefix="costmodel-int8-") as folder:
        floats = Path(folder) / "floats.onnx"
        floats.write_bytes(model.SerializeToString(deterministic=True))
        dense = not surrounded and part // len(_INT8_BYTES) % 2
        quantise_file(floats, path, DENSE if dense else ())


def _recipes(name: str, count: int) -> list[Recipe]:
    parts = -(-count // _MOST_IN_MODEL)
    each = -(-count // parts)
    short = name.rpartition(".")[2].lower() + ("_blocked" if "nchwc" in name else "")
    return [
        Recipe(
            f"kernels_{short}_{part:02}", "", f"{name}, {each} sizes", partial(_write, _sweep(name, each), name, part)
        )
        for part in range(parts)
    ]


_LOOKUPS = tuple(
    Recipe(
        f"kernels_lookups_{part:02}",
        "",
        "Lookups of a recommender and a product",
        partial(_write, indexing.LOOKUPS, "lookups", part),
    )
    for part in range(_LOOKUP_MODELS)
)

_RESET_AFTER = Recipe(
    "kernels_gru_reset_after_00",
    "",
    f"GRU with its reset gate after the product, {recurrent.RESET_AFTER.count} sizes",
    partial(_write, recurrent.RESET_AFTER, "GRU/reset_after", 0),
)

_SMALL = tuple(
    Recipe(f"kernels_small_{part:02}", "", "Layers of a small network", partial(_write_small, part))
    for part in range(_SMALL_MODELS)
)

_LARGE = tuple(
    Recipe(f"kernels_large_{part:02}", "", "Layers of a model of large images", partial(_write_large, part))
    for part in range(_LARGE_MODELS)
)

_DEPLOYED = tuple(
    Recipe(f"kernels_deployed_{part:02}", "", "Layers of a network that is deployed", partial(_write_deployed, part))
    for part in range(_DEPLOYED_MODELS)
)

_INT8 = tuple(
    Recipe(f"kernels_int8_{part:02}", "", "Layers of a quantised network", partial(_write_int8, part))
    for part in range(_INT8_MODELS + _INT8_SURROUNDED_MODELS)
)

RECIPES = (
    *(recipe for name, count in _COUNTS.items() for recipe in _recipes(name, count)),
    *_LOOKUPS,
    _RESET_AFTER,
    *_SMALL,
    *_LARGE,
    *_DEPLOYED,
    *_INT8,
)
