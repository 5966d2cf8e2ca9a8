"""Weights kept outside the model's file: checked, never opened unless their values shape the graph."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from onnx import ModelProto, TensorProto

from costmodel.constants import dtype_name
from costmodel.errors import ModelReadError
from costmodel.graph import ITEM_BYTES
from costmodel.messages import messages
from costmodel.skim import OMITTED, carries_values

__all__ = ["External", "all_tensors", "omitted_bytes", "set_location", "settle_external"]

# Where external data is looked for: beside the model's file, or nowhere, as for a file that a stranger sent.
External = Literal["beside", "absent"]

_VALUES = ("float_data", "int32_data", "string_data", "int64_data", "raw_data", "double_data", "uint64_data")
_SKIMMED = [("location", OMITTED)]  # what `skim` writes


def all_tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """Every tensor of a model, wherever it stands; the initialisers of the main graph come first."""
    return messages(proto, TensorProto)


def omitted_bytes(tensor: TensorProto) -> int:
    """Bytes of the values that a tensor does not carry; 0 if it carries them."""
    return _declared_bytes(tensor) if tensor.data_location == TensorProto.EXTERNAL else 0


def _declared_bytes(tensor: TensorProto) -> int:
    elements = math.prod(int(size) for size in tensor.dims)
    return math.ceil(elements * ITEM_BYTES.get(dtype_name(tensor.data_type), 8))


def set_location(tensor: TensorProto, location: str) -> None:
    """Make `tensor` one whose values lie at the beginning of the file `location`."""
    del tensor.external_data[:]
    for key, text in (("location", location), ("offset", "0"), ("length", str(omitted_bytes(tensor)))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text


def settle_external(
    tensors: Iterable[TensorProto], title: str, folder: Path | None, external: External = "beside"
) -> list[str]:
    """Read small external values into `tensors`; mark the rest as left out, wherever they lie.

    Small ones are read because fusions and shapes depend on them; see `costmodel.skim`. Afterwards no tensor names a
    file: a value is in its tensor or at the location `OMITTED`.

    Args:
        tensors: All tensors of a model, with sane shapes.
        title: Name of the model, for errors.
        folder: Where the model's file lies; None for a model in memory, whose weight files cannot be found.
        external: "absent" opens no file, whatever the tensors name.

    Returns:
        The locations whose weights are absent.

    Raises:
        ModelReadError: A weight file lies outside `folder`, or is shorter than the model says.
    """
    absent: dict[str, None] = {}
    for tensor in tensors:
        if tensor.data_location != TensorProto.EXTERNAL:
            del tensor.external_data[:]
            continue
        # Protobuf hands over text that is no UTF-8 as bytes.
        entries = {str(entry.key): str(entry.value) for entry in tensor.external_data}
        location = entries.get("location", "")
        if location != OMITTED:
            file = _weight_file(title, folder, location) if external == "beside" else None
            if file is None:
                absent[location] = None
            elif carries_values(tensor.data_type, _declared_bytes(tensor)):
                _embed(tensor, title, file, entries)
                continue
        _omit(tensor)
    return sorted(absent)


def _omit(tensor: TensorProto) -> None:
    """Leave out the values of `tensor`, those that it carries in spite of its location included."""
    for field in _VALUES:
        tensor.ClearField(field)
    if omitted_bytes(tensor) == 0:  # there is nothing to leave out, and nothing to look for elsewhere
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]
    elif [(entry.key, entry.value) for entry in tensor.external_data] != _SKIMMED:
        set_location(tensor, OMITTED)


def _weight_file(title: str, folder: Path | None, location: str) -> Path | None:
    """The file at `location` if it is there."""
    if folder is None:
        return None
    folder = folder.resolve()
    try:
        file = (folder / location).resolve()
        if location and file.is_relative_to(folder):
            return file if file.is_file() else None
    except (OSError, ValueError):  # a name that no file can have
        pass
    raise ModelReadError(
        f"{title} keeps weights at {location!r}, outside its own folder: move them beside the model and export again"
    )


def _embed(tensor: TensorProto, title: str, file: Path, entries: Mapping[str, str]) -> None:
    size = _declared_bytes(tensor)
    try:
        with file.open("rb") as stream:
            stream.seek(int(entries.get("offset") or "0"))
            data = stream.read(size)
    except (OSError, ValueError) as error:
        raise ModelReadError(f"{title} points into {file.name} in a way that cannot be read: {error}") from error
    if len(data) != size:
        raise ModelReadError(f"{title} needs more of {file.name} than there is: copy the weights again")
    tensor.raw_data = data
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]
