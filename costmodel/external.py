"""Weights kept outside the model's file: checked, never opened unless their values shape the graph."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from costmodel.constants import dtype_name
from costmodel.errors import ModelReadError
from costmodel.graph import ITEM_BYTES
from costmodel.skim import OMITTED, carries_values

__all__ = ["all_tensors", "omitted_bytes", "set_location", "settle_external"]


def all_tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """Every constant tensor of a model, those in its subgraphs and functions included."""
    yield from _graph_tensors(proto.graph)
    for function in proto.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.GRAPH:
                yield from _graph_tensors(attribute.g)


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


def settle_external(proto: ModelProto, title: str, folder: Path | None) -> list[str]:
    """Read small external values into `proto`; mark the rest as left out, wherever they lie.

    Small ones are read because fusions and shapes depend on them; see `costmodel.skim`.

    Args:
        proto: Its tensors have sane shapes.
        title: Name of the model, for errors.
        folder: Where the model's file lies; None for a model in memory, whose weight files cannot be found.

    Returns:
        The weight files that are absent.

    Raises:
        ModelReadError: A weight file lies outside `folder`, or is shorter than the model says.
    """
    absent: dict[str, None] = {}
    for tensor in all_tensors(proto):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if location == OMITTED:
            continue
        file = _weight_file(title, folder, location)
        if file is None:
            absent[location] = None
        elif carries_values(tensor.data_type, _declared_bytes(tensor)):
            _embed(tensor, title, file, entries)
            continue
        set_location(tensor, OMITTED)
    return sorted(absent)


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
