"""Graphs of layers and layer sequences as strangers send them: checked before anything is made of them."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from costmodel.graph import ITEM_BYTES, TensorType
from costmodel.sequence import LayerSequence, SequenceLayer, Value
from costmodel.serving.wire.fields import Dimension, DType, Signature, Strict, Text
from costmodel.shapes import MAX_TENSOR_BYTES

__all__ = ["KnownSequence", "WireGraph", "WireSequence"]

_MOST_LAYERS_IN_SEQUENCE = 1000


class WireLayer(Strict):
    """One node as the runtime executes it."""

    name: Text
    op: Annotated[str, Field(min_length=1, max_length=128)]
    domain: Annotated[str, Field(max_length=128)] = ""
    since: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 1
    attrs: dict[str, dict[str, Any]] = Field(default_factory=dict)
    inputs: Annotated[list[Text], Field(alias="in", max_length=10_000)]
    outputs: Annotated[list[Text], Field(alias="out", min_length=1, max_length=10_000)]
    captured: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 0
    sources: list[Text] = Field(default_factory=list)


WireType = tuple[DType, Annotated[list[Dimension], Field(max_length=32)], Annotated[bool, Field(strict=True)]]


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
    attrs: dict[str, dict[str, Any]] = Field(default_factory=dict)
    inputs: Annotated[list[Annotated[int, Field(ge=-1, strict=True)]], Field(alias="in")]
    outputs: Annotated[list[Annotated[int, Field(ge=-1, strict=True)]], Field(alias="out", min_length=1)]
    captured: Annotated[int, Field(ge=0, strict=True)] = 0


class WireSequence(Strict):
    """A layer sequence in canonical form, as `costmodel decompose --json` and exports have it."""

    layers: Annotated[list[WireSequenceLayer], Field(min_length=1, max_length=_MOST_LAYERS_IN_SEQUENCE)]
    values: list[
        tuple[
            DType, Annotated[list[Dimension], Field(max_length=32)], Literal[0, 1],
            Literal["input", "constant", "internal"], list[Any] | None,
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
