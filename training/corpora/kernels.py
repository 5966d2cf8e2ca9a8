"""The corpus of kernels: the operators on which models spend their time, each in many sizes and forms.

Like those of the corpus of operators, these models are training data only and belong to no family. Sizes are drawn over
the whole range that models use, so that a regressor interpolates where a new model has shapes that no other one has
(docs/adr/0018).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from costmodel.training.corpora.operator_instances import convolutions, indexing, matrices, reshaping, signals
from costmodel.training.corpora.operator_instances.instance import Sweep, model_of
from costmodel.training.corpora.operators import SWEEPS as OPERATORS
from costmodel.training.corpora.recipe import Recipe

__all__ = ["RECIPES"]

# Instances in one model, so that no file becomes too large.
_MOST_IN_MODEL = 60
_MORE = {**convolutions.MORE, **matrices.MORE, **indexing.MORE, **reshaping.MORE}
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
}  # fmt: skip
# Further instances, of forms that the others lack, or of operators of quantised and recurrent models.
_FURTHER: dict[str, Sweep] = {
    **convolutions.RARE,
    **signals.RARE,
    **{
        name: replace(OPERATORS[name], count=count)
        for name, count in {
            "GRU": 90, "LSTM": 90, "com.microsoft.QLinearConv": 120, "com.microsoft.QGemm": 30, "QLinearMatMul": 30,
            "com.microsoft.DynamicQuantizeMatMul": 30, "com.microsoft.QLinearAdd": 20, "DequantizeLinear": 20,
            "QuantizeLinear": 20,
        }.items()
    },
}  # fmt: skip
# Models with few weights, by the name of their size: the bytes of all weights, the numbers of instances in a model, and
# for each operator how many models there are with each number. Weights of a small model stay in a core's own cache, as
# in networks for microcontrollers; those of a medium one do not all fit, but stay nearby.
_WEIGHT_BYTES = {"small": 400 << 10, "medium": 1200 << 10, "large": 4000 << 10}
_INSTANCES = {"small": (8, 3), "medium": (24, 9), "large": (60, 20)}
_FEW_WEIGHTS = {
    "com.microsoft.nchwc.Conv": {"small": (32, 24), "medium": (12, 12), "large": (5, 8)},
    "Conv": {"small": (8, 4), "medium": (4, 2), "large": (2, 1)},
    "com.microsoft.FusedConv": {"small": (4, 2), "medium": (1, 1), "large": (1, 0)},
    "ConvTranspose": {"small": (4, 2), "medium": (1, 1), "large": (1, 0)},
    "Gemm": {"small": (6, 4), "medium": (2, 2), "large": (1, 1)},
    "com.microsoft.FusedGemm": {"small": (4, 2), "medium": (1, 1), "large": (1, 0)},
    "MatMul": {"small": (6, 4), "medium": (2, 2), "large": (1, 1)},
    "LSTM": {"small": (2, 6), "medium": (1, 1), "large": (1, 0)},
    "GRU": {"small": (2, 6), "medium": (1, 1), "large": (1, 0)},
    "com.microsoft.QLinearConv": {"small": (4, 2), "medium": (1, 1), "large": (1, 0)},
}
# Bytes that a layer of such a model reads and writes at most, in turns.
_MOST_MOVED = (1 << 18, 1 << 20, 1 << 22)
_RARE = {name: sweep.drawers for name, sweep in convolutions.RARE.items()}
_MOST_BYTES = {"Gather": 128 << 20}


def _sweep(name: str, count: int) -> Sweep:
    known = OPERATORS[name]
    return replace(
        known,
        drawers=(*known.drawers, *_MORE.get(name, ())),
        count=count,
        most_bytes=_MOST_BYTES.get(name, known.most_bytes),
    )


def _write(sweep: Sweep, texts: Callable[[], Iterable[str]], path: Path) -> None:
    path.write_bytes(model_of(sweep, texts()).SerializeToString(deterministic=True))


def _recipe(name: str, kind: str, number: int, sweep: Sweep, texts: Callable[[], Sequence[str]], count: int) -> Recipe:
    """Returns the recipe of a model of `count` instances of the operator `name`, which `texts` returns."""
    short = name.rpartition(".")[2].lower() + ("_blocked" if "nchwc" in name else "")
    title = f"{name}, {count} sizes"
    return Recipe(f"kernels_{short}_{kind}_{number:02}", "", title, partial(_write, sweep, texts))


def _parts(sweep: Sweep) -> tuple[int, int]:
    """Returns the number of models of a sweep, and the number of instances that are drawn for each."""
    parts = -(-sweep.count // _MOST_IN_MODEL)
    return parts, -(-sweep.count // parts)


def _sweeps(name: str) -> list[tuple[str, Sweep]]:
    """Returns the sweeps of an operator's instances, each with the prefix of its seeds."""
    sweeps = [(f"kernels/{name}", _sweep(name, _COUNTS[name]))] if name in _COUNTS else []
    # The seeds differ from those of the corpus of operators, which would draw the same instances first.
    return [*sweeps, (f"kernels/{name}_added", _FURTHER[name])] if name in _FURTHER else sweeps


@cache
def _by_size(name: str) -> tuple[str, ...]:
    """Returns all instances of an operator, those that read and write the fewest bytes first."""
    moved: dict[str, int] = {}
    for seed, sweep in _sweeps(name):
        parts, each = _parts(sweep)
        for number in range(parts):
            for text in replace(sweep, count=each).texts(f"{seed}/{number}"):
                moved[text] = sweep.moved_bytes(text)
    return tuple(sorted(moved, key=lambda text: (moved[text], text)))


def _part_by_size(name: str, number: int, parts: int) -> tuple[str, ...]:
    texts = _by_size(name)
    return texts[number * len(texts) // parts : (number + 1) * len(texts) // parts]


def _recipes_by_size(name: str) -> list[Recipe]:
    """Returns recipes of models that together contain the instances of an operator, each of layers of similar size.

    A small layer among large ones would find nothing in the caches, which is not what it meets in a network.
    """
    total = sum(parts * each for parts, each in (_parts(sweep) for _, sweep in _sweeps(name)))
    parts = -(-total // _MOST_IN_MODEL)
    return [
        _recipe(name, "by_size", n, OPERATORS[name], partial(_part_by_size, name, n, parts), -(-total // parts))
        for n in range(parts)
    ]


def _recipes_of_size(name: str, size: str) -> list[Recipe]:
    """Returns recipes of models of the operator `name` with few weights, `size` says how few."""
    drawers = (*_RARE.get(name, ()), *_sweep(name, 0).drawers)
    recipes = []
    for count, models in zip(_INSTANCES[size], _FEW_WEIGHTS[name][size], strict=True):
        for _ in range(models):
            number = len(recipes)
            turned = drawers[number % len(drawers) :] + drawers[: number % len(drawers)]
            part = replace(
                _sweep(name, count),
                drawers=turned,
                most_bytes=_MOST_MOVED[number % len(_MOST_MOVED)],
                most_weight_bytes=_WEIGHT_BYTES[size] // count,
            )
            texts = partial(part.texts, f"kernels/{name}_{size}/{number}")
            recipes.append(_recipe(name, size, number, part, texts, count))
    return recipes


RECIPES = (
    *(recipe for name in dict.fromkeys([*_COUNTS, *_FURTHER]) for recipe in _recipes_by_size(name)),
    *(recipe for size in _WEIGHT_BYTES for name in _FEW_WEIGHTS for recipe in _recipes_of_size(name, size)),
)
