"""Writes sparse constants as dense ones without values, because a runtime makes them dense before it runs."""

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

from costmodel.messages import messages
from costmodel.skim import OMITTED

__all__ = ["make_dense"]


def make_dense(proto: ModelProto) -> None:
    """Replace sparse initialisers and the sparse values of Constant nodes in place, in subgraphs and functions too.

    A runtime reads external values and indices when it makes a sparse tensor dense, so none may remain.
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
    dense = TensorProto(name=sparse.values.name, data_type=sparse.values.data_type, dims=sparse.dims)
    dense.data_location = TensorProto.EXTERNAL
    dense.external_data.add(key="location", value=OMITTED)
    tensor.CopyFrom(dense)
