"""The modern corpus: its recipes, and the files that they write."""

import logging
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from costmodel.errors import ModelReadError
from costmodel.training.corpora.modern import RECIPES
from costmodel.training.corpora.modern_network import (
    Network,
    NetworkInput,
    images,
    network_recipe,
    pairs,
    tokens,
    write_network,
)
from costmodel.training.corpora.quantised import DENSE, quantise_file, quantised, write_quantised

FLOAT = [recipe for recipe in RECIPES if not recipe.needs]
INT8 = [recipe for recipe in RECIPES if recipe.needs]

_NARROW = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
BERT = Network("BertModel", pairs(6, batch=2), _NARROW | {"vocab_size": 1000})
VIT = Network("ViTForImageClassification", images(32), _NARROW | {"image_size": 32, "num_labels": 5})
WHISPER = Network(
    "WhisperModel",
    {"input_features": NetworkInput((1, 8, 40))},
    {
        "d_model": 16,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_layers": 1,
        "decoder_attention_heads": 1,
        "num_mel_bins": 8,
        "max_source_positions": 20,
    },
    part="encoder",
)


def _answer(path: Path) -> np.ndarray:
    """Returns the output of the model on a random input.

    Integer products do not saturate, whatever the processor: without VNNI, the quick ones saturate at 16 bits.
    """
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.integers(0, 2, value.shape)
        if value.type == "tensor(int64)"
        else rng.standard_normal(value.shape, dtype=np.float32)
        for value in session.get_inputs()
    }
    (answer,) = session.run(None, feeds)
    return np.asarray(answer)


def _layers(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def test_names_are_unique_and_plain() -> None:
    """Names are unique and valid file stems on every file system."""
    names = [recipe.name for recipe in RECIPES]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)
    assert len({recipe.title for recipe in RECIPES}) > len(RECIPES) // 2
    assert all(recipe.title for recipe in RECIPES)


def test_there_are_enough_of_each_kind() -> None:
    """There are at least thirty float32 models of batch 1, four of larger batches, and five int8 versions."""
    batched = [recipe for recipe in FLOAT if re.search(r"_b\d$", recipe.name)]
    assert len(FLOAT) - len(batched) >= 30
    assert len(batched) >= 4
    assert len(INT8) >= 5
    assert len({recipe.family for recipe in FLOAT}) >= 15


def test_a_lineage_is_never_split() -> None:
    """Models of one architecture share a family, int8 versions have their parent's, and all ViTs are one family."""
    family = {recipe.name: recipe.family for recipe in RECIPES}
    by_first_word: dict[str, set[str]] = {}
    for name, lineage in family.items():
        by_first_word.setdefault("_".join(name.split("_")[: 1 + name.startswith("clip")]), set()).add(lineage)
    assert [word for word, lineages in by_first_word.items() if len(lineages) > 1] == []
    assert all(recipe.family == family[recipe.needs] and recipe.name == f"{recipe.needs}_int8" for recipe in INT8)
    kin = ("deit_tiny_p16_224", "beit_base_p16_224", "yolos_tiny_512", "ast_base_5s", "clip_vision_b_p32_224")
    assert {family[name] for name in kin} == {"vit"}
    assert (family["resnet18_224"], family["mobilenet_v2_100_224"]) == ("resnet", "mobilenet")


def test_recipes_are_listed_without_the_libraries_that_follow_them() -> None:
    """Listing recipes imports neither torch nor transformers nor a runtime."""
    code = "import sys, costmodel.training.corpora.modern; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "costmodel.training.corpora.modern" in loaded
    assert not {"torch", "transformers", "onnxruntime"} & set(loaded)


def test_inputs_are_named_as_tokenizers_name_them() -> None:
    """Token ids are below the vocabulary size; masks and token types are 0 or 1."""
    assert list(pairs(6)) == [*tokens(6), "token_type_ids"]
    assert {name: spec.below for name, spec in pairs(6).items() if name != "input_ids"} == {
        "attention_mask": 2,
        "token_type_ids": 2,
    }
    assert {spec.shape for spec in pairs(6, batch=3).values()} == {(3, 6)}


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        pytest.param(BERT, (2, 6, 16), id="text"),
        pytest.param(VIT, (1, 5), id="image"),
        pytest.param(WHISPER, (1, 20, 16), id="part"),
    ],
)
def test_a_network_becomes_a_file_that_runs(network: Network, shape: tuple[int, ...], tmp_path: Path) -> None:
    """An exported file has the network's input names and one finite output."""
    pytest.importorskip("transformers")
    path = tmp_path / "network.onnx"
    write_network(network, path)
    assert [value.name for value in onnx.load(path).graph.input] == list(network.inputs)
    answer = _answer(path)
    assert answer.shape == shape
    assert np.isfinite(answer).all()
    assert answer.std() > 0.01


def test_the_same_recipe_gives_the_same_bytes(tmp_path: Path) -> None:
    """A recipe writes the same bytes, in float32 and int8, whatever was built before."""
    pytest.importorskip("transformers")
    parent = network_recipe("tiny", "vit", "Tiny", VIT)
    child = quantised(parent)
    once, again = tmp_path / "once", tmp_path / "again"
    for folder in (once, again):
        folder.mkdir()
        for recipe in (parent, child):
            recipe.write(folder / f"{recipe.name}.onnx")
    for file in once.iterdir():
        assert file.read_bytes() == (again / file.name).read_bytes()


@pytest.mark.parametrize(("network", "only"), [pytest.param(VIT, (), id="all"), pytest.param(BERT, DENSE, id="dense")])
def test_an_int8_version_multiplies_in_int8(
    network: Network, only: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Weights have 8 bits, the output is near the parent's, and nothing is logged or left in the folder."""
    pytest.importorskip("transformers")
    parent, path = tmp_path / "tiny.onnx", tmp_path / "tiny_int8.onnx"
    write_network(network, parent)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        write_quantised("tiny", only, path)
    assert caplog.records == []
    assert [file.name for file in sorted(tmp_path.iterdir())] == [parent.name, path.name]
    weights = [tensor for tensor in onnx.load(path).graph.initializer if tensor.data_type == onnx.TensorProto.INT8]
    assert len([tensor for tensor in weights if len(tensor.dims) == 2]) >= 6
    assert any(len(tensor.dims) == 1 for tensor in weights)
    assert _layers(path)["QuantizeLinear"] > 0
    # The median, because values beyond the range of the two calibration inputs are clipped.
    assert np.median(np.abs(_answer(path) - _answer(parent))) < 0.2


def test_inputs_of_any_type_are_calibrated_with(parse: Callable[..., onnx.ModelProto], tmp_path: Path) -> None:
    """Models of other exporters read 32-bit ids and masks of booleans."""
    model = parse(
        """(int32[2,4] ids, bool[2,4] mask, float[2,4] x) => (float[2,8] y) {
            a = Cast<to: int = 1>(ids) b = Where(mask, x, a) y = MatMul(b, w)
        }""",
        weights={"w": (4, 8)},
    )
    onnx.save(model, tmp_path / "m.onnx")
    quantise_file(tmp_path / "m.onnx", tmp_path / "m_int8.onnx")
    assert _layers(tmp_path / "m_int8.onnx")["QuantizeLinear"] > 0


def test_an_int8_version_needs_its_parent(tmp_path: Path) -> None:
    """Without the parent's file, the error names the model to build first."""
    with pytest.raises(ModelReadError, match="build tiny first"):
        write_quantised("tiny", (), tmp_path / "tiny_int8.onnx")
