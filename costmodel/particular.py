"""Arguments that must have particular values: indices lie within what they index, shapes say what was recorded."""

import numpy as np

from costmodel import contributed, extents, indices
from costmodel.call import Call

__all__ = ["must_be_fed", "particular_values"]

# Arguments, by operator and position, on arbitrary values of which the layer fails or does other work.
_REQUIRED = {**indices.REQUIRED, **extents.REQUIRED, **contributed.REQUIRED}
# Arguments on which any values do, and these are nearer to real ones.
_PREFERRED = {**indices.PREFERRED, **extents.PREFERRED, **contributed.PREFERRED}


def particular_values(call: Call, slot: int) -> np.ndarray | None:
    """Values for one argument, of a shape that broadcasts to its own; None where any values do."""
    rule = _REQUIRED.get((call.op_type, slot)) or _PREFERRED.get((call.op_type, slot))
    return rule(call) if rule is not None else None


def must_be_fed(op_type: str, slot: int) -> bool:
    """Whether a layer fails on arbitrary values of an argument, so that what computes it cannot run in its stead."""
    return (op_type, slot) in _REQUIRED
