"""The orders in which layers are added to a graph and executed are those of ONNX Runtime's profile."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto

from costmodel.memory.execution_order import execution_order, order_of_addition
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.ort.adapter import OnnxRuntime

# Attention after which the sum is normalised, as in BERT: its products are fused with their biases later than others.
POST_NORM = """
    (float[2, 8, 16] x) => (float[2, 8, 16] y) <int64[4] apart = {2, 8, 2, 8}, int64[3] joined = {2, 8, 16}> {
        n = LayerNormalization(x, scale, bias)
        qm = MatMul(n, qw) qs = Add(qm, bias) qr = Reshape(qs, apart) q = Transpose<perm=[0, 2, 1, 3]>(qr)
        km = MatMul(n, kw) ks = Add(km, bias) kr = Reshape(ks, apart) k = Transpose<perm=[0, 2, 3, 1]>(kr)
        vm = MatMul(n, vw) vs = Add(vm, bias) vr = Reshape(vs, apart) v = Transpose<perm=[0, 2, 1, 3]>(vr)
        scores = MatMul(q, k) weights = Erf(scores)
        mixed = MatMul(weights, v) turned = Transpose<perm=[0, 2, 1, 3]>(mixed) together = Reshape(turned, joined)
        om = MatMul(together, ow) out = Add(om, bias) sum = Add(out, n)
        m = LayerNormalization(sum, scale, bias)
        um = MatMul(m, uw) up = Add(um, wide) relu = Relu(up)
        dm = MatMul(relu, dw) down = Add(dm, bias) total = Add(down, m)
        y = LayerNormalization(total, scale, bias)
    }
"""
PRE_NORM = POST_NORM.replace("sum = Add(out, n)", "sum = Add(out, x)")
WEIGHTS = dict.fromkeys(("qw", "kw", "vw", "ow"), (16, 16)) | {"uw": (16, 24), "dw": (24, 16)}
WEIGHTS |= dict.fromkeys(("scale", "bias"), (16,)) | {"wide": (24,)}


@pytest.mark.parametrize("text", [POST_NORM, PRE_NORM], ids=["normalised after the sum", "normalised before"])
def test_products_are_added_and_executed_in_the_order_of_the_runtime(
    parse: Callable[..., ModelProto], tmp_path: Path, text: str
) -> None:
    """The profile has the number of each node in the graph, by which weights are packed, and the order of execution."""
    model, path = parse(text, weights=WEIGHTS), tmp_path / "model.onnx"
    for node in model.graph.node:
        node.name = node.output[0]
    onnx.save(model, path)
    graph = OnnxRuntime().lower(read_model(path), "all")
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.ones((2, 8, 16), np.float32)})
    events = [
        event
        for event in json.loads(Path(session.end_profiling()).read_text())
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    ]
    executed = [event["args"]["op_name"] for event in events]
    assert [layer.op_type for layer in execution_order(graph)] == executed

    products = ("MatMul", "Gemm", "FusedMatMul")
    numbered = sorted(events, key=lambda event: int(event["args"]["node_index"]))
    named = [event["name"].split("/")[0] for event in numbered if event["args"]["op_name"] in products]
    added = [layer.name.split("/")[0] for layer in order_of_addition(graph) if layer.op_type in products]
    assert added == [name.removesuffix("_kernel_time") for name in named]


def test_a_graph_without_names_has_the_same_order(parse: Callable[..., ModelProto], tmp_path: Path) -> None:
    """What the runtime appended to names says which products it fused, and stays."""
    path = tmp_path / "model.onnx"
    onnx.save(parse(POST_NORM, weights=WEIGHTS), path)
    graph = OnnxRuntime().lower(read_model(path), "all")
    places = {layer.outputs: place for place, layer in enumerate(graph.layers)}
    hidden = graph.anonymous()
    hidden_places = {layer.outputs: place for place, layer in enumerate(hidden.layers)}
    assert [places[layer.outputs] for layer in order_of_addition(graph)] == [
        hidden_places[layer.outputs] for layer in order_of_addition(hidden)
    ]
    assert not {layer.name for layer in hidden.layers} & {layer.name for layer in graph.layers}
