"""Replaces sparse constants by dense ones without values, because a runtime makes them dense before it runs."""

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

from costmodel.ir.constants import OMITTED
from costmodel.ir.protobuf import messages

__all__ = ["make_dense"]


def make_dense(proto: ModelProto) -> None:
    """Replaces the sparse initialisers and sparse Constant values of a model, subgraphs and functions, in place.

    No sparse tensor may remain: a runtime reads its external values and indices to make it dense. The sparse values of
    other nodes are removed.
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
    dense.data_location = TensorProto.EXTERNAL
    dense.external_data.add(key="location", value=OMITTED)
    tensor.CopyFrom(dense)
