"""Loops of an operation on operands that are broadcast: how many elements one of them computes."""

from collections.abc import Sequence

__all__ = ["BROADCAST", "span"]

# Operators that combine operands element by element and repeat those with fewer.
BROADCAST = (
    "Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Max", "And", "Or", "Xor", "Equal", "Greater", "GreaterOrEqual", "Less",
    "LessOrEqual", "QLinearAdd", "QLinearMul",
)  # fmt: skip


def span(shapes: Sequence[Sequence[int]], output: Sequence[int], *, with_vectors: bool) -> int:
    """Returns how many elements of an output are computed in one loop over operands that are contiguous or constant.

    The loop covers the last axes along which each operand either has all elements or a single one. ONNX Runtime begins
    it at the last axis that is longer than 1, but at the first one of the operand with fewest axes at the latest: a
    single number that is added to a column, [100, 1], is added in 100 loops (`Broadcaster` in
    core/providers/cpu/math/element_wise_ops.h).

    Args:
        shapes: Shapes of the operands.
        output: Shape of the output.
        with_vectors: Whether the runtime leaves axes of length 1 out, as OpenVINO does.
    """
    span, state = 1, None
    begins = len(output) if with_vectors else max(1, min(map(len, shapes)))
    for back in range(1, len(output) + 1):
        size = output[-back]
        if size == 1 and state is None and back >= begins:
            break
        if size == 1:
            continue
        current = tuple(len(shape) >= back and shape[-back] != 1 for shape in shapes)
        if state is not None and current != state:
            break
        state = current
        span *= size
    return span
