"""The NAS corpus: the networks drawn from each search space, and their files."""

import re
import subprocess
import sys
from collections.abc import Mapping
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
import onnxruntime
import pytest
import torch

from costmodel.training.corpora.nas import NETS, RECIPES, SPACES, DrawnNetwork, make_drawn

# One network of each space that is exported quickly, and the shape of its output.
SMALL = {
    "nb201_009": (1, 10),
    "mbv3_043": (1, 1000),
    "ofa_resnet_007": (1, 1000),
    "darts_022": (1, 1000),
    "autoformer_010": (1, 1000),
    "dynabert_008": (1, 2),
}
_DARTS_V2 = (
    (
        (("sep_conv_3x3", 0), ("sep_conv_3x3", 1)), (("sep_conv_3x3", 0), ("sep_conv_3x3", 1)),
        (("sep_conv_3x3", 1), ("skip_connect", 0)), (("skip_connect", 0), ("dil_conv_3x3", 2)),
    ),
    (
        (("max_pool_3x3", 0), ("max_pool_3x3", 1)), (("skip_connect", 2), ("max_pool_3x3", 1)),
        (("max_pool_3x3", 0), ("skip_connect", 2)), (("skip_connect", 2), ("max_pool_3x3", 1)),
    ),
)  # fmt: skip
_CELL_OPERATIONS = {"none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"}
_DARTS_OPERATIONS = {
    "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5", "max_pool_3x3", "avg_pool_3x3", "skip_connect",
}  # fmt: skip
SMALLEST_NORMAL = np.finfo(np.float32).tiny


def _arguments(space: str) -> list[Mapping[str, Any]]:
    return [net.arguments for net in NETS[space].values()]


def _sizes(space: str) -> set[int]:
    return {spec.shape[-1] for net in NETS[space].values() for spec in net.inputs.values()}


def test_every_space_is_a_family() -> None:
    """Each space is a family of as many numbered networks as it declares."""
    assert [(space.name, space.count) for space in SPACES] == [
        ("nas_bench_201", 50), ("mobilenet_v3_space", 50), ("elastic_resnet", 25),
        ("darts_space", 25), ("elastic_vit", 30), ("elastic_bert", 30),
    ]  # fmt: skip
    for space in SPACES:
        names = [recipe.name for recipe in RECIPES if recipe.family == space.name]
        assert names == [f"{space.prefix}_{number:03}" for number in range(space.count)]


def test_names_and_titles_are_unique() -> None:
    """Names are unique file stems, and a title describes the whole network."""
    assert len({recipe.name for recipe in RECIPES}) == len({recipe.title for recipe in RECIPES}) == len(RECIPES)
    assert all(re.fullmatch(r"[a-z0-9_]+", recipe.name) for recipe in RECIPES)


@pytest.mark.parametrize("space", NETS)
def test_no_network_is_drawn_twice(space: str) -> None:
    """No network is drawn twice, not even under another title."""
    nets = list(NETS[space].values())
    assert all(net not in nets[:index] for index, net in enumerate(nets))


def test_recipes_are_listed_alike_and_without_torch() -> None:
    """Another process draws the same networks, without importing torch or a runtime."""
    code = (
        "import sys; from costmodel.training.corpora.nas import RECIPES\n"
        "assert not {'torch', 'onnx', 'onnxruntime'} & set(sys.modules)\n"
        "for recipe in RECIPES: print(recipe.name, recipe.title)"
    )
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert listed.splitlines() == [f"{recipe.name} {recipe.title}" for recipe in RECIPES]


def test_the_draws_stay_what_they_are() -> None:
    """Draws are the same in every version of Python, because measurements are kept by network name."""
    titles = {recipe.name: recipe.title for recipe in RECIPES}
    assert titles["nb201_000"] == "|nor_conv_1x1~0|+|skip_connect~0|skip_connect~1|+|none~0|nor_conv_1x1~1|none~2|"
    assert titles["dynabert_029"] == "DynaBERT, 256 tokens, width 512, heads x FFN ratio 7x2 6x3"


def test_an_architecture_string_is_of_nas_bench_201() -> None:
    """Titles are NAS-Bench-201 architecture strings: for each node, its operations with their source nodes."""
    operation = f"(?:{'|'.join(_CELL_OPERATIONS)})"
    nodes = ("".join(rf"\|{operation}~{source}" for source in range(node)) + r"\|" for node in (1, 2, 3))
    pattern = re.compile(r"\+".join(nodes))
    titles = [net.title for net in NETS["nas_bench_201"].values()]
    assert all(pattern.fullmatch(title) for title in titles)
    assert set(re.findall(r"(\w+)~", " ".join(titles))) == _CELL_OPERATIONS


def test_only_edges_on_a_path_count() -> None:
    """A NAS-Bench-201 cell keeps only the edges on a path from its input to its output, and there is such a path."""
    for net in NETS["nas_bench_201"].values():
        edges = {
            (int(source), into): operation
            for into, node in enumerate(net.title.split("+"), start=1)
            for operation, source in re.findall(r"(\w+)~(\d)", node)
            if operation != "none"
        }
        paths = [[(0, 3)], [(0, 1), (1, 3)], [(0, 2), (2, 3)], [(0, 1), (1, 2), (2, 3)]]
        used = {edge for path in paths if edges.keys() >= set(path) for edge in path}
        assert used
        assert net.arguments["edges"] == {edge: edges[edge] for edge in used}


def test_every_choice_of_the_mobile_space_occurs() -> None:
    """Every size, width, depth, kernel and expansion is drawn."""
    drawn = _arguments("mobilenet_v3_space")
    stages = [stage for arguments in drawn for stage in arguments["stages"]]
    assert _sizes("mobilenet_v3_space") == set(range(128, 225, 16))
    assert {arguments["width"] for arguments in drawn} == {1.0, 1.2}
    assert {len(stage) for stage in stages} == {2, 3, 4}
    assert set(chain(*stages)) == {(kernel, expansion) for kernel in (3, 5, 7) for expansion in (3, 4, 6)}


def test_every_choice_of_the_resnet_space_occurs() -> None:
    """Every size and stem, and every depth, width and expansion of each stage, is drawn."""
    drawn = _arguments("elastic_resnet")
    assert _sizes("elastic_resnet") == set(range(128, 225, 16))
    assert {arguments["deep_stem"] for arguments in drawn} == {True, False}
    assert {arguments["stem"] for arguments in drawn} == {0.65, 0.8, 1.0}
    for stage, base in enumerate((2, 2, 4, 2)):
        widths, expansions = zip(*(arguments["stages"][stage] for arguments in drawn), strict=True)
        assert set(widths) == {0.65, 0.8, 1.0}
        assert {len(blocks) for blocks in expansions} == {base, base + 1, base + 2}
        assert set(chain(*expansions)) == {0.2, 0.25, 0.35}


@pytest.mark.parametrize("cell", ["normal", "reduction"])
def test_every_choice_of_the_darts_space_occurs(cell: str) -> None:
    """Every size, number of cells and channels, and each operation on each earlier node, is drawn."""
    drawn = _arguments("darts_space")
    assert _sizes("darts_space") == set(range(96, 225, 32))
    assert {arguments["cells"] for arguments in drawn} == {5, 6, 8}
    assert {arguments["channels"] for arguments in drawn} == {24, 32, 40, 48}
    nodes = [node for arguments in drawn for node in arguments[cell]]
    assert {operation for node in nodes for operation, _ in node} == _DARTS_OPERATIONS
    assert {source for node in nodes for _, source in node} == set(range(5))
    assert all(len({source for _, source in node}) == 2 for node in nodes)


@pytest.mark.parametrize(
    ("space", "sizes", "widths", "depths", "heads", "ratios"),
    [
        ("elastic_vit", {160, 224}, {192, 216, 240, 320, 384}, range(6, 14), range(3, 8), {3, 3.5, 4}),
        ("elastic_bert", {16, 32, 64, 128, 256}, {256, 384, 512, 640}, range(2, 9), range(2, 11), {2, 3, 4}),
    ],
)
def test_every_choice_of_a_transformer_space_occurs(
    space: str, sizes: set[int], widths: set[int], depths: range, heads: range, ratios: set[float]
) -> None:
    """Every size, width and depth, and every number of heads and ratio of a layer, is drawn."""
    drawn = _arguments(space)
    layers = [layer for arguments in drawn for layer in arguments["layers"]]
    assert _sizes(space) == sizes
    assert {arguments["width"] for arguments in drawn} == widths
    assert {len(arguments["layers"]) for arguments in drawn} == set(depths)
    assert {count for count, _ in layers} == set(heads)
    assert {ratio for _, ratio in layers} == ratios


@pytest.mark.parametrize("space", NETS)
def test_every_network_takes_its_input(space: str) -> None:
    """Every fifth drawn network accepts its input."""
    for net in list(NETS[space].values())[::5]:
        with torch.device("meta"), torch.no_grad():
            inputs = [
                torch.zeros(spec.shape, dtype=torch.int64 if spec.below else torch.float32)
                for spec in net.inputs.values()
            ]
            made = make_drawn(space, net).eval()(*inputs)
        assert made.shape[0] == 1


@pytest.mark.parametrize(
    ("space", "arguments", "millions"),
    [
        ("nas_bench_201", {"edges": dict.fromkeys(combinations(range(4), 2), "nor_conv_3x3")}, 1.531546),
        ("mobilenet_v3_space", {"width": 1.0, "stages": (((7, 6),) * 4,) * 5}, 7.66),
        ("darts_space", {"cells": 14, "channels": 48, "normal": _DARTS_V2[0], "reduction": _DARTS_V2[1]}, 4.72),
    ],
)
def test_as_many_parameters_as_published(space: str, arguments: dict[str, object], millions: float) -> None:
    """The largest network of a space, and DARTS's published cells, have the published number of parameters."""
    with torch.device("meta"):
        net = make_drawn(space, DrawnNetwork({}, arguments, ""))
    count = sum(parameter.numel() for parameter in net.parameters()) / 1e6
    assert count == pytest.approx(millions, abs=0.005)


@pytest.mark.parametrize("name", SMALL)
def test_a_network_becomes_a_file_that_runs(name: str, tmp_path: Path) -> None:
    """The file has static shapes and finite, varied activations without subnormal numbers."""
    recipe = next(recipe for recipe in RECIPES if recipe.name == name)
    spec = NETS[recipe.family][name].inputs
    path = tmp_path / f"{name}.onnx"
    recipe.write(path)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    for tensor in map(onnx.numpy_helper.to_array, model.graph.initializer):
        assert not ((tensor != 0) & (abs(tensor) < SMALLEST_NORMAL)).any()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert {value.name: tuple(value.shape) for value in session.get_inputs()} == {
        key: given.shape for key, given in spec.items()
    }
    random = np.random.default_rng(0)
    feed = {
        key: random.integers(0, given.below, given.shape) if given.below else random.random(given.shape, np.float32)
        for key, given in spec.items()
    }
    (answer,) = session.run(None, feed)
    assert answer.shape == SMALL[name]
    assert np.isfinite(answer).all()
    assert answer.std() > 0.01
