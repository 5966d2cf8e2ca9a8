"""Models: ONNX files and in-memory protos, read without their weights and with every input shape fixed."""

import hashlib
import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from google.protobuf.message import DecodeError, EncodeError
from onnx import GraphProto, ModelProto

from costmodel.attributes import captured_names
from costmodel.constants import dtype_name
from costmodel.errors import ModelReadError
from costmodel.external import External, all_tensors, settle_external
from costmodel.graph import TensorType
from costmodel.shapes import check_shape, fix_inputs
from costmodel.skim import TooLongError, skim
from costmodel.sparse import make_dense

__all__ = ["Model", "read_file", "read_model", "without_weights"]


# Fields of a model's file that are looked at for each layer: nodes, types, and the parts of constants.
_FIELDS_PER_LAYER = 15


@dataclass(frozen=True)
class Model:
    """An ONNX model, ready to be lowered.

    Attributes:
        name: What to call it: the file's stem or the graph's name.
        proto: The model without the values of its large tensors, its input shapes fixed.
        inputs: Type of every input that the caller feeds.
        path: The file it came from, if any.
        original: The proto it came from, if it was given in memory.
        symbols: The number that was chosen for each symbolic dimension of the inputs.
        reshaped: Whether an input has another size than the source fixes, or one that the source leaves open
            without a symbol: then numbers for the symbols alone do not make the source mean the same.
        weights_missing: Whether a file of external weights is absent; such a model is priced, and runs on
            synthetic weights.
        warnings: What the reader should know, one sentence each.
    """

    name: str
    proto: ModelProto
    inputs: Mapping[str, TensorType]
    path: Path | None = None
    original: ModelProto | None = field(default=None, repr=False)
    symbols: Mapping[str, int] = field(default_factory=dict)
    reshaped: bool = False
    weights_missing: bool = False
    warnings: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Content hash of everything that matters to a cost: the graph and its shapes, not the weights."""
        return hashlib.sha256(self.proto.SerializeToString(deterministic=True)).hexdigest()


def read_model(
    source: str | Path | ModelProto,
    *,
    batch: int | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    name: str | None = None,
    external: External = "beside",
    most_layers: int | None = None,
) -> Model:
    """Read a model and fix its input shapes.

    Args:
        source: Path of an ONNX file, or a model in memory.
        batch: Size of the first axis of every input where it is symbolic; of all inputs if none is.
        shapes: Full shape of inputs by name; they win over `batch`.
        name: What to call the model; by default the file's stem or the graph's name.
        external: "beside" looks for external data in the folder of the file. "absent" opens no other file, whatever
            the model names: for a file from somebody else, whose folder holds what is not his.
        most_layers: The most layers that a model in a file may have; None for as many as it has.

    Raises:
        ModelReadError: The file is missing, a directory, empty, truncated or not ONNX; a weight file lies outside
            the model's folder; the graph is cyclic or has no layers.
        ShapeError: An input dimension is unknown, zero, negative or absurd, or `shapes` names no input.
    """
    path: Path | None = None
    if isinstance(source, ModelProto):
        proto = _read_proto(source)
        title = name or proto.graph.name or "model"
    else:
        path = Path(source)
        proto = read_file(path, most_layers)
        title = name or path.stem
    _check_names(proto.graph, title)
    if not proto.graph.node:
        raise ModelReadError(f"{title} has no layers: there is nothing to price; export the model again")
    _unlist_constants(proto)
    absent = _settle_tensors(proto, title, path, external)
    _check_acyclic(proto.graph, title)
    inputs = fix_inputs(proto, title, batch, shapes or {})
    warnings = []
    if absent:
        warnings.append(
            f"weight file {_listed(absent)} is absent: priced from the declared shapes, measured with synthetic weights"
        )
    if inputs.batch_symbols:
        warnings.append(
            f"the batch ({', '.join(inputs.batch_symbols)}) is symbolic: priced for a batch of 1; give another "
            "with --batch"
        )
    return Model(
        name=title,
        proto=proto,
        inputs=inputs.types,
        path=path,
        original=source if isinstance(source, ModelProto) else None,
        symbols=inputs.symbols,
        reshaped=inputs.reshaped,
        weights_missing=bool(absent),
        warnings=tuple(warnings),
    )


def without_weights(path: Path, *, external: External = "beside", most_layers: int | None = None) -> bytes:
    """The model in a file as it stands there, its weights left out wherever they lie: enough to price it anywhere.

    Args:
        path: An ONNX file.
        external: As in `read_model`.
        most_layers: As in `read_model`.

    Raises:
        ModelReadError: As `read_model`.
        ShapeError: A tensor is negative or absurd.
    """
    proto = read_file(path, most_layers)
    _settle_tensors(proto, path.stem, path, external)
    return bytes(proto.SerializeToString(deterministic=True))


def _settle_tensors(proto: ModelProto, title: str, path: Path | None, external: External) -> list[str]:
    """Make every tensor one that has a sane shape and names no file; gives the locations that are absent."""
    del proto.training_info[:]  # what only training reads has no cost in inference
    make_dense(proto)
    tensors = list(all_tensors(proto))
    for tensor in tensors:
        label = f"the constant {tensor.name}" if tensor.name else "a constant"
        check_shape(title, label, tuple(tensor.dims), dtype_name(tensor.data_type), zero=True)
    return settle_external(tensors, str(path or title), path.parent if path is not None else None, external)


def _listed(locations: Sequence[str]) -> str:
    """The first few of the locations, each in a length that a sentence bears."""
    shown = [location if len(location) <= 100 else f"{location[:100]}..." for location in locations[:3]]
    more = len(locations) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _read_proto(source: ModelProto) -> ModelProto:
    try:
        return _parse(skim(memoryview(source.SerializeToString())), "the model")
    except (EncodeError, ValueError) as error:  # protobuf writes at most 2 GiB, and not every mixture of fields
        raise ModelReadError(
            f"the model cannot be serialised ({error}): save it with external data and give the path"
        ) from error


def read_file(path: Path, most_layers: int | None = None) -> ModelProto:
    """The model in a file as it stands there, without the values of its large tensors.

    Args:
        path: An ONNX file.
        most_layers: As in `read_model`.

    Raises:
        ModelReadError: The file is missing, a directory, empty, truncated, not ONNX, or has too many layers.
    """
    most_fields = math.inf if most_layers is None else _FIELDS_PER_LAYER * most_layers
    try:
        if path.is_dir():
            raise ModelReadError(f"{path} is a directory: give the path of one .onnx file in it")
        if path.exists() and not path.is_file():
            raise ModelReadError(f"{path} is not a regular file: give the path of an .onnx file")
        if path.stat().st_size == 0:
            raise ModelReadError(f"{path} is empty (0 bytes): export or copy the model again")
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as view,
        ):
            proto = _parse(skim(view, most_fields), str(path))
    except TooLongError as error:
        raise _too_many(path, most_layers) from error
    except FileNotFoundError as error:
        raise ModelReadError(f"{path} does not exist: check the path") from error
    except OSError as error:
        raise ModelReadError(f"{path} cannot be read ({error.strerror}): check its permissions") from error
    except ValueError as error:
        raise ModelReadError(f"{path} is not an ONNX file or is truncated ({error}): copy it again") from error
    if most_layers is not None and len(proto.graph.node) > most_layers:
        raise _too_many(path, most_layers)
    return proto


def _too_many(path: Path, most_layers: int | None) -> ModelReadError:
    return ModelReadError(f"{path} has more layers or constants than are accepted ({most_layers}): send parts of it")


def _parse(data: bytes, what: str) -> ModelProto:
    try:
        proto: ModelProto = ModelProto.FromString(data)
    except DecodeError as error:
        raise ModelReadError(f"{what} is not an ONNX file or is truncated: export or copy it again") from error
    if not proto.ir_version or not proto.HasField("graph") or not proto.opset_import:
        raise ModelReadError(f"{what} is not an ONNX model (no graph or no opset in it): export it as ONNX")
    return proto


def _check_names(graph: GraphProto, title: str) -> None:
    """Refuse names that are no text; protobuf hands those over as bytes."""
    names: list[object] = [graph.name]
    for port in (*graph.input, *graph.output):
        names += [port.name, *(dim.dim_param for dim in port.type.tensor_type.shape.dim)]
    names += [tensor.name for tensor in graph.initializer]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        for attribute in node.attribute:
            names.append(attribute.name)
            if attribute.HasField("g"):
                _check_names(attribute.g, title)
    broken = next((name for name in names if not isinstance(name, str)), None)
    if broken is not None:
        raise ModelReadError(f"{title} is damaged (the name {broken!r} is no text): copy it again")


def _unlist_constants(proto: ModelProto) -> None:
    """Before IR version 4 every initialiser had to be listed as an input too, without being one."""
    if proto.ir_version >= 4:
        return
    constants = {tensor.name for tensor in proto.graph.initializer}
    inputs = [port for port in proto.graph.input if port.name not in constants]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    proto.ir_version = 4


def _check_acyclic(graph: GraphProto, title: str) -> None:
    producers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    needs = {
        i: {producers[name] for name in (*node.input, *captured_names(node)) if name in producers}
        for i, node in enumerate(graph.node)
    }
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        nodes = [graph.node[i].name or graph.node[i].op_type for i in error.args[1]]
        raise ModelReadError(f"{title} is cyclic ({' -> '.join(nodes)}): a layer needs its own output") from error
