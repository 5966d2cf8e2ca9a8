"""Combines the ONNX models of several regressors into one."""

from collections.abc import Mapping

import onnx
from onnx import TensorProto, helper

from costmodel.features.schema import SCHEMA
from costmodel.training.regressors.learner import Learner

__all__ = ["combined_onnx"]


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
    graph = helper.make_graph(
        [
            *(node for model in models for node in model.graph.node),
            helper.make_node(operator, [model.graph.output[0].name for model in models], ["log_ratios"]),
        ],
        "combination",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [None, len(SCHEMA.names)])],
        [helper.make_tensor_value_info("log_ratios", TensorProto.FLOAT, [None, 1])],
        [tensor for model in models for tensor in model.graph.initializer],
    )
    opsets = {opset.domain: opset.version for model in models for opset in model.opset_import}
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return bytes(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())
