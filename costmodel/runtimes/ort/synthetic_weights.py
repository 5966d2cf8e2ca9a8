"""Copies of models in which synthetic weights take the place of those that were left out."""

import numpy as np
from onnx import ModelProto, numpy_helper

from costmodel.ir.attributes import captured_names
from costmodel.ir.constants import dtype_name
from costmodel.ir.graph import TensorType
from costmodel.onnx_io.external_data import all_tensors, omitted_bytes, set_location
from costmodel.synthetic.values import synthetic_tensor, weight_start

__all__ = ["WEIGHTS_FILE", "with_synthetic_weights"]

WEIGHTS_FILE = "weights.bin"


def with_synthetic_weights(model: ModelProto) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """Returns a copy of a model for which synthetic weights replace omitted ones, and the weights for its session.

    Weights of the main graph are returned by name, and have to be given to the session of the copy; weights elsewhere,
    such as in subgraphs, are stored in the copy. Weights that no layer reads are left out: onnxruntime drops them
    before it looks for those that its session was given, and refuses what it does not find.
    """
    proto = ModelProto()
    proto.CopyFrom(model)
    weights = {}
    supplied = len(proto.graph.initializer)  # all_tensors begins with the initialisers of the main graph
    for position, tensor in enumerate(all_tensors(proto)):
        if not omitted_bytes(tensor):
            continue
        kind = TensorType(dtype_name(tensor.data_type), tuple(tensor.dims))
        values = _weight_values(kind, weight_start(position))
        if position < supplied:
            set_location(tensor, WEIGHTS_FILE)
            weights[tensor.name] = values
        else:  # onnxruntime accepts external weights for the main graph only
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    read = {port.name for port in proto.graph.output}
    for node in proto.graph.node:
        read.update(node.input, captured_names(node))
    for tensor in [tensor for tensor in proto.graph.initializer if tensor.name not in read]:
        proto.graph.initializer.remove(tensor)
        weights.pop(tensor.name, None)
    return proto, weights


def _weight_values(kind: TensorType, start: int) -> np.ndarray:
    """Returns values of a weight: positive, for roots and logarithms; small, so that no chain of products overflows."""
    values = synthetic_tensor(kind, positive=True, start=start)
    if values.dtype.kind in "iub":
        return values
    return np.asarray(values * values.dtype.type(max(1, kind.elements) ** -0.5), dtype=values.dtype)
