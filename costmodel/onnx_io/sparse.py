"""Replaces sparse constants by dense ones, as a runtime does before the model runs.

The dense constants have a type and a shape but no data, because costs do not depend on the values of weights.
"""

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

from costmodel.ir.constants import mark_omitted
from costmodel.ir.protobuf import messages

__all__ = ["make_dense"]


def make_dense(proto: ModelProto) -> None:
    """Replaces sparse initialisers and the values of sparse Constant nodes everywhere in a model, in place.

    No sparse tensor may remain, because a runtime would open the files with its external values and indices to make it
    dense. Therefore sparse attributes of nodes other than Constant are removed.
    """
    if next(messages(proto, SparseTensorProto), None) is None:
        return
    for graph in list(messages(proto, GraphProto)):
        for sparse in graph.sparse_initializer:
            _write_dense(sparse, graph.initializer.add())
        del graph.sparse_initializer[:]
    for node in messages(proto, NodeProto):
        for attribute in node.attribute:
            if not attribute.HasField("sparse_tensor"):
                continue
            if node.op_type == "Constant" and attribute.type == AttributeProto.SPARSE_TENSOR:
                attribute.name, attribute.type = "value", AttributeProto.TENSOR
                _write_dense(attribute.sparse_tensor, attribute.t)
            attribute.ClearField("sparse_tensor")


def _write_dense(sparse: SparseTensorProto, tensor: TensorProto) -> None:
    """Makes `tensor` a dense tensor of the same name, type and shape as `sparse`, its values marked as omitted."""
    dense = TensorProto(name=sparse.values.name, data_type=sparse.values.data_type, dims=sparse.dims)
    mark_omitted(dense)
    tensor.CopyFrom(dense)
