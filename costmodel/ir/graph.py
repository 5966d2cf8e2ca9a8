"""Graph of the layers that a runtime executes, in canonical form.

The canonical form has logical shapes and does not depend on a machine's vector width. A tensor that the runtime keeps
in a blocked (NCHWc) layout has its logical shape here, without padding, and is marked `blocked`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from costmodel.ir.source_weights import SourceWeights

__all__ = ["FUSED_PRODUCT", "ITEM_BYTES", "OPAQUE", "Attributes", "Layer", "LayerGraph", "TensorType"]

# An attribute is one of {"i": int}, {"f": float}, {"s": str}, {"ints": [...]}, {"floats": [...]},
# {"strings": [...]}, {"t": tensor}, {"g": subgraph}; see costmodel.ir.attributes.
Attributes = Mapping[str, Mapping[str, Any]]

ITEM_BYTES = {
    "bool": 1, "int4": 0.5, "uint4": 0.5, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
    "int2": 0.25, "uint2": 0.25, "float4_e2m1fn": 0.5, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1,
    "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip

# Types that are not tensors of numbers. A value of such a type is produced and read within one layer sequence and never
# fed to it. All types but strings have the shape (); the contents follow from the layers that produce them.
OPAQUE = frozenset({"string", "sequence", "optional", "map"})

# What the runtime appends to the name of a product with which it fuses the addition of a bias.
FUSED_PRODUCT = "/MatMulAddFusion"


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type, shape and layout of a tensor.

    Attributes:
        dtype: NumPy name of the element type ("float32", "int64", "bool", ...); for anything but a tensor of numbers,
            one of `OPAQUE`, such as "sequence".
        shape: Logical dimensions, all of them known.
        blocked: Whether the runtime keeps the tensor in a channel-blocked layout.
    """

    dtype: str
    shape: tuple[int, ...]
    blocked: bool = False

    @property
    def elements(self) -> int:
        """Number of elements of the logical shape, without padding."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the logical elements in bytes, without the padding of a blocked layout; 0 if `opaque`."""
        return 0 if self.opaque else int(self.elements * ITEM_BYTES[self.dtype])

    @property
    def opaque(self) -> bool:
        """Whether the type is not a tensor of numbers, so that its values cannot be fed to a runnable network."""
        return self.dtype in OPAQUE


@dataclass(frozen=True, slots=True)
class Layer:
    """One node as the runtime executes it.

    Attributes:
        name: Name of the node in the runtime, without numbers that differ from run to run.
        op_type: Operator, for example "Conv".
        domain: Operator domain, "" for ONNX's own.
        since: Version of the operator (see `costmodel.ir.operators.since_version`).
        attributes: Attributes in canonical form (see `costmodel.ir.operators.canonical_attributes`).
        inputs: Names of the values read; "" for an absent optional input. Values that a subgraph captures come last.
        outputs: Names of the values produced; "" for an absent optional output.
        num_captured: Number of inputs, counted from the end, that are captured by subgraphs.
        sources: Names of the nodes of the source model that the layer was made from, if the runtime keeps names.
    """

    name: str
    op_type: str
    domain: str
    since: int
    attributes: Attributes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    num_captured: int = 0
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """The layers of one model in execution order.

    Attributes:
        layers: Layers, topologically sorted.
        types: Type of every value that a layer reads or writes.
        constants: Data of each value that is known before the model runs, by name: a tuple of numbers if these
            determine the work (as those of Reshape, Slice, Pad and Resize do), None for a weight.
        inputs: Names of the model's inputs.
        outputs: Names of the model's outputs.
        opset: Version of ONNX's own operators in the source model.
        data_dependent: Names of the values whose shape could only be found by running the model once.
        source_weights: Sizes of the weights before the runtime rewrote them; None if they are not known.
    """

    layers: tuple[Layer, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, tuple[Any, ...] | None]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int
    data_dependent: frozenset[str] = frozenset()
    source_weights: SourceWeights | None = None

    def anonymous(self) -> "LayerGraph":
        """Returns a copy with numbered names ("layer0", "v0"), which can be priced without revealing its origin.

        What the runtime itself appended to names stays, because the order of packing follows from it.
        """
        names = [*self.inputs, *self.constants, *(name for layer in self.layers for name in layer.outputs if name)]
        number = {name: f"v{place}" for place, name in enumerate(dict.fromkeys(names))} | {"": ""}
        return LayerGraph(
            layers=tuple(
                replace(
                    layer,
                    name=f"layer{place}" + FUSED_PRODUCT * (FUSED_PRODUCT in layer.name),
                    inputs=tuple(number[name] for name in layer.inputs),
                    outputs=tuple(number[name] for name in layer.outputs),
                    sources=(),
                )
                for place, layer in enumerate(self.layers)
            ),
            types={number[name]: kind for name, kind in self.types.items() if name in number},
            constants={number[name]: data for name, data in self.constants.items()},
            inputs=tuple(number[name] for name in self.inputs),
            outputs=tuple(number[name] for name in self.outputs),
            opset=self.opset,
            data_dependent=frozenset(number[name] for name in self.data_dependent if name in number),
            source_weights=self.source_weights and self.source_weights.renamed(number),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the graph as a JSON-serialisable dictionary, which `from_dict` reads."""
        data: dict[str, Any] = {
            "layers": [
                {
                    "name": layer.name,
                    "op": layer.op_type,
                    "domain": layer.domain,
                    "since": layer.since,
                    "attrs": dict(layer.attributes),
                    "in": layer.inputs,
                    "out": layer.outputs,
                    "captured": layer.num_captured,
                    "sources": layer.sources,
                }
                for layer in self.layers
            ],
            "types": {name: [t.dtype, t.shape, t.blocked] for name, t in self.types.items()},
            "constants": dict(self.constants),
            "inputs": self.inputs,
            "outputs": self.outputs,
            "opset": self.opset,
            "data_dependent": sorted(self.data_dependent),
        }
        if self.source_weights is not None:
            data["source_weights"] = self.source_weights.to_dict()
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LayerGraph":
        """Returns the graph that `to_dict` wrote as the dictionary `data`."""
        return cls(
            layers=tuple(
                Layer(
                    name=item["name"],
                    op_type=item["op"],
                    domain=item["domain"],
                    since=item["since"],
                    attributes=item["attrs"],
                    inputs=tuple(item["in"]),
                    outputs=tuple(item["out"]),
                    num_captured=item["captured"],
                    sources=tuple(item["sources"]),
                )
                for item in data["layers"]
            ),
            types={name: TensorType(t[0], tuple(t[1]), t[2]) for name, t in data["types"].items()},
            constants={name: None if v is None else tuple(v) for name, v in data["constants"].items()},
            inputs=tuple(data["inputs"]),
            outputs=tuple(data["outputs"]),
            opset=data["opset"],
            data_dependent=frozenset(data["data_dependent"]),
            source_weights=None
            if (weights := data.get("source_weights")) is None
            else SourceWeights.from_dict(weights),
        )
