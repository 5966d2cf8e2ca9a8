"""Parses and validates the layer graphs and layer sequences in requests of untrusted clients (with pydantic)."""

from math import prod
from typing import Annotated, Any, Literal, Required, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator, with_config
from typing_extensions import TypeAliasType, TypedDict

from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.serving.validation.attributes import fault_of_attribute
from costmodel.serving.validation.tensors import fault_of_data, fault_of_type
from costmodel.serving.wire.fields import Described, Dimension, DType, Signature, Strict, Text

__all__ = ["KnownSequence", "WireGraph", "WireSequence"]

_MOST_LAYERS_IN_SEQUENCE = 1000
# Maximum number of inputs and outputs of all layers of a sequence; the time to price it is linear in that number.
_MOST_ENDS_IN_SEQUENCE = 50_000

Shape = Annotated[list[Dimension], Field(max_length=32)]
# A named alias becomes a class of its own in generated clients.
Role = TypeAliasType("Role", Literal["input", "constant", "internal"])


@with_config(ConfigDict(extra="forbid"))
class WireTensor(TypedDict, total=False):
    """A tensor that is the value of an attribute; its data is given only if the tensor is small."""

    dtype: Required[DType]
    shape: Required[Shape]
    data: list[Any] | None


@with_config(ConfigDict(extra="forbid", json_schema_extra={"minProperties": 1, "maxProperties": 1}))
class WireAttribute(TypedDict, total=False):
    """An attribute of a layer: an object with exactly one key, which names the kind of the value, such as "ints"."""

    i: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
    f: float
    s: str
    ints: list[Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]]
    floats: list[float]
    strings: list[str]
    t: WireTensor
    g: Annotated[str, Field(description="A subgraph: base64 of a GraphProto.")]


def _checked(attributes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    for name, content in attributes.items():
        fault = fault_of_attribute(name, content)
        if fault is not None:
            raise ValueError(f"the attribute {name[:80]!r} {fault}")
    return attributes


# Attributes are checked against their operator when the layers are sequences: see `costmodel.serving.validation`.
Attributes = Annotated[dict[str, dict[str, Any]], AfterValidator(_checked), Described(dict[str, WireAttribute])]


class WireLayer(Strict):
    """One layer of a graph of layers: a node as the runtime executes it."""

    name: Text
    op: Annotated[str, Field(min_length=1, max_length=128)]
    domain: Annotated[str, Field(max_length=128)] = ""
    since: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 1
    attrs: Attributes = Field(default_factory=dict)
    inputs: Annotated[list[Text], Field(alias="in", max_length=10_000)]
    outputs: Annotated[list[Text], Field(alias="out", min_length=1, max_length=10_000)]
    captured: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 0
    sources: list[Text] = Field(default_factory=list)


WireType = tuple[DType, Shape, Annotated[bool, Field(strict=True)]]


Bytes = Annotated[int, Field(ge=0, lt=2**62, strict=True)]


NameLength = Annotated[int, Field(ge=0, le=100_000, strict=True)]
Rank = Annotated[int, Field(ge=0, le=1_000, strict=True)]


class WireSourceWeights(Strict):
    """Sizes of the constants of a source model, before the runtime rewrote them."""

    stored: Annotated[dict[Text, Bytes], Field(description="Bytes of each constant that the model contains.")]
    folded: Annotated[dict[Text, Bytes], Field(description="Bytes of each value that follows from constants alone.")]
    nodes: Annotated[
        int | None,
        Field(ge=0, le=10**9, strict=True, description="Number of nodes; without it, no load time is predicted."),
    ] = None
    dropped: Annotated[
        list[Text], Field(description="Names of the values of which nothing is left but what is folded from them.")
    ] = Field(default_factory=list)
    labels: Annotated[
        dict[Text, tuple[NameLength, Rank]],
        Field(description="Length of the name in bytes, and number of dimensions, of each constant."),
    ] = Field(default_factory=dict)
    copied: Annotated[
        dict[Text, list[Bytes]],
        Field(description="Bytes of each constant of which the runtime makes a copy while it folds a value."),
    ] = Field(default_factory=dict)


class WireGraph(Strict):
    """The layers of a model in execution order, without weights, as `costmodel lower --json` prints them."""

    layers: Annotated[list[WireLayer], Field(min_length=1)]
    types: Annotated[
        dict[str, WireType],
        Field(description="For each value: element type, shape, and whether its layout is blocked."),
    ]
    constants: Annotated[
        dict[str, list[Any] | None], Field(description="Data of small integer constants; null for weights.")
    ] = Field(default_factory=dict)
    inputs: list[Text] = Field(default_factory=list)
    outputs: list[Text] = Field(default_factory=list)
    opset: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 21
    data_dependent: list[Text] = Field(default_factory=list)
    source_weights: Annotated[
        WireSourceWeights | None, Field(description="Sharpens the peak memory; by default the weights of the layers.")
    ] = None

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        made = set(self.inputs) | self.constants.keys()
        for layer in self.layers:
            if not any(layer.outputs):
                raise ValueError(f"the layer {layer.name} has no output")
            if layer.captured > len(layer.inputs):
                raise ValueError(f"the layer {layer.name} captures more values than it reads")
            for name in layer.inputs:
                if name and name not in made:
                    raise ValueError(f"the layer {layer.name} reads {name}, which nothing before it produces")
            for name in filter(None, layer.outputs):
                if name in made:
                    raise ValueError(f"{name} is produced twice")
                made.add(name)
        missing = made - self.types.keys()
        if missing:
            raise ValueError(f"{min(missing)} has no type")
        for name, (dtype, shape, _) in self.types.items():
            data = self.constants.get(name)
            fault = fault_of_type(dtype, shape)
            if fault is None and data is not None:
                fault = fault_of_data(dtype, prod(shape), data)
            if fault is not None:
                raise ValueError(f"{name[:80]} {fault}")
        for name in self.outputs:
            if name not in made:
                raise ValueError(f"the output {name} is produced by no layer")
        return self

    def to_dict(self) -> dict[str, Any]:
        """Returns the graph as JSON-serialisable data that `LayerGraph.from_dict` reads, with defaults filled in."""
        return self.model_dump(by_alias=True)


class WireSequenceLayer(Strict):
    """One layer of a sequence; inputs and outputs are indices into the values of the sequence, -1 for an absent one."""

    op: Annotated[str, Field(min_length=1, max_length=128)]
    domain: Annotated[str, Field(max_length=128)] = ""
    since: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 1
    attrs: Attributes = Field(default_factory=dict)
    inputs: Annotated[list[Annotated[int, Field(ge=-1, strict=True)]], Field(alias="in")]
    outputs: Annotated[list[Annotated[int, Field(ge=-1, strict=True)]], Field(alias="out", min_length=1)]
    captured: Annotated[int, Field(ge=0, strict=True)] = 0


class WireSequence(Strict):
    """A layer sequence in canonical form, as the file that `costmodel export` writes contains it."""

    layers: Annotated[list[WireSequenceLayer], Field(min_length=1, max_length=_MOST_LAYERS_IN_SEQUENCE)]
    values: list[
        tuple[
            DType, Shape, Annotated[int, Field(ge=0, le=1, strict=True)],
            Role, list[Any] | None,
        ]
    ]  # fmt: skip
    outputs: Annotated[list[Annotated[int, Field(ge=0, strict=True)]], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        ends = sum(len(layer.inputs) + len(layer.outputs) for layer in self.layers)
        if ends > _MOST_ENDS_IN_SEQUENCE:
            raise ValueError(f"its layers have {ends} inputs and outputs, and {_MOST_ENDS_IN_SEQUENCE} are accepted")
        return self

    def to_sequence(self) -> LayerSequence:
        """Returns the sequence as a `LayerSequence`, without checking that it is consistent.

        The functions of `costmodel.serving.validation` check that.
        """
        return LayerSequence(
            tuple(
                SequenceLayer(
                    layer.op, layer.domain, layer.since, layer.attrs, tuple(layer.inputs), tuple(layer.outputs),
                    layer.captured,
                )
                for layer in self.layers
            ),
            tuple(
                Value(
                    TensorType(dtype, tuple(shape), bool(blocked)), role, None if data is None else tuple(data)
                )
                for dtype, shape, blocked, role, data in self.values
            ),
            tuple(self.outputs),
        )  # fmt: skip


class KnownSequence(Strict):
    """A layer sequence that is in the results store, given by its signature."""

    signature: Signature
