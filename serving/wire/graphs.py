"""Graphs of layers and layer sequences as strangers send them: checked before anything is made of them."""

from typing import Annotated, Any, Literal, Required, Self

from pydantic import ConfigDict, Field, model_validator, with_config
from typing_extensions import TypeAliasType, TypedDict

from costmodel.graph import ITEM_BYTES, TensorType
from costmodel.sequence import LayerSequence, SequenceLayer, Value
from costmodel.serving.wire.fields import Described, Dimension, DType, Signature, Strict, Text
from costmodel.shapes import MAX_TENSOR_BYTES

__all__ = ["KnownSequence", "WireGraph", "WireSequence"]

_MOST_LAYERS_IN_SEQUENCE = 1000

Shape = Annotated[list[Dimension], Field(max_length=32)]
# Aliases with names have classes of their own in clients that are generated.
Role = TypeAliasType("Role", Literal["input", "constant", "internal"])


@with_config(ConfigDict(extra="forbid"))
class WireTensor(TypedDict, total=False):
    """A tensor in an attribute; data only where it is small."""

    dtype: Required[DType]
    shape: Required[Shape]
    data: list[Any] | None


@with_config(ConfigDict(extra="forbid", json_schema_extra={"minProperties": 1, "maxProperties": 1}))
class WireAttribute(TypedDict, total=False):
    """An attribute of a layer, under its kind: exactly one of these."""

    i: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
    f: float
    s: str
    ints: list[Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]]
    floats: list[float]
    strings: list[str]
    t: WireTensor
    g: Annotated[str, Field(description="A subgraph: base64 of a GraphProto.")]


# What they may hold depends on the operator: see `costmodel.checking`.
Attributes = Annotated[dict[str, dict[str, Any]], Described(dict[str, WireAttribute])]


class WireLayer(Strict):
    """One node as the runtime executes it."""

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


class WireGraph(Strict):
    """The layers of a model in execution order, as `costmodel lower --json` prints them: without weights."""

    layers: Annotated[list[WireLayer], Field(min_length=1)]
    types: Annotated[dict[str, WireType], Field(description="dtype, shape and whether blocked, of each value.")]
    constants: Annotated[
        dict[str, list[Any] | None], Field(description="Data of small integer ones; null for weights.")
    ] = Field(default_factory=dict)
    inputs: list[Text] = Field(default_factory=list)
    outputs: list[Text] = Field(default_factory=list)
    opset: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 21
    data_dependent: list[Text] = Field(default_factory=list)

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        made = set(self.inputs) | self.constants.keys()
        for layer in self.layers:
            if not any(layer.outputs):
                raise ValueError(f"the layer {layer.name} has no output")
            if layer.captured > len(layer.inputs):
                raise ValueError(f"the layer {layer.name} captures more values than it reads")
            for name in layer.inputs:
                if name and name not in made:
                    raise ValueError(f"the layer {layer.name} reads {name}, which nothing before it makes")
            for name in filter(None, layer.outputs):
                if name in made:
                    raise ValueError(f"{name} is made twice")
                made.add(name)
        missing = made - self.types.keys()
        if missing:
            raise ValueError(f"{min(missing)} has no type")
        for name, (dtype, shape, _) in self.types.items():
            _check_size(name, dtype, shape)
        for name in self.outputs:
            if name not in made:
                raise ValueError(f"the output {name} is made by no layer")
        return self

    def to_dict(self) -> dict[str, Any]:
        """The graph as `LayerGraph.from_dict` reads it, with all defaults written out."""
        return self.model_dump(by_alias=True)


class WireSequenceLayer(Strict):
    """One layer of a sequence; inputs and outputs are positions in the sequence's values, -1 where absent."""

    op: Annotated[str, Field(min_length=1, max_length=128)]
    domain: Annotated[str, Field(max_length=128)] = ""
    since: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 1
    attrs: Attributes = Field(default_factory=dict)
    inputs: Annotated[list[Annotated[int, Field(ge=-1, strict=True)]], Field(alias="in")]
    outputs: Annotated[list[Annotated[int, Field(ge=-1, strict=True)]], Field(alias="out", min_length=1)]
    captured: Annotated[int, Field(ge=0, strict=True)] = 0


class WireSequence(Strict):
    """A layer sequence in canonical form, as `costmodel decompose --json` and exports have it."""

    layers: Annotated[list[WireSequenceLayer], Field(min_length=1, max_length=_MOST_LAYERS_IN_SEQUENCE)]
    values: list[
        tuple[
            DType, Shape, Annotated[int, Field(ge=0, le=1, strict=True)],
            Role, list[Any] | None,
        ]
    ]  # fmt: skip
    outputs: Annotated[list[Annotated[int, Field(ge=0, strict=True)]], Field(min_length=1)]

    def to_sequence(self) -> LayerSequence:
        """The sequence as the domain has it, whether it hangs together or not: see `costmodel.checking`."""
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
    """A layer sequence that the store has."""

    signature: Signature


def _check_size(what: str, dtype: str, shape: list[int]) -> None:
    kind = TensorType(dtype, tuple(shape))
    if kind.elements * ITEM_BYTES.get(dtype, 8) > MAX_TENSOR_BYTES:
        raise ValueError(f"{what} has the absurd shape {shape}: no machine holds it")
