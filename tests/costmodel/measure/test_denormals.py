"""Denormal numbers count as zero inside the context, and only there."""

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto

from costmodel.measure.denormals import denormals_flushed
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime

TINY = np.float32(1e-20)


def product() -> np.float32:
    """Returns a product that is denormal."""
    return TINY * TINY


def test_denormals_are_zero_until_the_context_ends() -> None:
    """Inside the context a denormal product is zero; afterwards, also after an error, it is not."""
    with denormals_flushed() as supported:
        assert bool(product() == 0) is supported
    assert product() > 0
    with pytest.raises(KeyboardInterrupt), denormals_flushed():
        raise KeyboardInterrupt
    assert product() > 0


def test_the_runtime_runs_in_this_thread_without_denormals(
    parse: Callable[..., ModelProto], runtime: OnnxRuntime
) -> None:
    """A network on one thread is run by the thread that has flushed denormals."""
    model = parse("(float[64] x) => (float[64] y) { y = Mul(x, x) }")
    runtime.open_model(read_model(model), RuntimeSettings()).run()  # the first session of a process resets the state
    with denormals_flushed() as supported:
        runtime.open_model(read_model(model), RuntimeSettings()).run()
        assert bool(product() == 0) is supported
