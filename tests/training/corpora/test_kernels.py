"""The corpus of kernels: models of similar layers of one operator."""

import math
from pathlib import Path

import onnx
import onnx.shape_inference
from onnx import ModelProto, TensorProto

from costmodel.training.corpora.kernels import RECIPES


def _models(folder: Path, prefix: str) -> list[ModelProto]:
    models = []
    for recipe in RECIPES:
        if recipe.name.startswith(prefix):
            recipe.write(folder / recipe.name)
            models.append(onnx.load(folder / recipe.name))
    return models


def _moved_bytes(model: ModelProto) -> list[int]:
    """Returns the number of bytes that each node of a model reads and writes, in 4-byte elements."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    sizes = {
        value.name: 4 * math.prod(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info, *graph.output)
    } | {tensor.name: 4 * math.prod(tensor.dims) for tensor in graph.initializer}
    return [sum(sizes.get(name, 0) for name in {*node.input, *node.output}) for node in graph.node]


def test_layers_of_a_model_are_of_similar_size(tmp_path: Path) -> None:
    """No layer of a model moves more bytes than any layer of the next model, and no layer is in two."""
    models = _models(tmp_path, "kernels_mul_by_size_")
    assert len(models) == 2
    moved = [_moved_bytes(model) for model in models]
    assert max(moved[0]) <= min(moved[1])
    assert sum(map(len, moved)) == 80


def test_small_models_fit_into_a_cores_cache(tmp_path: Path) -> None:
    """The weights of a small model fill less than half a megabyte, and it is the same at each time."""
    models = _models(tmp_path, "kernels_gemm_small_")
    assert len(models) == 10
    assert {len(model.graph.node) for model in models} == {8, 3}
    for model in models:
        weights = [tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.FLOAT]
        assert 0 < sum(4 * math.prod(tensor.dims) for tensor in weights) <= 400 << 10
    assert _models(tmp_path, "kernels_gemm_small_") == models


def test_every_model_has_a_name_of_its_own() -> None:
    """Names say the operator, and no two models have the same one."""
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES)
