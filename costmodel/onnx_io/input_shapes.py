"""Fixes the input shapes of a model: gives every dimension a size, or reports those for which none is known."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, TensorShapeProto, ValueInfoProto

from costmodel.errors import ShapeError
from costmodel.ir.constants import dtype_name
from costmodel.ir.graph import ITEM_BYTES, TensorType

__all__ = [
    "BATCH_NAME",
    "MAX_DIMENSION",
    "MAX_RANK",
    "MAX_TENSOR_BYTES",
    "FixedInputs",
    "check_shape",
    "clear_inferred_shapes",
    "fix_inputs",
]  # fmt: skip

# No tensor of a deployed model comes near these limits; a larger one is a mistake or an attack. The rank is limited
# because a product of thousands of dimensions takes time quadratic in their number.
MAX_RANK = 32
MAX_DIMENSION = 2**31 - 1
MAX_TENSOR_BYTES = 2**37

BATCH_NAME = re.compile(r"^(n|b|bs|batch.*|.*batch|.*batch_size)$", re.IGNORECASE)
# What exporters write for a dimension without a name: PaddlePaddle's -1 on several axes is not one size.
_PLACEHOLDER = re.compile(r"^(-?\d+|\?|none)?$", re.IGNORECASE)


@dataclass(frozen=True)
class FixedInputs:
    """Input types and dimension sizes chosen for a model.

    Attributes:
        types: Type of every input that the caller feeds.
        symbols: Size chosen for each symbolic dimension, by its symbol.
        reshaped: Whether a dimension without a symbol got another size than the source model declares; then giving
            sizes to `symbols` is not enough to get these shapes from the source model.
        batch_symbols: Names of the batch dimensions that became 1 by default.
        has_free_batch: Whether the source model leaves the size of its batch open.
        changed_batch: Names of the inputs whose first axis has a size in the source model and was changed to the batch
            size that was asked for.
    """

    types: Mapping[str, TensorType]
    symbols: Mapping[str, int]
    reshaped: bool
    batch_symbols: tuple[str, ...]
    has_free_batch: bool = False
    changed_batch: tuple[str, ...] = ()


def check_shape(title: str, tensor: str, shape: tuple[int, ...], dtype: str, *, zero: bool) -> None:
    """Checks that a shape can be that of a tensor in a deployed model.

    Args:
        title: Name of the model, for error messages.
        tensor: Description of the tensor, for error messages.
        shape: Dimensions of the tensor.
        dtype: NumPy name of the element type.
        zero: Whether a dimension may be 0.

    Raises:
        ShapeError: A dimension is negative, 0 where `zero` is False, or more than `MAX_DIMENSION`; or the tensor has
            more than `MAX_RANK` dimensions or `MAX_TENSOR_BYTES` bytes.
    """
    if len(shape) > MAX_RANK:
        raise ShapeError(
            f"{title}: {tensor} has {len(shape)} dimensions, and {MAX_RANK} are accepted: check the export"
        )
    for dimension in shape:
        if dimension < 0 or (dimension == 0 and not zero):
            raise ShapeError(
                f"{title}: {tensor} has the dimension {dimension} in {list(shape)}: give it with the option shape"
            )
    if any(d > MAX_DIMENSION for d in shape) or math.prod(shape) * ITEM_BYTES.get(dtype, 8) > MAX_TENSOR_BYTES:
        raise ShapeError(f"{title}: {tensor} has the absurd shape {list(shape)}: no machine holds it; check the export")


def fix_inputs(proto: ModelProto, title: str, batch: int | None, shapes: Mapping[str, tuple[int, ...]]) -> FixedInputs:
    """Writes a size into every dimension of every input, in place, and removes the shapes of all other values.

    Args:
        proto: The model.
        title: Name of the model, for error messages.
        batch: Size of the batch dimensions, as in `costmodel.onnx_io.model.read_model`; None for 1.
        shapes: Full shape of inputs by name; takes precedence over `batch`.

    Raises:
        ShapeError: An input dimension has no size, is less than 1 or exceeds the limits of `check_shape`; an input is
            not a tensor of numbers; or `shapes` contains a name that is not an input.
    """
    constants = {tensor.name for tensor in proto.graph.initializer}
    inputs = [port for port in proto.graph.input if port.name not in constants]
    dtypes = {port.name: _dtype(title, port) for port in inputs}
    declared = {port.name: _declared(port) for port in inputs}
    _check_request(title, declared, batch, shapes)
    sizes = _Sizes(declared, shapes, batch)
    fixed = {name: sizes.of(name) for name in declared}
    if sizes.missing:
        raise ShapeError(
            f"{title} has dimensions without a size: {', '.join(sizes.missing)}; give them with the option shape: "
            + " ".join(f"--shape {name}={_to_fill_in(fixed[name])}" for name in sizes.incomplete)
        )
    changed = []
    if batch is not None and not sizes.batch_dimensions:
        for name in sorted(fixed.keys() - shapes.keys()):
            if len(fixed[name]) > 1 and fixed[name][0] != batch:
                fixed[name] = (batch, *fixed[name][1:])
                changed.append(name)

    for port in inputs:
        check_shape(title, f"input {port.name}", fixed[port.name], dtypes[port.name], zero=False)
        _write_shape(port, fixed[port.name])
    clear_inferred_shapes(proto.graph)
    return FixedInputs(
        types={name: TensorType(dtypes[name], shape) for name, shape in fixed.items()},
        symbols={
            dim: size
            for name, shape in fixed.items()
            for dim, size in zip(declared[name] or (), shape, strict=False)
            if isinstance(dim, str) and dim not in sizes.ambiguous
        },
        reshaped=bool(sizes.ambiguous) or any(_differs(declared[name], shape) for name, shape in fixed.items()),
        batch_symbols=tuple(dict.fromkeys(sizes.batch_dimensions)) if batch is None else (),
        has_free_batch=any(dims and len(dims) > 1 and sizes.is_batch(dims[0]) for dims in declared.values()),
        changed_batch=tuple(changed),
    )


# One dimension as declared in a file: its size, its symbol, or None if the file has neither.
_Dim = int | str | None


def _declared(port: ValueInfoProto) -> tuple[_Dim, ...] | None:
    """Returns the size or symbol that the file declares for each dimension of an input; None if the rank is unknown."""
    tensor = port.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") else None if _PLACEHOLDER.match(d.dim_param) else d.dim_param
        for d in tensor.shape.dim
    )


def _dtype(title: str, port: ValueInfoProto) -> str:
    """Returns the NumPy element type of an input; raises ShapeError if the input is not a tensor of numbers."""
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
    """Raises ShapeError if the requested batch size is out of range or `shapes` does not fit the declared inputs."""
    unknown = sorted(set(shapes) - set(declared))
    if unknown:
        raise ShapeError(f"{title} has no input named {', '.join(unknown)}: its inputs are {', '.join(declared)}")
    if batch is not None and not 1 <= batch <= MAX_DIMENSION:
        raise ShapeError(f"{title}: the batch is {batch}: give a number from 1 to {MAX_DIMENSION:,}")
    for name, shape in shapes.items():
        dims = declared[name]
        if dims is not None and len(shape) != len(dims):
            raise ShapeError(f"{title}: input {name} has {len(dims)} dimensions, the option shape gives {len(shape)}")


class _Sizes:
    """The rules by which each dimension of the inputs of a model gets its size.

    Attributes:
        batch_dimensions: Names of the dimensions that got the batch size.
        missing: Descriptions of the dimensions for which no size was found.
        incomplete: Names of the inputs that have such dimensions.
        ambiguous: Symbols to which the given shapes give several sizes. Exporters name axes of several inputs alike,
            such as "width", and runtimes accept any sizes there.
    """

    def __init__(
        self,
        declared: Mapping[str, tuple[_Dim, ...] | None],
        shapes: Mapping[str, tuple[int, ...]],
        batch: int | None,
    ) -> None:
        self.batch_dimensions: list[str] = []
        self.missing: list[str] = []
        self.incomplete: list[str] = []
        self.ambiguous: set[str] = set()
        self._declared = declared
        self._shapes = shapes
        self._batch = batch or 1
        self._symbols: dict[str, int] = {}
        for name, shape in shapes.items():
            for dim, size in zip(declared[name] or (), shape, strict=False):
                if isinstance(dim, str) and self._symbols.setdefault(dim, size) != size:
                    self.ambiguous.add(dim)
        self._batches = _batch_symbols(declared)

    def of(self, name: str) -> tuple[int, ...]:
        """Returns the shape of the input `name`; a dimension of unknown size becomes 0 and is added to `missing`."""
        dims = self._declared[name]
        if name in self._shapes:
            return tuple(self._shapes[name])
        if dims is None:
            self.missing.append(f"{name} (rank unknown)")
            self.incomplete.append(name)
            return ()
        return tuple(self._size(name, axis, dim, len(dims)) for axis, dim in enumerate(dims))

    def is_batch(self, first: _Dim) -> bool:
        """Returns whether the first dimension of an input of rank 2 or more is a batch whose size is open."""
        return first is None or first in self._batches

    def _size(self, name: str, axis: int, dim: _Dim, rank: int) -> int:
        if isinstance(dim, int) and dim >= 0:
            return dim
        if isinstance(dim, str) and dim in self._symbols.keys() - self.ambiguous:
            return self._symbols[dim]
        if dim in self._batches or (dim is None and axis == 0 and rank > 1):
            self.batch_dimensions.append(str(dim or f"axis 0 of {name}"))
            return self._batch
        self.missing.append(f"{name} axis {axis}" + (f" ({dim})" if dim else ""))
        if name not in self.incomplete:
            self.incomplete.append(name)
        return 0


def _batch_symbols(declared: Mapping[str, tuple[_Dim, ...] | None]) -> set[str]:
    """Returns the symbols of batch dimensions: those named "N", "batch" or the like, else those only on first axes."""
    occurrences = [
        (dim, axis, len(dims))
        for dims in declared.values()
        if dims is not None
        for axis, dim in enumerate(dims)
        if isinstance(dim, str)
    ]
    named = {dim for dim, _, _ in occurrences if BATCH_NAME.match(dim)}
    first = {dim for dim, axis, _ in occurrences if axis == 0}
    if named:
        # One letter also names the number of samples or tokens, beside a batch that is on the first axis.
        return {dim for dim in named if len(dim) > 1 or dim in first or not named & first}
    # Vectors are excluded because their only axis is as often a length as a batch.
    matrices = {dim for dim, axis, rank in occurrences if axis == 0 and rank > 1}
    return matrices - {dim for dim, axis, _ in occurrences if axis}


def _to_fill_in(shape: Sequence[int]) -> str:
    """Returns a shape as the option takes it, with "?" for each size that is 0; for an unknown rank, an example."""
    return ",".join(str(size or "?") for size in shape) or "1,2,3"


def _differs(declared: tuple[_Dim, ...] | None, shape: Sequence[int]) -> bool:
    """Returns whether a dimension of `shape` is declared in the file with another size, or without size and symbol."""
    if declared is None:
        return True
    return any(not isinstance(dim, str) and dim != size for dim, size in zip(declared, shape, strict=True))


def _write_shape(port: ValueInfoProto, shape: Sequence[int]) -> None:
    dims = [TensorShapeProto.Dimension(dim_value=size) for size in shape]
    port.type.tensor_type.shape.CopyFrom(TensorShapeProto(dim=dims))


def clear_inferred_shapes(graph: GraphProto) -> None:
    """Removes the shapes of internal values and outputs, which may name symbols that have since been given sizes."""
    del graph.value_info[:]
    for port in graph.output:
        if port.type.HasField("tensor_type"):
            port.type.tensor_type.ClearField("shape")
