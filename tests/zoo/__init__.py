"""The zoo: a tiny real model for each operator that ONNX Runtime runs on CPUs.

A model's name is that of its operator, with the domain, and after a slash what is special about it. The operator is
a layer of the lowered model, at one level of optimisation at least.
"""

from tests.zoo import (
    attention,
    classical,
    control,
    elementwise,
    images,
    indexing,
    matrices,
    opaque,
    quantised,
    reshaping,
)
from tests.zoo.specimen import Specimen

__all__ = ["ZOO", "Specimen"]

_ROOMS = (
    elementwise,
    reshaping,
    indexing,
    matrices,
    images,
    attention,
    quantised,
    classical,
    control,
    opaque,
)

ZOO: dict[str, Specimen] = {name: specimen for room in _ROOMS for name, specimen in room.SPECIMENS.items()}
