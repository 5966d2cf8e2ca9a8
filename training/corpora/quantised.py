"""Quantises models to int8: statically, in the QDQ format, with ONNX Runtime's own quantiser."""

import logging
import tempfile
import warnings
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from costmodel.errors import ModelReadError
from costmodel.process_state import log_levels
from costmodel.training.corpora.recipe import Recipe

__all__ = ["DENSE", "quantise_file", "quantised", "write_quantised"]

# The operators worth quantising in a transformer: its softmax, norms and masks would lose accuracy, and the largest
# negative number, which masks contain, leaves no resolution for other values.
DENSE = ("Conv", "Gemm", "MatMul")

_SEED = 8
_CALIBRATION_RUNS = 2


def quantised(parent: Recipe, only: Collection[str] = ()) -> Recipe:
    """Returns the recipe of the int8 version of `parent`, in the family of `parent`.

    Args:
        parent: Recipe of a float32 model.
        only: Types of the operators to quantise; empty for all that the quantiser supports.
    """
    return Recipe(
        name=f"{parent.name}_int8",
        family=parent.family,
        title=f"{parent.title}, int8",
        write=partial(write_quantised, parent.name, tuple(only)),
        needs=parent.name,
    )


def write_quantised(parent: str, only: Collection[str], path: Path) -> None:
    """Writes the int8 version of the model `parent` to `path`: 8-bit activations, and 8-bit weights per channel.

    The float32 file of `parent` is expected in the same folder.

    Raises:
        ModelReadError: The file of `parent` does not exist.
    """
    source = path.with_name(f"{parent}.onnx")
    if not source.is_file():
        raise ModelReadError(f"{source} is not there to be quantised: build {parent} first")
    quantise_file(source, path, only)


def quantise_file(
    source: Path, path: Path, only: Collection[str] = (), shapes: Mapping[str, tuple[int, ...]] | None = None
) -> None:
    """Writes the int8 version of a model file: 8-bit activations, and 8-bit weights per channel.

    The ranges of the activations are those of random inputs: the file takes as long as any other int8 version, and its
    results mean nothing.

    Args:
        source: Path of the float32 model.
        path: Path of the file to write.
        only: Types of the operators to quantise; empty for all that the quantiser supports.
        shapes: Shape of each random input by name; by default the shapes that the file declares.
    """
    with (
        tempfile.TemporaryDirectory(prefix="costmodel-int8-") as folder,
        # The quantiser advises on the root logger that a float model would be more exact.
        log_levels({"": logging.ERROR}),
        warnings.catch_warnings(action="ignore"),
    ):
        # Imported here, because listing recipes must not need the quantiser.
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process

        prepared, written = Path(folder) / "prepared.onnx", Path(folder) / "written.onnx"
        # ONNX's own shape inference is enough: the quantiser needs ranks and types, not symbolic sizes.
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            written,
            _Calibration(onnx.load(prepared), shapes or {}),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(only) or None,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        model = onnx.load(written)
    path.write_bytes(model.SerializeToString(deterministic=True))


class _Calibration:
    """A calibration data reader for the quantiser, which supplies random model inputs, the same in every build."""

    def __init__(self, model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._feeds = _feeds(model, shapes)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def _feeds(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(_SEED)
    constants = {tensor.name for tensor in model.graph.initializer}  # old files list them among the inputs
    for _ in range(_CALIBRATION_RUNS):
        feeds: dict[str, Any] = {}
        for value in (one for one in model.graph.input if one.name not in constants):
            kind = value.type.tensor_type
            shape = shapes.get(value.name) or tuple(dimension.dim_value for dimension in kind.shape.dim)
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            if np.issubdtype(dtype, np.floating):
                feeds[value.name] = rng.standard_normal(shape, dtype=np.float32).astype(dtype)
            else:
                # 0 and 1 are valid token ids, segment ids and mask values in every network.
                feeds[value.name] = rng.integers(0, 2, shape, dtype=np.int64).astype(dtype)
        yield feeds
