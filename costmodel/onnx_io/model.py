"""Reads ONNX models, from files or memory, without their weights and with every input shape fixed."""

import hashlib
import math
import mmap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from google.protobuf.message import DecodeError, EncodeError
from onnx import GraphProto, ModelProto, TensorProto

from costmodel.errors import ModelReadError
from costmodel.ir.attributes import captured_names
from costmodel.ir.constants import dtype_name
from costmodel.ir.graph import TensorType
from costmodel.onnx_io.external_data import ExternalDataPolicy, all_tensors, resolve_external_data
from costmodel.onnx_io.input_shapes import check_shape, fix_inputs
from costmodel.onnx_io.input_values import branching_inputs, constants_for, with_constants
from costmodel.onnx_io.sparse import make_dense
from costmodel.onnx_io.strip_weights import TooManyFieldsError, strip_weights

__all__ = ["Model", "read_file", "read_model", "read_without_weights"]


# Most protobuf fields per layer that are read from a file with a limit on layers: nodes, types and parts of constants.
_FIELDS_PER_LAYER = 15
# How an archive begins.
_ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class Model:
    """An ONNX model, ready to be lowered.

    Attributes:
        name: Name of the model: the file's stem, the graph's name, or the name that the caller chose.
        proto: The model without the values of its large tensors, its input shapes fixed.
        inputs: Type of every input that the caller feeds.
        path: Path of the file that the model was read from; None for a model in memory.
        original: The unchanged model in memory that this model was read from; None for a model in a file.
        symbols: Size chosen for each symbolic dimension of the inputs, by its symbol.
        reshaped: Whether an input dimension without a symbol got another size than the source declares; then giving
            sizes to `symbols` is not enough to get this model from its source.
        weights_missing: Whether a file of external weights is absent. Such a model can be priced, and is measured with
            synthetic weights.
        warnings: Warnings for the user, one sentence each.
        has_free_batch: Whether the source leaves the size of the batch open, so that it can run in batches of any size.
        constants: Constants that take the place of inputs of the source.
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
    has_free_batch: bool = False
    constants: tuple[TensorProto, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Hash (SHA-256, hexadecimal) of everything that affects cost: the graph and its shapes, not the weights."""
        return hashlib.sha256(self.proto.SerializeToString(deterministic=True)).hexdigest()


def read_model(
    source: str | Path | ModelProto,
    *,
    batch: int | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    values: Mapping[str, float] | None = None,
    name: str | None = None,
    external: ExternalDataPolicy = "beside",
    max_layers: int | None = None,
) -> Model:
    """Reads a model and fixes its input shapes.

    Args:
        source: Path of an ONNX file, or a model in memory.
        batch: Size of the batch dimensions: those with a symbol for the batch, and first axes without a size. If there
            are none, the first axis of every input of rank 2 or more gets this size. None gives batch dimensions the
            size 1 and changes no others.
        shapes: Full shape of inputs by name; takes precedence over `batch`.
        values: Values of inputs that control what the model does, by name: a flag that chooses a branch, a sampling
            rate. Such an input becomes a constant, all of whose elements have the value, and is fed no more.
        name: Name of the model; by default the file's stem or the graph's name.
        external: "beside" reads external data in the folder of the file. "absent" opens no other file, whatever the
            model names; use it for an untrusted model, whose folder may hold files of other clients.
        max_layers: The most layers that a model in a file may have; None for no limit.

    Raises:
        ModelReadError: The file is missing, a directory, empty, truncated, not ONNX or has too many layers; a weight
            file lies outside the model's folder; the graph is cyclic or has no layers; `values` contains a name that is
            not an input, or a value that the input cannot have.
        ShapeError: An input dimension has no size, is less than 1 or exceeds the limits of `check_shape`; or `shapes`
            contains a name that is not an input.
    """
    path: Path | None = None
    if isinstance(source, ModelProto):
        proto = _read_proto(source)
        title = name or proto.graph.name or "model"
    else:
        path = Path(source)
        proto = read_file(path, max_layers)
        title = name or path.stem
    _check_names(proto.graph, title)
    if not proto.graph.node:
        raise ModelReadError(f"{title} has no layers: there is nothing to price; export the model again")
    _remove_initialisers_from_inputs(proto)
    absent = _resolve_tensors(proto, title, path, external)
    _check_acyclic(proto.graph, title)
    inputs = fix_inputs(proto, title, batch, shapes or {})
    constants = constants_for(title, inputs.types, values or {})
    with_constants(proto, constants)
    warnings = []
    if absent:
        warnings.append(
            f"weight file {_joined(absent)} is absent: priced from the declared shapes, measured with synthetic weights"
        )
    if inputs.batch_symbols:
        warnings.append(
            f"the batch ({', '.join(inputs.batch_symbols)}) is symbolic: priced for a batch of 1; give another "
            "with the option batch"
        )
    if inputs.changed_batch:
        warnings.append(
            f"the file fixes the size of the batch: the first axis of {', '.join(inputs.changed_batch)} was changed to "
            f"{batch}"
        )
    fed = {port: kind for port, kind in inputs.types.items() if port not in (values or {})}
    branching = branching_inputs(proto.graph, fed)
    if branching:
        warnings.append(
            f"which layers run depends on the input {', '.join(branching)}: give its value with the option value"
        )
    return Model(
        name=title,
        proto=proto,
        inputs=fed,
        path=path,
        original=source if isinstance(source, ModelProto) else None,
        symbols=inputs.symbols,
        reshaped=inputs.reshaped,
        weights_missing=bool(absent),
        warnings=tuple(warnings),
        has_free_batch=inputs.has_free_batch,
        constants=tuple(constants),
    )


def read_without_weights(
    path: Path, *, external: ExternalDataPolicy = "beside", max_layers: int | None = None
) -> bytes:
    """Reads a model file and returns the model serialised, without weights stored in the file or beside it.

    The result is enough to price the model on another machine; its input shapes are not fixed.

    Args:
        path: Path of an ONNX file.
        external: Where external data may be read, as in `read_model`.
        max_layers: The most layers that the model may have, as in `read_model`.

    Raises:
        ModelReadError: The file cannot be read as a model, has too many layers, or names a weight file outside its
            folder.
        ShapeError: The shape of a constant has a negative dimension or exceeds the limits of `check_shape`.
    """
    proto = read_file(path, max_layers)
    _resolve_tensors(proto, path.stem, path, external)
    return bytes(proto.SerializeToString(deterministic=True))


def _resolve_tensors(proto: ModelProto, title: str, path: Path | None, external: ExternalDataPolicy) -> list[str]:
    """Checks the shape of every tensor and resolves external data; returns the locations of absent weight files."""
    del proto.training_info[:]  # it is not read during inference
    make_dense(proto)
    tensors = list(all_tensors(proto))
    for tensor in tensors:
        label = f"the constant {tensor.name}" if tensor.name else "a constant"
        check_shape(title, label, tuple(tensor.dims), dtype_name(tensor.data_type), zero=True)
    return resolve_external_data(tensors, str(path or title), path.parent if path is not None else None, external)


def _joined(locations: Sequence[str]) -> str:
    """Returns a text with the first three locations, each cut to 100 characters, and the number of further ones."""
    shown = [location if len(location) <= 100 else f"{location[:100]}..." for location in locations[:3]]
    more = len(locations) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _read_proto(source: ModelProto) -> ModelProto:
    try:
        return _parse(strip_weights(memoryview(source.SerializeToString())), "the model")
    except (EncodeError, ValueError) as error:  # over 2 GiB, or an invalid combination of fields
        raise ModelReadError(
            f"the model cannot be serialised ({error}): save it with external data and give the path"
        ) from error


def read_file(path: Path, max_layers: int | None = None) -> ModelProto:
    """Returns the model in a file without the values of its large tensors, and otherwise unchanged.

    Args:
        path: Path of an ONNX file.
        max_layers: The most layers that the model may have; None for no limit.

    Raises:
        ModelReadError: The file is missing, a directory, empty, truncated, not ONNX, or has too many layers.
    """
    max_fields = math.inf if max_layers is None else _FIELDS_PER_LAYER * max_layers
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
            proto = _parse(strip_weights(view, max_fields), str(path))
    except TooManyFieldsError as error:
        raise _too_many_layers(path, max_layers) from error
    except FileNotFoundError as error:
        raise ModelReadError(f"{path} does not exist: check the path") from error
    except OSError as error:
        raise ModelReadError(f"{path} cannot be read ({error.strerror}): check its permissions") from error
    except ValueError as error:
        raise ModelReadError(f"{path} is not an ONNX file or is truncated: {_remedy(path)}") from error
    if max_layers is not None and len(proto.graph.node) > max_layers:
        raise _too_many_layers(path, max_layers)
    return proto


def _remedy(path: Path) -> str:
    with suppress(OSError, ValueError), path.open("rb") as file:
        if file.read(len(_ZIP)) == _ZIP:
            return "it is an archive, as PyTorch saves models; export the model with torch.onnx.export"
    return "export or copy it again"


def _too_many_layers(path: Path, max_layers: int | None) -> ModelReadError:
    return ModelReadError(f"{path} has more layers or constants than are accepted ({max_layers}): send parts of it")


def _parse(data: bytes, what: str) -> ModelProto:
    """Parses a serialised model, which error messages call `what`."""
    try:
        proto: ModelProto = ModelProto.FromString(data)
    except DecodeError as error:
        raise ModelReadError(f"{what} is not an ONNX file or is truncated: export or copy it again") from error
    if not proto.ir_version or not proto.HasField("graph") or not proto.opset_import:
        raise ModelReadError(f"{what} is not an ONNX model (no graph or no opset in it): export it as ONNX")
    return proto


def _check_names(graph: GraphProto, title: str) -> None:
    """Raises ModelReadError if a name is not UTF-8; protobuf returns such names as bytes."""
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


def _remove_initialisers_from_inputs(proto: ModelProto) -> None:
    """Removes the initialisers from a model's list of inputs, which had to contain them in IR versions before 4."""
    if proto.ir_version >= 4:
        return
    constants = {tensor.name for tensor in proto.graph.initializer}
    inputs = [port for port in proto.graph.input if port.name not in constants]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    proto.ir_version = 4


def _check_acyclic(graph: GraphProto, title: str) -> None:
    """Raises ModelReadError if the graph has a cycle."""
    producers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    predecessors = {
        i: {producers[name] for name in (*node.input, *captured_names(node)) if name in producers}
        for i, node in enumerate(graph.node)
    }
    try:
        TopologicalSorter(predecessors).prepare()
    except CycleError as error:
        nodes = [graph.node[i].name or graph.node[i].op_type for i in error.args[1]]
        raise ModelReadError(f"{title} is cyclic ({' -> '.join(nodes)}): a layer needs its own output") from error
