"""The wide corpus: its lineages, sizes and files."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnxruntime
import pytest
import torch

from costmodel.training.corpora.modern_network import NetworkInput
from costmodel.training.corpora.nets.layers import Gated, Permuted, Rearranged, mlp
from costmodel.training.corpora.nets.weights import initialise_any
from costmodel.training.corpora.registry import RECIPE_MODULES, recipes_of
from costmodel.training.corpora.wide import OWN, RECIPES, make_own
from costmodel.training.corpus import CORPORA

# Families that other corpora, or the catalogue of downloadable models, also contain.
ELSEWHERE = {
    "ademxapp", "vgg", "capsnet", "inception", "mobilenet", "resnet", "senet", "squeezenet", "adain", "colorful",
    "colornet", "cyclegan", "pix2pix", "vdsr", "yolo", "hourglass", "dilated", "regnet", "efficientnet", "convnext",
    "vit", "swin", "segformer", "mobilevit", "levit", "poolformer", "bert", "mobilebert", "deberta", "modernbert", "t5",
    "bart", "clip", "gpt2", "llama", "wav2vec2", "whisper", "alexnet", "densenet", "shufflenet",
}  # fmt: skip
BY_NAME = {own.name: own for own in OWN}
# Millions of parameters, as precisely as they are published or known from the reference implementation.
PUBLISHED = {
    "densenet121_224": (7.98, 0.01),
    "ghostnet_100_224": (5.2, 0.1),
    "lenet_32_b64": (0.0617, 0.0001),
    "mlp_mixer_s32_224": (19.1, 0.1),
    "repvgg_a0_224": (8.31, 0.01),
    "shufflenet_v2_050_224_b2": (1.37, 0.01),
    "shufflenet_v2_100_224_b4": (2.28, 0.01),
    "yolo_v3_tiny_416": (8.86, 0.01),
}
# The smallest models that together contain convolutions, attention, recurrence, embeddings, and past keys.
SMALL = {
    "lenet_32_b64": [(64, 10)],
    "tcn_w64_512_b8": [(8, 1, 512)],
    "lstm_forecast_w128_s96_b8": [(8, 24)],
    "deepfm_b256": [(256, 1)],
    "gcn_2000": [(2000, 40)],
}


def test_names_are_unique_and_plain() -> None:
    """Names are valid file stems and unique in all corpora."""
    names = [recipe.name for recipe in RECIPES]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)
    assert len({recipe.title for recipe in RECIPES}) == len(RECIPES)
    apart = RECIPE_MODULES.keys() - {"wide", "int8"}  # int8 models are beside those that they were made from
    others = {recipe.name for corpus in apart for recipe in recipes_of(corpus)}
    assert not set(names) & (others | {name for listed in CORPORA.values() for name in listed})


def test_there_is_breadth() -> None:
    """There are sixty models in thirty lineages of this corpus only, at most three of each, some with batches."""
    families = [recipe.family for recipe in RECIPES]
    assert len(RECIPES) >= 60
    assert len(set(families) - ELSEWHERE) >= 30
    assert all(families.count(family) <= 3 for family in set(families) - ELSEWHERE)
    assert all(re.fullmatch(r"[a-z0-9_]+", family) for family in families)
    assert len([recipe for recipe in RECIPES if re.search(r"_b\d+$", recipe.name)]) >= 5


def test_recipes_are_listed_without_the_libraries_that_follow_them() -> None:
    """Listing recipes imports neither torch nor transformers nor a runtime."""
    code = "import sys, costmodel.training.corpora.wide; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "costmodel.training.corpora.wide" in loaded
    assert not {"torch", "transformers", "onnxruntime"} & set(loaded)


@pytest.mark.parametrize("name", PUBLISHED)
def test_as_many_parameters_as_published(name: str) -> None:
    """A reimplemented architecture has the number of parameters of its original."""
    with torch.device("meta"):  # no weights, shapes only
        count = sum(parameter.numel() for parameter in make_own(BY_NAME[name]).parameters())
    millions, tolerance = PUBLISHED[name]
    assert count / 1e6 == pytest.approx(millions, abs=tolerance)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_net_takes_its_inputs(name: str) -> None:
    """Every network accepts its inputs and has less than 150 MB of weights."""
    own = BY_NAME[name]
    with torch.device("meta"), torch.no_grad():
        net = make_own(own).eval()
        made = net(*(_zeros(spec) for spec in own.inputs.values()))
    assert sum(parameter.numel() for parameter in net.parameters()) < 37_500_000  # 150 MB
    assert all(0 not in output.shape for output in (made if isinstance(made, tuple) else (made,)))


def _zeros(spec: NetworkInput) -> torch.Tensor:
    return torch.zeros(spec.shape, dtype=torch.int64 if spec.below else torch.float32)


@pytest.mark.parametrize("name", SMALL)
def test_a_file_runs(name: str, tmp_path: Path) -> None:
    """A file is valid, has the recipe's input names, and its outputs are finite and depend on the input."""
    path = tmp_path / f"{name}.onnx"
    next(recipe for recipe in RECIPES if recipe.name == name).write(path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = BY_NAME[name].inputs
    assert {value.name: tuple(value.shape) for value in session.get_inputs()} == {
        key: spec.shape for key, spec in inputs.items()
    }
    rng = np.random.default_rng(0)
    feed = {
        key: rng.integers(0, spec.below, spec.shape)
        if spec.below
        else rng.standard_normal(spec.shape, dtype=np.float32)
        for key, spec in inputs.items()
    }
    outputs = session.run(None, feed)
    assert [output.shape for output in outputs] == SMALL[name]
    assert all(np.isfinite(output).all() and 1e-4 < output.std() < 1e4 for output in outputs)


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    """A recipe writes the same bytes each time."""
    recipe = next(recipe for recipe in RECIPES if recipe.name == "lenet_32_b64")
    for name in ("one", "two"):
        recipe.write(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_weights_keep_the_size_of_activations_in_any_dimension() -> None:
    """1-D, 3-D and transposed convolutions keep the size of a unit input near one."""
    for layer, shape in (
        (torch.nn.Conv1d(64, 64, 9), (1, 64, 100)),
        (torch.nn.Conv3d(32, 32, 3), (1, 32, 8, 8, 8)),
        (torch.nn.ConvTranspose1d(64, 64, 8, 4), (1, 64, 50)),
    ):
        initialise_any(layer, 0)
        torch.manual_seed(0)
        assert 1.0 < layer(torch.randn(shape)).std() < 2.0  # the root of 2, which a following ReLU removes


def test_building_blocks() -> None:
    """The building blocks `Permuted`, `Gated`, `Rearranged` and `mlp` compute what they say."""
    x = torch.arange(6.0).view(1, 2, 3)
    assert torch.equal(Permuted(torch.nn.Identity())(x), x)
    assert Permuted(torch.nn.Linear(2, 5))(x).shape == (1, 5, 3)
    assert Gated(torch.nn.Sigmoid(), 1)(x).shape == (1, 1, 3)
    assert Rearranged(0, 2, 1, joined=1)(x).tolist() == [[0, 3, 1, 4, 2, 5]]
    assert [type(layer).__name__ for layer in mlp(3, 4, 2)] == ["Linear", "ReLU", "Linear"]
