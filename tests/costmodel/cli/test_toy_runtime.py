"""The whole way with a runtime that costmodel has never heard of: a class, and one line in a package's metadata."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from costmodel.cli.context import Tools
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.measure.lock import measuring_lock
from tests.fakes import QUICK
from tests.shell import Run

TOY = Path(__file__).parents[2] / "toy"
NAME = "toy.box"


def perceptron(depth: int, width: int) -> ModelProto:
    """Returns a chain of products with an activation each."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for i in range(depth):
        weights.append(numpy_helper.from_array(rng.normal(size=(width, width)).astype(np.float32) / width, f"w{i}"))
        nodes += [
            helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"p{i}"]),
            helper.make_node("Relu" if i % 2 else "Tanh", [f"p{i}"], [f"x{i + 1}"]),
        ]
    shape = [8, width]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x0", f"x{depth}")]
    graph = helper.make_graph(nodes, "perceptron", ports[:1], ports[1:], weights)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture
def toy_run(run_with: Callable[[Tools], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Function that runs a command while the toy runtime is installed."""
    monkeypatch.syspath_prepend(str(TOY))
    lock = partial(measuring_lock, tmp_path / "measuring.lock")
    return run_with(Tools(bench=partial(BenchmarkSession, lock=lock, protocol=QUICK)))


def test_a_strange_runtime_goes_the_whole_way(toy_run: Run, tmp_path: Path) -> None:
    """Decomposing, measuring, training and predicting need nothing but the class of the runtime."""
    models, home = tmp_path / "models", tmp_path / "home"
    models.mkdir()
    for family, depth, width in (
        ("small", 2, 16), ("small", 3, 24), ("medium", 4, 32), ("medium", 2, 48), ("wide", 3, 64), ("wide", 4, 96),
        ("large", 5, 128), ("large", 3, 160),
    ):  # fmt: skip
        onnx.save(perceptron(depth, width), models / f"{family}{width}.onnx")
    onnx.save(perceptron(6, 80), tmp_path / "unseen.onnx")

    cut = json.loads(toy_run(home, "decompose", models, "--runtime", "toy", "--json").out)
    assert cut["total"] > 0
    bench = toy_run(home, "bench", "--corpus", models, "--runtime", "toy", "--system", NAME, "--json")
    assert bench.code == 0, bench.err
    assert json.loads(bench.out)["failed"] == {}
    train = toy_run(home, "train", "--system", NAME, "--json")
    assert train.code == 0, train.err
    for file, source in ((models / "wide64.onnx", "measured"), (tmp_path / "unseen.onnx", "predicted")):
        estimate = json.loads(toy_run(home, "predict", file, "--system", NAME, "--json").out)
        assert estimate["latency_us"] > 0
        assert estimate["coverage"][source] + estimate["coverage"]["extrapolated"] > 0.9
        assert {layer["op_type"] for layer in estimate["layers"]} == {"MatMul", "Tanh"}
    known = json.loads(toy_run(home, "systems", "--json").out)
    assert "toy" in json.dumps(known)


def test_a_runtime_that_is_not_installed_is_answered_with_those_that_are(toy_run: Run, tmp_path: Path) -> None:
    """The toy is offered while it is installed, like any other runtime."""
    done = toy_run(tmp_path / "home", "bench", "--runtime", "tensorrt")
    assert done.code == 1
    assert "there is no runtime 'tensorrt': choose one of onnxruntime, openvino, toy" in done.err
