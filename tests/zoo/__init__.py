"""The zoo: a tiny model for each operator that ONNX Runtime runs on CPUs.

The name of a model is that of its operator, with the domain; a suffix after a slash names the variant. The operator is
a layer of the lowered model at one optimisation level at least.
"""

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

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

__all__ = ["OTHER_PROCESSORS", "ZOO", "Specimen"]

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

_ALL: dict[str, Specimen] = {name: specimen for module in _MODULES for name, specimen in module.SPECIMENS.items()}


def _has_kernel(specimen: Specimen) -> bool:
    """Whether the runtime has a kernel of a specimen's operator for this processor."""
    try:
        onnxruntime.InferenceSession(specimen.model().SerializeToString(), providers=["CPUExecutionProvider"])
    except Fail as error:
        if "not yet supported on this hardware platform" not in str(error):
            raise
        return False
    return True


# Operators that the runtime loads on some processors only: 4-bit floats need AVX-512 or an Arm processor.
OTHER_PROCESSORS = {name for name in ("com.microsoft.MatMulFpQ4",) if not _has_kernel(_ALL[name])}
ZOO = {name: specimen for name, specimen in _ALL.items() if name not in OTHER_PROCESSORS}
