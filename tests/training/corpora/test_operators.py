"""The corpus of operators is complete, reproducible, and consists of separate layers."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

from costmodel.ir.graph import LayerGraph
from costmodel.partition.decomposition import decompose
from costmodel.training.corpora.operator_instances.draw import Draw, TooExpensiveError
from costmodel.training.corpora.operators import RECIPES, SWEEPS
from costmodel.training.corpus import CORPORA

KERNELS = {f"{k.domain}.{k.op_name}" if k.domain else k.op_name for k in get_all_opkernel_def()}

# Operators without instances, and the reason.
EXCEPTIONS = {
    **dict.fromkeys(
        ("ai.onnx.ml.ZipMap", "ai.onnx.ml.CastMap", "ai.onnx.ml.DictVectorizer", "com.microsoft.SparseToDenseMatMul"),
        "reads or makes what is no tensor, at the border of the model",
    ),
    **dict.fromkeys(
        (
            "com.microsoft.BeamSearch", "com.microsoft.GreedySearch", "com.microsoft.Sampling",
            "com.microsoft.WhisperBeamSearch",
        ),
        "a whole generation, around a decoder with the ports of one exporter",
    ),
    "com.microsoft.SparseAttention": "writes over its inputs: outputs have to be bound to the same memory",
}  # fmt: skip

SOME = ("Conv", "Gemm", "Add", "Softmax", "LRN", "GRU", "Loop", "Concat", "com.microsoft.MatMulNBits", "TopK")


def test_every_operator_is_swept() -> None:
    """Every operator that the runtime registers for CPUs has a model or a reason for having none."""
    swept = {name.partition("/")[0] for name in SWEEPS}
    assert KERNELS - swept - EXCEPTIONS.keys() == set()
    assert swept & EXCEPTIONS.keys() == set()


def test_they_have_no_family() -> None:
    """Each model has a unique name that is a valid file name, and no family."""
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES) == len(SWEEPS)
    assert all(recipe.name.replace("_", "a").isalnum() and recipe.name.islower() for recipe in RECIPES)
    assert {recipe.family for recipe in RECIPES} == {""}
    assert not {recipe.name for recipe in RECIPES} & {name for names in CORPORA.values() for name in names}


@pytest.mark.parametrize("name", SOME)
def test_every_instance_is_a_layer_of_its_own(name: str, tmp_path: Path, lower: Callable[..., LayerGraph]) -> None:
    """No instance is fused with another, folded into a constant, or equal to another."""
    (recipe,) = (r for r, swept in zip(RECIPES, SWEEPS, strict=True) if swept == name)
    path = tmp_path / "model.onnx"
    recipe.write(path)
    graph = lower(onnx.load(path))
    segments = decompose(name, graph).segments
    kind = name.rpartition(".")[2]
    layers = {p.sequence.signature for p in segments if p.sequence.layers[0].op_type == kind}
    assert len(layers) == SWEEPS[name].count
    assert not any(p.needs for p in segments if p.sequence.layers[0].op_type not in (kind, "ReorderOutput"))


def test_a_file_is_the_same_each_time(tmp_path: Path) -> None:
    """A model has the same bytes each time."""
    recipe = RECIPES[0]
    for name in ("one", "two"):
        recipe.write(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("name", ["Relu", "MatMul", "com.microsoft.nchwc.Conv", "Gather", "Concat"])
def test_sizes_are_spread(name: str) -> None:
    """No two instances are equal, and instances do not depend on the order of operators."""
    texts = SWEEPS[name].texts(name)
    assert len(set(texts)) == len(texts) == SWEEPS[name].count
    assert SWEEPS[name].texts(name) == texts


def test_draws_stay_within_their_bounds() -> None:
    """Both bounds of a size occur, and most widths are round numbers."""
    draw = Draw("seed")
    assert {draw.size(2, 4) for _ in range(100)} == {2, 3, 4}
    widths = Counter(draw.rounded(3, 2048) % 8 == 0 for _ in range(1000))
    assert widths[True] > widths[False] > 0
    assert draw.c == draw.c
    with pytest.raises(TooExpensiveError):
        draw.flops(1e5, 1e5)
