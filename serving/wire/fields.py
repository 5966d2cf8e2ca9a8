"""Types of fields that several JSON requests of the HTTP API share, each with limits on the values."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import TypeAliasType

from costmodel.ir.graph import ITEM_BYTES, OPAQUE

__all__ = [
    "Batch", "Composition", "DType", "Described", "Digest", "Dimension", "Granularity", "Microseconds", "Name",
    "Signature", "Strict", "SystemName", "Text", "Version",
]  # fmt: skip

# Text that is safe for every database and terminal: no control characters, no half surrogate pairs.
_PRINTABLE = r"^[^\x00-\x1f\x7f\u2028\u2029]*$"
Name = Annotated[str, Field(min_length=1, max_length=256, pattern=_PRINTABLE)]
SystemName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Version = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Digest = Annotated[
    str, Field(pattern=r"^sha256:[0-9a-f]{64}$", description="Digest of a model: sha256: and 64 hexadecimal digits.")
]
Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Dimension = Annotated[int, Field(ge=0, le=2**31 - 1, strict=True)]
Batch = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
Granularity = Annotated[int, Field(ge=1, le=1000, strict=True)]
Composition = Annotated[
    str,
    Field(
        pattern=r"^(sequential|parallel|workers:[1-9][0-9]{0,3})$",
        description="Composition rule: sequential (sum), parallel (critical path) or workers:N.",
    ),
]
Microseconds = Annotated[float, Field(ge=1e-3, le=1e15, allow_inf_nan=False, strict=True)]


def _known_type(dtype: str) -> str:
    if dtype not in _DTYPES:
        raise ValueError(f"{dtype!r} is no element type")
    return dtype


_DTYPES = frozenset(ITEM_BYTES) | OPAQUE
# A named alias becomes a class of its own in generated clients.
DType = TypeAliasType(
    "DType", Annotated[str, AfterValidator(_known_type), Field(json_schema_extra={"enum": sorted(_DTYPES)})]
)
Text = Annotated[str, Field(max_length=4096, pattern=_PRINTABLE)]


class Strict(BaseModel):
    """Base class of the pydantic classes for JSON requests and their parts: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Described:
    """Annotation that gives a pydantic field the JSON schema of a type as which its value is validated later.

    Thus the entries of a list can be validated one by one, so that each invalid entry gets an error of its own.
    """

    def __init__(self, kind: Any) -> None:
        """Creates the annotation.

        Args:
            kind: Type whose JSON schema the field gets.
        """
        self._kind = kind

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Returns the field's own JSON schema merged with that of the annotation's type, whose keys take precedence."""
        return handler(core_schema) | handler(TypeAdapter(self._kind).core_schema)
