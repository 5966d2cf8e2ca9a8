"""ONNX Runtime's profiler: which kernels it reports, and under which names of layers."""

from collections import Counter
from collections.abc import Callable

import pytest
from onnx import ModelProto

from costmodel.errors import LoweringError
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.base import LayerProfiler, ProfiledRun, RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime
from tests.conftest import LIGHT

LOOP = """(float[4] x) => (float[4] y) {
    count = Constant <value = int64 {3}> ()
    more = Constant <value = bool {1}> ()
    y = Loop (count, more, x) <body = inner (int64 step, bool go, float[4] v) => (bool on, float[4] w) {
        on = Identity (go)
        doubled = Add (v, v)
        w = Mul (doubled, v)
    }>
}"""


def profile(runtime: OnnxRuntime, model: ModelProto, settings: RuntimeSettings, runs: int = 3) -> list[ProfiledRun]:
    """Returns runs of a model under the profiler."""
    return list(runtime.profile_model(read_model(model), settings, runs=runs, warm_up_runs=1))


@pytest.mark.parametrize("name", ["squeezenet", "densenet121", "shufflenet"])
def test_each_layer_of_the_lowered_graph_is_timed_once_in_each_run(
    name: str, runtime: OnnxRuntime, settings: RuntimeSettings, lowered_light: Callable[..., object]
) -> None:
    """Kernels have the names of the canonical graph, although ONNX Runtime numbers its names anew in each session."""
    model = read_model(LIGHT[name])
    runs = runtime.profile_model(model, settings, runs=2, warm_up_runs=1)
    layers = Counter(layer.name for layer in lowered_light(name).layers)  # type: ignore[attr-defined]
    assert isinstance(runtime, LayerProfiler)
    assert [Counter(kernel.layer for kernel in run.kernels) for run in runs] == [layers, layers]


def test_kernels_lie_one_after_the_other_within_their_run(
    runtime: OnnxRuntime, settings: RuntimeSettings, parse: Callable[..., ModelProto]
) -> None:
    """Times count from the start of the run."""
    text = "(float[64,64] x) => (float[64,64] y) { a = MatMul(x, x) b = Tanh(a) y = MatMul(b, a) }"
    runs = profile(runtime, parse(text), settings)
    assert len(runs) == 3
    for run in runs:
        assert [kernel.kernel for kernel in run.kernels] == ["MatMul", "Tanh", "MatMul"]
        assert not any(kernel.in_body for kernel in run.kernels)
        end_us = 0.0
        for kernel in run.kernels:
            assert end_us <= kernel.begin_us
            end_us = kernel.begin_us + kernel.duration_us
        assert end_us <= run.latency_us + 1


def test_weights_that_no_layer_reads_are_no_obstacle(
    runtime: OnnxRuntime, settings: RuntimeSettings, parse: Callable[..., ModelProto], branches: ModelProto
) -> None:
    """Large weights may be read by no layer, by a body only, or by the branch that a value did not choose."""
    large = {"w": (256, 256)}
    (run,) = profile(runtime, parse("(float[8] x) => (float[8] y) { y = Tanh(x) }", weights=large), settings, runs=1)
    assert [kernel.kernel for kernel in run.kernels] == ["Tanh"]
    for flag, kernels in ((0, ["MatMul", "Tanh"]), (1, ["Tanh"])):
        model = read_model(branches, values={"cached": flag})
        (run,) = runtime.profile_model(model, settings, runs=1, warm_up_runs=1)
        assert [kernel.kernel for kernel in run.kernels] == kernels
    (run,) = profile(runtime, branches, settings, runs=1)
    assert "If" in {kernel.kernel for kernel in run.kernels}


def test_kernels_of_a_body_belong_to_their_layer(
    runtime: OnnxRuntime, settings: RuntimeSettings, parse: Callable[..., ModelProto], lower: Callable[..., object]
) -> None:
    """The kernels of a loop's body are inside the time of the loop, and are not counted twice."""
    model = parse(LOOP)
    (run,) = profile(runtime, model, settings, runs=1)
    (layer,) = lower(model).layers  # type: ignore[attr-defined]
    own = [kernel for kernel in run.kernels if not kernel.in_body]
    assert [(kernel.layer, kernel.kernel) for kernel in own] == [(layer.name, "Loop")]
    inside = [kernel for kernel in run.kernels if kernel.in_body]
    assert {kernel.layer for kernel in inside} == {layer.name}
    assert Counter(kernel.kernel for kernel in inside)["Mul"] == 3


def test_a_model_that_does_not_load_is_refused_with_its_name(
    runtime: OnnxRuntime, settings: RuntimeSettings, parse: Callable[..., ModelProto]
) -> None:
    """The error is the one that opening the model raises."""
    model = parse("(float[2] x) => (float[2] y) { y = NoSuchOperator(x) }")
    with pytest.raises(LoweringError, match="tiny is refused by onnxruntime"):
        profile(runtime, model, settings)
