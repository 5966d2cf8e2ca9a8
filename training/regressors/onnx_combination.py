"""Combines the ONNX models of several regressors into one."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from costmodel.features.schema import SCHEMA
from costmodel.training.regressors.learner import Learner

__all__ = ["assembled_onnx", "combined_onnx"]


def combined_onnx(regressors: Mapping[str, Learner], operator: str) -> bytes:
    """Returns an ONNX model whose output is made of those of several regressors.

    Input: "features", float32 [num_layers, num_features]. Output: log(cost / bound), float32 [num_layers, 1].

    Args:
        regressors: The trained regressors by name; none of them may use the neighbours of a layer.
        operator: ONNX operator that makes one output of all: "Mean" or "Sum".
    """
    models = [
        onnx.compose.add_prefix(onnx.load_from_string(regressor.to_onnx()), f"{name}/", rename_inputs=False)
        for name, regressor in regressors.items()
    ]
    outputs = [model.graph.output[0].name for model in models]
    nodes = [node for model in models for node in model.graph.node]
    return assembled_onnx([*nodes, helper.make_node(operator, outputs, ["log_ratios"])], models)


def assembled_onnx(
    nodes: Sequence[NodeProto], models: Sequence[ModelProto], constants: Mapping[str, np.ndarray] | None = None
) -> bytes:
    """Returns an ONNX model from "features" to "log_ratios", both as `combined_onnx` describes them.

    Args:
        nodes: Nodes of the model, among them those of `models`.
        models: Models whose weights and operator sets it has.
        constants: Further constants by name.
    """
    graph = helper.make_graph(
        nodes,
        "combination",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [None, len(SCHEMA.names)])],
        [helper.make_tensor_value_info("log_ratios", TensorProto.FLOAT, [None, 1])],
        [
            *(tensor for model in models for tensor in model.graph.initializer),
            *(numpy_helper.from_array(value, name) for name, value in (constants or {}).items()),
        ],
    )
    opsets = {opset.domain: opset.version for model in models for opset in model.opset_import}
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return bytes(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())
