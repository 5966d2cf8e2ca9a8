"""The corpus of random networks."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from costmodel.onnx_io.model import read_model
from costmodel.runtimes.base import get_runtime
from costmodel.training.corpora.random_networks import RECIPES, random_network
from costmodel.training.corpora.recipe import RANDOM_FAMILY


def test_networks_are_the_same_each_time_and_run(tmp_path: Path) -> None:
    """Each kind of network runs, has an output that depends on its input, and is the same when it is written again."""
    for recipe in RECIPES[:7]:
        recipe.write(tmp_path / "one.onnx")
        recipe.write(tmp_path / "again.onnx")
        assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()
        session = onnxruntime.InferenceSession(tmp_path / "one.onnx", providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        drawn = np.random.default_rng(0).standard_normal((2, *given.shape)).astype(np.float32)
        first, second = (session.run(None, {given.name: values})[0] for values in drawn)
        assert np.isfinite(first).all()
        assert not np.array_equal(first, second)


def test_layers_follow_each_other() -> None:
    """All of a network is one connected graph, which ends in the network's only output."""
    for number in range(7):
        graph = random_network(number).graph
        makers = {output: node for node in graph.node for output in node.output}
        (output,) = graph.output
        reached, left = set(), [output.name]
        while left:
            name = left.pop()
            if name in makers and name not in reached:
                reached.add(name)
                left.extend(makers[name].input)
        assert reached == makers.keys()


def test_networks_are_small_and_of_several_kinds(tmp_path: Path) -> None:
    """Weights have 60 kB to 24 MB, no two of a network are equal, and the layers are those of several architectures."""
    operators, sizes = Counter[str](), []
    for recipe in RECIPES[:28]:
        recipe.write(tmp_path / "one.onnx")
        graph = onnx.load(tmp_path / "one.onnx").graph
        operators.update(node.op_type for node in graph.node)
        floats = [tensor.raw_data for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT]
        assert len(set(floats)) == len(floats)
        sizes.append(sum(map(len, floats)))
    assert 50e3 <= min(sizes) < 300e3
    assert 4e6 < max(sizes) <= 24e6
    assert {"Conv", "Gemm", "MatMul", "Softmax", "LayerNormalization", "Concat", "AveragePool"} <= operators.keys()


def test_onnx_runtime_executes_blocked_convolutions(tmp_path: Path) -> None:
    """The networks are lowered as models are, so that their layers are of the kinds that models have."""
    RECIPES[0].write(tmp_path / "one.onnx")
    layers = get_runtime().lower(read_model(tmp_path / "one.onnx"), "all").layers
    assert len(layers) > 5
    assert "Conv" in {layer.op_type for layer in layers}


def test_no_evaluation_judges_by_them() -> None:
    """All have the family that data sets keep apart."""
    assert {recipe.family for recipe in RECIPES} == {RANDOM_FAMILY}
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES)
