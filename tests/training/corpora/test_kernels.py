"""The corpus of kernels."""

from collections import Counter
from pathlib import Path

import onnx

from costmodel.training.corpora.kernels import RECIPES


def test_lookups_are_in_weights_beside_a_product(tmp_path: Path) -> None:
    """As in a recommender, ids of a batch are looked up in tables that are weights, and a perceptron follows."""
    recipe = next(recipe for recipe in RECIPES if recipe.name == "kernels_lookups_00")
    recipe.write(tmp_path / "one.onnx")
    recipe.write(tmp_path / "again.onnx")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()
    graph = onnx.load(tmp_path / "one.onnx").graph
    weights = {tensor.name for tensor in graph.initializer}
    assert [node.op_type for node in graph.node].count("Gather") == 5
    assert [node.op_type for node in graph.node].count("MatMul") == 1
    assert all(node.input[0] in weights for node in graph.node if node.op_type == "Gather")


def test_grus_are_made_as_frameworks_export_them(tmp_path: Path) -> None:
    """Besides ONNX's default form there are GRUs that apply the reset gate after the product."""
    recipe = next(recipe for recipe in RECIPES if recipe.name == "kernels_gru_reset_after_00")
    recipe.write(tmp_path / "one.onnx")
    nodes = onnx.load(tmp_path / "one.onnx").graph.node
    assert len(nodes) == 60
    assert all({a.name: a.i for a in node.attribute}["linear_before_reset"] == 1 for node in nodes)


def test_names_are_unique_and_have_no_family() -> None:
    """No evaluation uses the models: their layers are training data."""
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES)
    assert {recipe.family for recipe in RECIPES} == {""}


def test_small_networks_find_their_weights_in_a_cache(tmp_path: Path) -> None:
    """Such a model is the same each time, and its weights are few: some have 0.2 MB at most, some over 1 MB."""
    recipes = [recipe for recipe in RECIPES if recipe.name.startswith("kernels_small_")]
    sizes, operators = [], Counter[str]()
    for recipe in recipes[:5]:
        recipe.write(tmp_path / "one.onnx")
        recipe.write(tmp_path / "again.onnx")
        assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()
        graph = onnx.load(tmp_path / "one.onnx").graph
        operators.update(node.op_type for node in graph.node)
        sizes.append(sum(len(tensor.raw_data) for tensor in graph.initializer))
    assert operators["Conv"] >= 5 * 8
    assert {"Gemm", "MatMul", "Add", "Relu", "MaxPool"} <= operators.keys()
    assert sizes[0] <= 200 << 10
    assert sizes[1] <= 420 << 10
    assert 1 << 20 < sizes[-1] <= 2 << 20


def test_layers_of_large_images_do_not_fit_into_a_cache(tmp_path: Path) -> None:
    """Such a model is the same each time, and each of its layers reads or writes a tensor of 16 to 160 MB."""
    recipe = next(recipe for recipe in RECIPES if recipe.name == "kernels_large_00")
    recipe.write(tmp_path / "one.onnx")
    recipe.write(tmp_path / "again.onnx")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()
    graph = onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "one.onnx")).graph
    sizes: dict[str, int] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        instance, elements = value.name.partition("_")[0], 1
        for dim in value.type.tensor_type.shape.dim:
            elements *= dim.dim_value
        sizes[instance] = max(4 * elements, sizes.get(instance, 0))
    assert len(sizes) >= 6
    # The output of Resize is four times as large as its input, and is not inferred.
    assert all(4 << 20 <= size <= 640 << 20 for size in sizes.values())
    assert sum(size >= 16 << 20 for size in sizes.values()) >= len(sizes) - 1


def test_half_of_the_quantised_networks_are_quantised_in_products_only(tmp_path: Path) -> None:
    """All convolutions and products with weights read bytes; sums do in networks that are quantised whole."""
    recipes = {recipe.name: recipe for recipe in RECIPES}
    reading = {}
    for name in ("kernels_int8_00", "kernels_int8_04"):
        recipes[name].write(tmp_path / "one.onnx")
        recipes[name].write(tmp_path / "again.onnx")
        assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()
        nodes = onnx.load(tmp_path / "one.onnx").graph.node
        made = {output for node in nodes if node.op_type == "DequantizeLinear" for output in node.output}
        reading[name] = Counter(node.op_type for node in nodes if set(node.input) <= made)
        assert reading[name]["Conv"] == sum(node.op_type == "Conv" for node in nodes) >= 8
    assert reading["kernels_int8_04"]["Concat"] == 0
    assert reading["kernels_int8_04"]["Add"] < reading["kernels_int8_00"]["Add"]


def test_the_last_quantised_networks_are_quantised_whole(tmp_path: Path) -> None:
    """Sums, joins and softmaxes read bytes in them, besides products; what moves floats moves floats."""
    recipes = {recipe.name: recipe for recipe in RECIPES}
    last = max(name for name in recipes if name.startswith("kernels_int8_"))
    recipes[last].write(tmp_path / "one.onnx")
    nodes = onnx.load(tmp_path / "one.onnx").graph.node
    made = {output for node in nodes if node.op_type == "DequantizeLinear" for output in node.output}
    reading = Counter(node.op_type for node in nodes if not made.isdisjoint(node.input))
    assert {"Conv", "MatMul", "Add", "Concat", "Softmax", "Split"} <= reading.keys()
    assert reading["Transpose"] < sum(node.op_type == "Transpose" for node in nodes)
