"""Fields that requests have in common, each with its limits."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import TypeAliasType

from costmodel.graph import ITEM_BYTES, OPAQUE

__all__ = [
    "Batch", "Composition", "DType", "Described", "Digest", "Dimension", "Granularity", "Microseconds", "Name",
    "Signature", "Strict", "SystemName", "Text", "Version",
]  # fmt: skip

# Text that every database and every terminal takes: no control characters, no halves of surrogate pairs.
_PRINTABLE = r"^[^\x00-\x1f\x7f\u2028\u2029]*$"
Name = Annotated[str, Field(min_length=1, max_length=256, pattern=_PRINTABLE)]
SystemName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Version = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", description="Content hash of a model seen before.")]
Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Dimension = Annotated[int, Field(ge=0, le=2**31 - 1, strict=True)]
Batch = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
Granularity = Annotated[int, Field(ge=1, le=1000, strict=True)]
Composition = Annotated[
    str,
    Field(
        pattern=r"^(sequential|parallel|workers:[1-9][0-9]{0,3})$",
        description="sequential (sum), parallel (critical path) or workers:N.",
    ),
]
Microseconds = Annotated[float, Field(ge=1e-3, le=1e15, allow_inf_nan=False, strict=True)]


def _known_type(dtype: str) -> str:
    if dtype not in _DTYPES:
        raise ValueError(f"{dtype!r} is no element type")
    return dtype


_DTYPES = frozenset(ITEM_BYTES) | OPAQUE
# An alias with a name has a class of its own in clients that are generated.
DType = TypeAliasType(
    "DType", Annotated[str, AfterValidator(_known_type), Field(json_schema_extra={"enum": sorted(_DTYPES)})]
)
Text = Annotated[str, Field(max_length=4096, pattern=_PRINTABLE)]


class Strict(BaseModel):
    """A part of a request: what is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Described:
    """Gives a field the JSON schema of another type, against which it is checked elsewhere.

    Entries of a list can so be checked one by one, each with an error of its own.
    """

    def __init__(self, kind: Any) -> None:
        """Describe a field.

        Args:
            kind: The other type.
        """
        self._kind = kind

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema of the field, with the parts of the other type in place of its own."""
        return handler(core_schema) | handler(TypeAdapter(self._kind).core_schema)
