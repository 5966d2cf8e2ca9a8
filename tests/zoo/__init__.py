"""The zoo: a tiny model for each operator that ONNX Runtime runs on CPUs.

The name of a model is that of its operator, with the domain; a suffix after a slash names the variant. The operator is
a layer of the lowered model at one optimisation level at least.
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

_MODULES = (
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

ZOO: dict[str, Specimen] = {name: specimen for module in _MODULES for name, specimen in module.SPECIMENS.items()}
