"""External data: weights stored in files beside the model.

Every reference to a weight file is checked to stay in the folder of the model. A weight file is opened only for small
tensors, on whose values fusions and shapes depend.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from onnx import ModelProto, TensorProto

from costmodel.errors import ModelReadError
from costmodel.ir.constants import OMITTED, dtype_name
from costmodel.ir.graph import ITEM_BYTES
from costmodel.ir.protobuf import messages
from costmodel.onnx_io.strip_weights import keeps_values

__all__ = ["ExternalDataPolicy", "all_tensors", "omitted_bytes", "resolve_external_data", "set_location"]

# Where external data may be read: in the folder of the model's file, or nowhere, as for an untrusted model.
ExternalDataPolicy = Literal["beside", "absent"]

_VALUES = ("float_data", "int32_data", "string_data", "int64_data", "raw_data", "double_data", "uint64_data")
_OMITTED_ENTRIES = [("location", OMITTED)]  # the external data entries that `strip_weights` writes


def all_tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """Yields every tensor of a model, including those in attributes, subgraphs and functions.

    The initialisers of the main graph come first.
    """
    return messages(proto, TensorProto)


def omitted_bytes(tensor: TensorProto) -> int:
    """Returns the size in bytes of the values that a tensor stores externally or omits; 0 if it contains its values."""
    return _declared_bytes(tensor) if tensor.data_location == TensorProto.EXTERNAL else 0


def _declared_bytes(tensor: TensorProto) -> int:
    """Returns the size in bytes that the shape and element type of a tensor imply."""
    elements = math.prod(int(size) for size in tensor.dims)
    return math.ceil(elements * ITEM_BYTES.get(dtype_name(tensor.data_type), 8))


def set_location(tensor: TensorProto, location: str, offset: int = 0) -> None:
    """Declares, in place, that the values of `tensor` are in the file `location`, from byte `offset` on."""
    del tensor.external_data[:]
    for key, text in (("location", location), ("offset", str(offset)), ("length", str(omitted_bytes(tensor)))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text


def resolve_external_data(
    tensors: Iterable[TensorProto], title: str, folder: Path | None, external: ExternalDataPolicy = "beside"
) -> list[str]:
    """Reads small external values into `tensors`, in place, and marks all other external values as omitted.

    Small values are read because fusions and shapes depend on them; see `costmodel.onnx_io.strip_weights`. Afterwards
    no tensor names a file: a tensor contains its values or has the location `OMITTED`.

    Args:
        tensors: All tensors of a model, their shapes already checked.
        title: Name of the model, for error messages.
        folder: Folder of the model's file; None for a model in memory, whose weight files cannot be found.
        external: "beside" reads weight files in `folder`; "absent" opens no file, whatever the tensors name.

    Returns:
        The locations, sorted, of weight files that tensors name but that are absent or, by `external`, not opened.

    Raises:
        ModelReadError: A weight file lies outside `folder`, cannot be read, or is shorter than the model declares.
    """
    absent: dict[str, None] = {}
    for tensor in tensors:
        if tensor.data_location != TensorProto.EXTERNAL:
            del tensor.external_data[:]
            continue
        # Protobuf returns text that is not UTF-8 as bytes.
        entries = {str(entry.key): str(entry.value) for entry in tensor.external_data}
        location = entries.get("location", "")
        if location != OMITTED:
            file = _weight_file(title, folder, location) if external == "beside" else None
            if file is None:
                absent[location] = None
            elif keeps_values(tensor.data_type, _declared_bytes(tensor)):
                _embed(tensor, title, file, entries)
                continue
        _omit(tensor)
    return sorted(absent)


def _omit(tensor: TensorProto) -> None:
    """Marks the values of `tensor` as omitted; removes values that it contains despite its external location."""
    for field in _VALUES:
        tensor.ClearField(field)
    if omitted_bytes(tensor) == 0:  # an empty tensor has no values to omit or to read
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]
    elif [(entry.key, entry.value) for entry in tensor.external_data] != _OMITTED_ENTRIES:
        set_location(tensor, OMITTED)


def _weight_file(title: str, folder: Path | None, location: str) -> Path | None:
    """Returns the path of the weight file at `location` in `folder`; None if it does not exist or there is no folder.

    Raises:
        ModelReadError: The location is outside `folder`, or is not a possible file name.
    """
    if folder is None:
        return None
    folder = folder.resolve()
    try:
        file = (folder / location).resolve()
        if location and file.is_relative_to(folder):
            return file if file.is_file() else None
    except (OSError, ValueError):  # not a possible file name
        pass
    raise ModelReadError(
        f"{title} keeps weights at {location!r}, outside its own folder: move them beside the model and export again"
    )


def _embed(tensor: TensorProto, title: str, file: Path, entries: Mapping[str, str]) -> None:
    """Reads the values of `tensor` from its weight file and stores them in the tensor itself.

    Raises:
        ModelReadError: The values cannot be read, or the file ends before them.
    """
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
