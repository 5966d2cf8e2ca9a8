"""Input shapes: every dimension of every input becomes a number, or the error says which ones are missing."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, TensorShapeProto, ValueInfoProto

from costmodel.constants import dtype_name
from costmodel.errors import ShapeError
from costmodel.graph import ITEM_BYTES, TensorType

__all__ = [
    "BATCH_NAME", "MAX_DIMENSION", "MAX_RANK", "MAX_TENSOR_BYTES", "FixedInputs", "check_shape", "fix_inputs",
    "forget_shapes",
]  # fmt: skip

# Beyond these a size is a mistake or an attack, not a network: no tensor of a deployed model comes near them. A product
# of thousands of dimensions takes time that grows with its square.
MAX_RANK = 32
MAX_DIMENSION = 2**31 - 1
MAX_TENSOR_BYTES = 2**37

BATCH_NAME = re.compile(r"^(n|b|bs|batch.*|.*batch|.*batch_size)$", re.IGNORECASE)


@dataclass(frozen=True)
class FixedInputs:
    """What was decided about the inputs of a model.

    Attributes:
        types: Type of every input that the caller feeds.
        symbols: The number chosen for each named dimension.
        reshaped: Whether a dimension got a number that the source gives no name to, or another number than the
            source says; the source as it stands then does not mean the same.
        batch_symbols: What the source calls the batch, where that became 1 because nobody said otherwise.
    """

    types: Mapping[str, TensorType]
    symbols: Mapping[str, int]
    reshaped: bool
    batch_symbols: tuple[str, ...]


def check_shape(title: str, tensor: str, shape: tuple[int, ...], dtype: str, *, zero: bool) -> None:
    """Refuse what is no size of a deployed tensor.

    Raises:
        ShapeError: A dimension is negative, zero (unless `zero` is allowed) or absurd, or the whole is, or there are
            more than `MAX_RANK`.
    """
    if len(shape) > MAX_RANK:
        raise ShapeError(
            f"{title}: {tensor} has {len(shape)} dimensions, and {MAX_RANK} are accepted: check the export"
        )
    for dimension in shape:
        if dimension < 0 or (dimension == 0 and not zero):
            raise ShapeError(f"{title}: {tensor} has the dimension {dimension} in {list(shape)}: give it with --shape")
    if any(d > MAX_DIMENSION for d in shape) or math.prod(shape) * ITEM_BYTES.get(dtype, 8) > MAX_TENSOR_BYTES:
        raise ShapeError(f"{title}: {tensor} has the absurd shape {list(shape)}: no machine holds it; check the export")


def fix_inputs(proto: ModelProto, title: str, batch: int | None, shapes: Mapping[str, tuple[int, ...]]) -> FixedInputs:
    """Write a number into every dimension of every input, in place, and drop what inference will find again.

    Args:
        proto: The model.
        title: Its name, for errors.
        batch: See `costmodel.model.read_model`.
        shapes: See there.

    Raises:
        ShapeError: An input dimension is unknown, zero, negative or absurd, an input is no tensor of numbers, or
            `shapes` names no input.
    """
    constants = {tensor.name for tensor in proto.graph.initializer}
    inputs = [port for port in proto.graph.input if port.name not in constants]
    dtypes = {port.name: _dtype(title, port) for port in inputs}
    declared = {port.name: _declared(port) for port in inputs}
    _check_request(title, declared, batch, shapes)
    sizes = _Sizes(title, declared, shapes, batch)
    fixed = {name: sizes.of(name) for name in declared}
    if sizes.missing:
        raise ShapeError(
            f"{title} has dimensions without a size: {', '.join(sizes.missing)}; give them with --shape NAME=1,2,3"
        )
    if batch is not None and not sizes.batches_met:
        for name in fixed.keys() - shapes.keys():
            if len(fixed[name]) > 1:
                fixed[name] = (batch, *fixed[name][1:])

    for port in inputs:
        check_shape(title, f"input {port.name}", fixed[port.name], dtypes[port.name], zero=False)
        _write_shape(port, fixed[port.name])
    forget_shapes(proto.graph)
    return FixedInputs(
        types={name: TensorType(dtypes[name], shape) for name, shape in fixed.items()},
        symbols={
            dim: size
            for name, shape in fixed.items()
            for dim, size in zip(declared[name] or (), shape, strict=False)
            if isinstance(dim, str)
        },
        reshaped=any(_differs(declared[name], shape) for name, shape in fixed.items()),
        batch_symbols=tuple(dict.fromkeys(sizes.batches_met)) if batch is None else (),
    )


# What a file says of one dimension: its size, its symbol, or nothing.
_Dim = int | str | None


def _declared(port: ValueInfoProto) -> tuple[_Dim, ...] | None:
    """The dimensions of an input as the file has them; None if it does not even say how many."""
    tensor = port.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim)


def _dtype(title: str, port: ValueInfoProto) -> str:
    if not port.type.HasField("tensor_type"):
        kind = (port.type.WhichOneof("value") or "unknown").removesuffix("_type")
        raise ShapeError(f"{title}: input {port.name} is of the type {kind}: only tensors can be priced")
    dtype = dtype_name(port.type.tensor_type.elem_type)
    if dtype not in ITEM_BYTES:
        raise ShapeError(f"{title}: input {port.name} has elements of {dtype}: costmodel cannot price those")
    return dtype


def _check_request(
    title: str,
    declared: Mapping[str, tuple[_Dim, ...] | None],
    batch: int | None,
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    unknown = sorted(set(shapes) - set(declared))
    if unknown:
        raise ShapeError(f"{title} has no input named {', '.join(unknown)}: its inputs are {', '.join(declared)}")
    if batch is not None and not 1 <= batch <= MAX_DIMENSION:
        raise ShapeError(f"{title}: the batch is {batch}: give 1 or more, as the machine can hold it")
    for name, given in shapes.items():
        dims = declared[name]
        if dims is not None and len(given) != len(dims):
            raise ShapeError(f"{title}: input {name} has {len(dims)} dimensions, --shape gives {len(given)}")


class _Sizes:
    """Finds the size of each dimension, and notes which ones are the batch or have none."""

    def __init__(
        self,
        title: str,
        declared: Mapping[str, tuple[_Dim, ...] | None],
        shapes: Mapping[str, tuple[int, ...]],
        batch: int | None,
    ) -> None:
        self._declared = declared
        self._shapes = shapes
        self._batch = batch or 1
        self._symbols: dict[str, int] = {}
        for name, given in shapes.items():
            for dim, size in zip(declared[name] or (), given, strict=False):
                if isinstance(dim, str) and self._symbols.setdefault(dim, size) != size:
                    raise ShapeError(f"{title}: dimension {dim!r} is given as {self._symbols[dim]} and as {size}")
        self._batches = _batch_symbols(declared)
        self.batches_met: list[str] = []
        self.missing: list[str] = []

    def of(self, name: str) -> tuple[int, ...]:
        """The shape of an input; what has no size is 0 and noted as missing."""
        dims = self._declared[name]
        if name in self._shapes:
            return tuple(self._shapes[name])
        if dims is None:
            self.missing.append(f"{name} (rank unknown)")
            return ()
        return tuple(self._size(name, axis, dim, len(dims)) for axis, dim in enumerate(dims))

    def _size(self, name: str, axis: int, dim: _Dim, rank: int) -> int:
        if isinstance(dim, int) and dim >= 0:
            return dim
        if isinstance(dim, str) and dim in self._symbols:
            return self._symbols[dim]
        if dim in self._batches or (dim is None and axis == 0 and rank > 1):
            self.batches_met.append(str(dim or f"axis 0 of {name}"))
            return self._batch
        self.missing.append(f"{name} axis {axis}" + (f" ({dim})" if dim else ""))
        return 0


def _batch_symbols(declared: Mapping[str, tuple[_Dim, ...] | None]) -> set[str]:
    """What the model calls its batch: symbols with such a name, else those found on first axes only."""
    places = [
        (dim, axis, len(dims))
        for dims in declared.values()
        if dims is not None
        for axis, dim in enumerate(dims)
        if isinstance(dim, str)
    ]
    named = {dim for dim, _, _ in places if BATCH_NAME.match(dim)}
    if named:
        return named
    # The only axis of a vector is as often its length.
    return {dim for dim, axis, rank in places if axis == 0 and rank > 1} - {dim for dim, axis, _ in places if axis}


def _differs(declared: tuple[_Dim, ...] | None, shape: Sequence[int]) -> bool:
    if declared is None:
        return True
    return any(not isinstance(dim, str) and dim != size for dim, size in zip(declared, shape, strict=True))


def _write_shape(port: ValueInfoProto, shape: Sequence[int]) -> None:
    dims = [TensorShapeProto.Dimension(dim_value=size) for size in shape]
    port.type.tensor_type.shape.CopyFrom(TensorShapeProto(dim=dims))


def forget_shapes(graph: GraphProto) -> None:
    """Drop inferred shapes: they may hold the symbols that were just given numbers."""
    del graph.value_info[:]
    for port in graph.output:
        if port.type.HasField("tensor_type"):
            port.type.tensor_type.ClearField("shape")
