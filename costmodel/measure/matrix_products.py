"""A chain of matrix products, which probes of this machine run as a network of known work."""

from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["matrix_products"]


def matrix_products(rows: int, side: int, layers: int) -> LayerSequence:
    """Returns a chain of products of the shapes [rows, side] and [side, side], each with a matrix of its own."""
    between, weights = TensorType("float32", (rows, side)), TensorType("float32", (side, side))
    first = 1 + layers
    return LayerSequence(
        layers=tuple(
            SequenceLayer("MatMul", "", 1, {}, (first + i - 1 if i else 0, 1 + i), (first + i,)) for i in range(layers)
        ),
        values=(
            Value(between, "input"),
            *(Value(weights, "constant") for _ in range(layers)),
            *(Value(between, "internal") for _ in range(layers)),
        ),
        outputs=(first + layers - 1,),
    )
