"""Argument constraints: which arguments of layers need particular values, and which values.

For example, indices must lie within the tensor that they index, and the shape argument of a Reshape must lead to the
output shape that the layer sequence records.
"""

import numpy as np

from costmodel.ir.layer_view import LayerView
from costmodel.synthetic import contrib_args, index_args, shape_args

__all__ = ["is_constrained", "required_values"]

# Rules, by operator and position, for required values: with any others the layer fails or does different work.
_REQUIRED = {**index_args.REQUIRED, **shape_args.REQUIRED, **contrib_args.REQUIRED}
# Rules for preferred values: any others work too, but these are more realistic.
_PREFERRED = {**index_args.PREFERRED, **contrib_args.PREFERRED}


def required_values(view: LayerView, slot: int) -> np.ndarray | None:
    """Returns values for the argument of a layer at position `slot`; None if the argument may have any values.

    The shape of the values broadcasts to the shape of the argument.
    """
    rule = _REQUIRED.get((view.op_type, slot)) or _PREFERRED.get((view.op_type, slot))
    if rule is None and view.op_type == "Loop":
        return index_args.loop_end(view, slot)
    return rule(view) if rule is not None else None


def is_constrained(op_type: str, slot: int) -> bool:
    """Returns whether an argument needs particular values, so that a runnable network must not compute it itself.

    If a layer of the network computed the argument from synthetic inputs, its values would be arbitrary.
    """
    return (op_type, slot) in _REQUIRED
