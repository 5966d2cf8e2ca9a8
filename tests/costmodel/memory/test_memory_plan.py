"""The simulated plan of buffers is that of ONNX Runtime, whose log says how large a block it takes for the values."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from costmodel.memory.arena import pattern_bytes
from costmodel.memory.buffers import buffer_events
from costmodel.memory.execution_order import execution_order
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.ort.adapter import OnnxRuntime

# The arena grows by no more than is requested, so that the second run says how large a block it needs.
CHILD = """
import os, sys
import numpy as np
import onnxruntime as ort

os.dup2(1, 2)
ort.set_default_logger_severity(1)
ort.create_and_register_allocator(
    ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT),
    ort.OrtArenaCfg(0, 1, -1, -1),
)
options = ort.SessionOptions()
options.intra_op_num_threads = 1
options.add_session_config_entry("session.use_env_allocators", "1")
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
feeds = {"x": ort.OrtValue.ortvalue_from_numpy(np.ones(session.get_inputs()[0].shape, np.float32))}
names = [one.name for one in session.get_outputs()]
kept = session.run_with_ort_values(names, feeds)
print("second run", flush=True)
session.run_with_ort_values(names, feeds)
"""
SPATIAL = dict.fromkeys(("u", "v"), (16, 16, 3, 3)) | {"w": (16, 16, 1, 1), "s": (16,)}


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        pytest.param(
            """(float[1, 16, 40, 40] x) => (float[1, 16, 40, 40] z) {
                a = Conv<pads=[1, 1, 1, 1]>(x, u) b = InstanceNormalization(a, s, s)
                c = Conv<pads=[1, 1, 1, 1]>(b, v) d = InstanceNormalization(c, s, s)
                e = Add(d, b) z = Erf(e)
            }""",
            SPATIAL,
            id="blocked and plain tensors take the same buffers",
        ),
        pytest.param(
            """(float[1, 16, 40, 40] x) => (float[1, 16, 40, 40] z) {
                p = Relu(x) short = Conv(p, w)
                a = Conv<pads=[1, 1, 1, 1]>(p, u) b = InstanceNormalization(a, s, s)
                c = Conv<pads=[1, 1, 1, 1]>(b, v) d = InstanceNormalization(c, s, s)
                e = Add(d, short) z = Erf(e)
            }""",
            SPATIAL,
            id="a reorder to the plain layout is executed before other producers",
        ),
        pytest.param(
            """(float[8, 1000] x) => (float[8, 1000] z) {
                a = Erf(x) b = Exp(a) c = Relu(b) d = Sqrt(c) z = Mul(d, d)
            }""",
            {},
            id="an exponential does not overwrite its input, a ReLU does",
        ),
        pytest.param(
            """(float[8, 1000] x) => (float[8000] z) <int64[1] flat = {-1}> {
                a = Erf(x) b = Exp(a) c = Add(a, b) z = Reshape(c, flat)
            }""",
            {},
            id="an output has a buffer of its own, even if it could be a view",
        ),
        pytest.param(
            """(float[8, 1000] x) => (float[8, 1000] z) <int64[2] tall = {1000, 8}, int64[2] wide = {8, 1000}> {
                a = Reshape(x, tall) b = Erf(a) c = Reshape(b, wide) d = Exp(c) e = Add(c, d) z = Mul(e, d)
            }""",
            {},
            id="a view of the input takes no memory",
        ),
        pytest.param(
            """(float[8, 1000] x) => (float[1000, 8] z) <int64[2] tall = {1000, 8}> {
                a = Reshape(x, tall) b = Relu(a) c = Erf(b) z = Mul(c, c)
            }""",
            {},
            id="a view of the input is not overwritten",
        ),
        pytest.param(
            """(float[8, 1000] x) => (float[8, 600] z) <int64[2] parts = {400, 600}> {
                a = Erf(x) b, c = Split<axis=1>(a, parts) d = Exp(b) e = Exp(c) f = Concat<axis=1>(d, e)
                g, h = Split<axis=1>(f, parts) i = Exp(h) z = Mul(i, h)
            }""",
            {},
            id="buffers of other sizes lie in the smallest gap",
        ),
    ],
)
def test_the_block_of_values_has_the_size_that_the_runtime_takes(
    parse: Callable[..., ModelProto], tmp_path: Path, text: str, weights: dict[str, tuple[int, ...]]
) -> None:
    """The size is the result of the whole plan: order, overwriting, buffers that are used again, and their places."""
    path = tmp_path / "model.onnx"
    onnx.save(parse(text, weights=weights), path)
    runtime = OnnxRuntime()
    graph = runtime.lower(read_model(path), "all")
    block = pattern_bytes(list(buffer_events(replace(graph, layers=execution_order(graph)), runtime.block)))
    said = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True).stdout
    requested = re.search(r"\(requested\) num_bytes: (\d+)", said.partition("second run\n")[2])
    assert requested is not None
    assert block == int(requested[1])
