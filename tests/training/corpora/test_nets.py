"""The architectures of the DLBricks models have the published sizes and compute sound values."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnxruntime
import pytest
import torch

from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.training.corpora.dlbricks import NETS, RECIPES, make_net

# Millions of parameters, as precisely as they are published or known from the reference implementation.
PUBLISHED = {
    "ademxapp_a1_voc": (124, 1),
    "capsnet": (6.8, 0.05),
    "colorful": (32.2, 0.1),
    "cyclegan": (11.38, 0.01),
    "depth": (5.37, 0.03),
    "face_alignment": (23.82, 0.01),
    "image_identify": (14.7, 0.1),
    "inception_v1": (7.0, 0.01),
    "inception_v3": (23.83, 0.01),
    "mobilenet_v2": (3.50, 0.01),
    "open_nsfw": (5.9, 0.05),
    "pix2pix": (54.41, 0.01),
    "resnet50": (25.56, 0.01),
    "resnet101": (44.55, 0.01),
    "resnet152": (60.19, 0.01),
    "senet154": (115.09, 0.01),
    "squeezenet": (1.235, 0.001),
    "ssd300": (26.28, 0.01),
    "vdsr": (0.6655, 0.001),
    "vgg16": (138.36, 0.01),
    "vgg19": (143.67, 0.01),
    "wide_resnet50": (68.88, 0.01),
    "yolo_v2": (50.97, 0.03),
}
# Models that torch exports within two seconds, and that together contain every kind of block.
SMALL = ("capsnet_mnist", "mobilenet_v2_imagenet", "squeezenet_v1_1_imagenet", "inception_v1_salient", "vdsr")
SMALLEST_NORMAL = np.finfo(np.float32).tiny


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Function that writes the file of a recipe, once a session."""
    folder = tmp_path_factory.mktemp("nets")
    recipes = {recipe.name: recipe for recipe in RECIPES}

    def made(name: str) -> Path:
        path = folder / f"{name}.onnx"
        if not path.exists():
            recipes[name].write(path)
        return path

    return made


@pytest.mark.parametrize("name", PUBLISHED)
def test_as_many_parameters_as_published(name: str) -> None:
    """A reimplemented architecture has the number of parameters of its original."""
    with torch.device("meta"):  # no weights, shapes only
        count = sum(parameter.numel() for parameter in make_net(name).parameters())
    millions, tolerance = PUBLISHED[name]
    assert count / 1e6 == pytest.approx(millions, abs=tolerance)


@pytest.mark.parametrize("name", [name for name in NETS if not name.startswith("inception_v1")])
def test_every_net_takes_its_input(name: str) -> None:
    """Every architecture accepts its input, except Inception V1, because torch has no operator LRN."""
    net = NETS[name]
    with torch.device("meta"), torch.no_grad():
        made = make_net(name).eval()(*(torch.zeros(1, *net.size) for _ in net.inputs))
    outputs = made if isinstance(made, tuple) else (made,)
    assert all(output.shape[0] == 1 for output in outputs)


@pytest.mark.parametrize("name", SMALL)
def test_activations_are_finite_and_not_subnormal(made: Callable[[str], Path], name: str) -> None:
    """Activations are like a trained network's, so that no layer is slowed by subnormal numbers."""
    model = onnx.load(made(name))
    onnx.checker.check_model(model, full_check=True)
    declared = {value.name: value for value in model.graph.value_info}
    outputs = {output.name for output in model.graph.output}
    inner = [o for node in model.graph.node for o in node.output if o in declared and o not in outputs]
    model.graph.output.extend(declared[o] for o in inner if declared[o].type.tensor_type.elem_type == 1)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    feed = {i.name: random.uniform(0, 1, i.shape).astype(np.float32) for i in session.get_inputs()}
    for output, values in zip(session.get_outputs(), session.run(None, feed), strict=True):
        assert np.isfinite(values).all(), output.name
        assert not ((values != 0) & (abs(values) < SMALLEST_NORMAL)).any(), output.name


@pytest.mark.parametrize("name", SMALL)
def test_a_net_is_lowered_and_cut(made: Callable[[str], Path], runtime: OnnxRuntime, name: str) -> None:
    """An exported model is lowered to known layers, most of them convolutions."""
    model = read_model(made(name))
    assert list(model.inputs) == ["input"]
    graph = runtime.lower(model, "all")
    cut = decompose(name, graph, 1)
    assert len(cut.segments) == len(graph.layers) > 10
    assert not {layer.op_type for layer in graph.layers} & {"BatchNormalization", "Identity", "Dropout", "Constant"}


def test_lrn_is_one_operator(made: Callable[[str], Path]) -> None:
    """Inception V1 contains LRN as one operator, as deployed models do."""
    nodes = onnx.load(made("inception_v1_salient")).graph.node
    assert [node.op_type for node in nodes].count("LRN") == 2


def test_nothing_of_this_machine_is_in_a_file(made: Callable[[str], Path]) -> None:
    """The exporter's stack traces, which contain local paths, are removed."""
    content = made("capsnet_mnist").read_bytes()
    assert str(Path(__file__).parents[3]).encode() not in content
    model = onnx.load_from_string(content)
    assert not model.metadata_props
    assert not any(node.metadata_props or node.doc_string for node in model.graph.node)


def test_the_same_bytes_each_time(made: Callable[[str], Path], tmp_path: Path) -> None:
    """A recipe writes the same bytes each time."""
    for recipe in RECIPES:
        if recipe.name in ("capsnet_mnist", "squeezenet_v1_1_imagenet"):
            recipe.write(tmp_path / "again.onnx")
            assert (tmp_path / "again.onnx").read_bytes() == made(recipe.name).read_bytes()
