"""The description of a model in the zoo."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx.parser
from onnx import ModelProto, helper, numpy_helper

from costmodel.ir.constants import data_type_of
from costmodel.ir.graph import TensorType
from costmodel.synthetic.values import synthetic_tensor

__all__ = ["Specimen"]

_OTHER_DOMAINS = {"com.microsoft": 1, "com.microsoft.nchwc": 1}


@dataclass(frozen=True)
class Specimen:
    """A tiny model around one operator, in ONNX's own text form without its header.

    Attributes:
        text: Graph in text form, such as "(float[2] x) => (float[2] y) { y = Relu(x) }".
        opset: Opset version of ONNX's own operators.
        weights: Element type and shape of the constants, by name.
        ml: Opset version of ai.onnx.ml.
    """

    text: str
    opset: int = 21
    weights: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    ml: int = 3

    def model(self) -> ModelProto:
        """The model; its weights are positive, because scales must be."""
        imports = {"": self.opset, "ai.onnx.ml": self.ml, **_OTHER_DOMAINS}
        listed = ", ".join(f'"{domain}" : {version}' for domain, version in imports.items())
        proto = onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{listed}]> tiny {self.text}")
        for name, (dtype, shape) in self.weights.items():
            values = synthetic_tensor(TensorType(dtype, shape), positive=True)
            if dtype == "int32":
                values = np.zeros(shape, dtype)
            if dtype in ("int4", "uint4"):
                raw = np.zeros(-(-values.size // 2), np.uint8).tobytes()
                proto.graph.initializer.append(helper.make_tensor(name, data_type_of(dtype), shape, raw, raw=True))
            else:
                proto.graph.initializer.append(numpy_helper.from_array(values, name))
        return proto
