"""Models: ONNX files and in-memory protos, read without their weights and with every input shape fixed."""

import hashlib
import math
import mmap
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, TensorShapeProto

from costmodel.attributes import captured_names
from costmodel.constants import dtype_name, is_kept
from costmodel.errors import ModelReadError, ShapeError
from costmodel.graph import ITEM_BYTES, TensorType
from costmodel.skim import OMITTED, SkimError, skim

__all__ = ["Model", "all_tensors", "omitted_bytes", "read_model"]

# Beyond these a size is a mistake or an attack, not a network: no tensor of a deployed model comes near them.
MAX_DIMENSION = 2**31 - 1
MAX_TENSOR_BYTES = 2**37

_BATCH_NAME = re.compile(r"^(n|b|bs|batch.*|.*batch|.*batch_size|unk__?\d+)$", re.IGNORECASE)


@dataclass(frozen=True)
class Model:
    """An ONNX model, ready to be lowered.

    Attributes:
        name: What to call it: the file's stem or the graph's name.
        proto: The model without the values of its large tensors, its input shapes fixed.
        inputs: Type of every input that the caller feeds.
        path: The file it came from, if any.
        original: The proto it came from, if it was given in memory.
        weights_missing: Whether a file of external weights is absent; such a model is priced, and runs on
            synthetic weights.
        warnings: What the reader should know, one sentence each.
    """

    name: str
    proto: ModelProto
    inputs: Mapping[str, TensorType]
    path: Path | None = None
    original: ModelProto | None = field(default=None, repr=False)
    weights_missing: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Content hash of everything that matters to a cost: the graph and its shapes, not the weights."""
        return hashlib.sha256(self.proto.SerializeToString(deterministic=True)).hexdigest()


def read_model(
    source: str | Path | ModelProto,
    *,
    batch: int | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    name: str | None = None,
) -> Model:
    """Read a model and fix its input shapes.

    Args:
        source: Path of an ONNX file, or a model in memory.
        batch: Size of the first axis of every input where it is symbolic; of all inputs if none is.
        shapes: Full shape of inputs by name.
        name: What to call the model; by default the file's stem or the graph's name.

    Raises:
        ModelReadError: The file is missing, a directory, empty, truncated or not ONNX; a weight file lies outside
            the model's folder; the graph is cyclic or has no layers.
        ShapeError: An input dimension is unknown, zero, negative or absurd, or `shapes` names no input.
    """
    warnings: list[str] = []
    missing = False
    if isinstance(source, ModelProto):
        path, proto = None, _parse(skim(memoryview(source.SerializeToString())), "the model")
        title = name or proto.graph.name or "model"
    else:
        path = Path(source)
        proto = _read_file(path)
        title = name or path.stem
        missing = _check_external(proto, path, warnings)
    if not proto.graph.node:
        raise ModelReadError(f"{title} has no layers: there is nothing to price; export the model again")
    _unlist_constants(proto)
    _check_tensors(proto, title)
    _check_acyclic(proto.graph, title)
    _fix_inputs(proto, title, batch, dict(shapes or {}), warnings)
    return Model(
        name=title,
        proto=proto,
        inputs=_input_types(proto.graph, title),
        path=path,
        original=source if isinstance(source, ModelProto) else None,
        weights_missing=missing,
        warnings=tuple(warnings),
    )


def _read_file(path: Path) -> ModelProto:
    if path.is_dir():
        raise ModelReadError(f"{path} is a directory: give the path of one .onnx file in it")
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise ModelReadError(f"{path} is empty (0 bytes): export or copy the model again")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
                return _parse(skim(view), str(path))
    except FileNotFoundError as error:
        raise ModelReadError(f"{path} does not exist: check the path") from error
    except OSError as error:
        raise ModelReadError(f"{path} cannot be read ({error.strerror}): check its permissions") from error
    except SkimError as error:
        raise ModelReadError(f"{path} is not an ONNX file or is truncated ({error}): copy it again") from error


def _parse(data: bytes, what: str) -> ModelProto:
    try:
        proto = ModelProto.FromString(data)
    except DecodeError as error:
        raise ModelReadError(f"{what} is not an ONNX file or is truncated: export or copy it again") from error
    if not proto.ir_version or not proto.HasField("graph") or not proto.opset_import:
        raise ModelReadError(f"{what} is not an ONNX model (no graph in it): export it as ONNX")
    return proto


def all_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every constant tensor of a graph and of the subgraphs in it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.GRAPH:
                yield from all_tensors(attribute.g)


def omitted_bytes(tensor: TensorProto) -> int:
    """Bytes of the values that a tensor does not carry; 0 if it carries them."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return 0
    return math.ceil(math.prod(tensor.dims) * ITEM_BYTES.get(dtype_name(tensor.data_type), 8))


def _unlist_constants(proto: ModelProto) -> None:
    """Before IR version 4 every initialiser had to be listed as an input too, without being one."""
    if proto.ir_version >= 4:
        return
    constants = {tensor.name for tensor in proto.graph.initializer}
    inputs = [port for port in proto.graph.input if port.name not in constants]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    proto.ir_version = 4


def _check_external(proto: ModelProto, path: Path, warnings: list[str]) -> bool:
    """Whether weights are missing; values that shape the work are read from the side file now."""
    folder = path.parent.resolve()
    absent: set[str] = set()
    for tensor in all_tensors(proto.graph):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if location == OMITTED:
            continue
        file = (folder / location).resolve()
        if not location or not file.is_relative_to(folder):
            raise ModelReadError(
                f"{path} keeps weights at {location!r}, outside its own folder: move them beside the model and "
                "export again"
            )
        if not file.is_file():
            absent.add(location)
        elif is_kept(tensor):
            _embed(tensor, file, entries)
    if absent:
        warnings.append(
            f"weight file {', '.join(sorted(absent))} is absent: priced from the declared shapes, measured with "
            "synthetic weights"
        )
    return bool(absent)


def _embed(tensor: TensorProto, file: Path, entries: Mapping[str, str]) -> None:
    size = omitted_bytes(tensor)
    with file.open("rb") as stream:
        stream.seek(int(entries.get("offset", "0")))
        data = stream.read(size)
    if len(data) != size:
        raise ModelReadError(f"{file} is shorter than the model says: copy the weights again")
    tensor.raw_data = data
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def _check_tensors(proto: ModelProto, title: str) -> None:
    for tensor in all_tensors(proto.graph):
        _check_shape(title, tensor.name or "a constant", tuple(tensor.dims), dtype_name(tensor.data_type), zero=True)


def _check_shape(title: str, tensor: str, shape: tuple[int, ...], dtype: str, *, zero: bool) -> None:
    for dimension in shape:
        if dimension < 0 or (dimension == 0 and not zero):
            raise ShapeError(f"{title}: {tensor} has the dimension {dimension} in {list(shape)}: give it with --shape")
    if any(d > MAX_DIMENSION for d in shape) or math.prod(shape) * ITEM_BYTES.get(dtype, 8) > MAX_TENSOR_BYTES:
        raise ShapeError(f"{title}: {tensor} has the absurd shape {list(shape)}: no machine holds it; check the export")


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


def _fix_inputs(
    proto: ModelProto,
    title: str,
    batch: int | None,
    shapes: dict[str, tuple[int, ...]],
    warnings: list[str],
) -> None:
    """Write a number into every dimension of every input, and drop what inference will find again."""
    constants = {tensor.name for tensor in proto.graph.initializer}
    inputs = [port for port in proto.graph.input if port.name not in constants]
    unknown_names = sorted(set(shapes) - {port.name for port in inputs})
    if unknown_names:
        raise ShapeError(
            f"{title} has no input named {', '.join(unknown_names)}: its inputs are "
            f"{', '.join(port.name for port in inputs)}"
        )
    if batch is not None and batch < 1:
        raise ShapeError(f"{title}: the batch is {batch}: give 1 or more")

    sizes: dict[str, int] = {}
    for port in inputs:
        dims = port.type.tensor_type.shape.dim
        if port.name not in shapes:
            continue
        given = shapes[port.name]
        if len(dims) and len(given) != len(dims):
            raise ShapeError(f"{title}: input {port.name} has {len(dims)} dimensions, --shape gives {len(given)}")
        for dim, size in zip(dims, given, strict=False):
            if dim.dim_param and sizes.setdefault(dim.dim_param, size) != size:
                raise ShapeError(f"{title}: dimension {dim.dim_param!r} is given as {sizes[dim.dim_param]} and as {size}")
        port.type.tensor_type.shape.CopyFrom(
            TensorShapeProto(dim=[TensorShapeProto.Dimension(dim_value=size) for size in given])
        )

    batch_names = {
        port.type.tensor_type.shape.dim[0].dim_param
        for port in inputs
        if port.type.tensor_type.shape.dim and port.type.tensor_type.shape.dim[0].dim_param
    }
    symbolic_batch, missing = False, []
    for port in inputs:
        if port.type.HasField("tensor_type") and not port.type.tensor_type.HasField("shape"):
            missing.append(f"{port.name} (rank unknown)")
            continue
        for axis, dim in enumerate(port.type.tensor_type.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                continue
            symbol = dim.dim_param
            is_batch = axis == 0 or symbol in batch_names or bool(_BATCH_NAME.match(symbol))
            if symbol in sizes:
                dim.dim_value = sizes[symbol]
            elif is_batch and not dim.HasField("dim_value"):
                symbolic_batch = True
                dim.dim_value = batch or 1
            else:
                missing.append(f"{port.name} axis {axis}" + (f" ({symbol})" if symbol else ""))
    if missing:
        raise ShapeError(f"{title} has dimensions without a size: {', '.join(missing)}; give them with --shape NAME=1,2,3")
    if symbolic_batch and batch is None:
        warnings.append("the batch is symbolic: priced for a batch of 1; give another with --batch")
    if batch is not None and not symbolic_batch:
        for port in inputs:
            if port.name not in shapes and len(port.type.tensor_type.shape.dim) > 1:
                port.type.tensor_type.shape.dim[0].dim_value = batch
    _forget_shapes(proto.graph)


def _forget_shapes(graph: GraphProto) -> None:
    """Drop inferred shapes: they may hold the symbols that were just given numbers."""
    del graph.value_info[:]
    for port in graph.output:
        port.type.tensor_type.ClearField("shape")


def _input_types(graph: GraphProto, title: str) -> dict[str, TensorType]:
    constants = {tensor.name for tensor in graph.initializer}
    types = {}
    for port in graph.input:
        if port.name in constants:
            continue
        if not port.type.HasField("tensor_type"):
            kind = port.type.WhichOneof("value") or "no type"
            raise ShapeError(f"{title}: input {port.name} is a {kind}: only tensors can be priced")
        tensor = port.type.tensor_type
        dtype = dtype_name(tensor.elem_type)
        shape = tuple(dim.dim_value for dim in tensor.shape.dim)
        if dtype not in ITEM_BYTES:
            raise ShapeError(f"{title}: input {port.name} has elements of type {dtype}: costmodel cannot price those")
        _check_shape(title, f"input {port.name}", shape, dtype, zero=False)
        types[port.name] = TensorType(dtype, shape)
    return types
