"""The files of a model that is tuned: the given one, and its int8 version."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, get_args

from onnx import ModelProto

from costmodel.errors import CostModelError, TuningError
from costmodel.onnx_io.model import Model, read_model
from costmodel.serving.capacity import shapes_of_batch
from costmodel.serving.tuning.settings import FLOAT32, INT8

__all__ = ["WITHIN", "ModelFiles", "Within", "open_files"]

# Which changes of the model a tuner may make: none, or also an int8 version for timing.
Within = Literal["accuracy-safe", "quantised"]
WITHIN: tuple[str, ...] = get_args(Within)

_QUANTISED = frozenset({"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger",
                        "ConvInteger", "DynamicQuantizeLinear"})  # fmt: skip
_UNCHECKED = (
    "the int8 version was made here with random calibration data, for timing only: its results mean nothing and its "
    "accuracy has not been checked, so quantise the model with your own data and check it before you use int8"
)
_MADE_PATH = "your-int8-model.onnx"


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model, by precision.

    Attributes:
        name: Name of the model.
        paths: Path of each file by precision, that of the given file first.
        shown: Paths as the answer shows them.
        shapes: Full shape of each input for one sample; empty for those of the file.
        values: Values of inputs that control what the model does, by name.
        has_free_batch: Whether all files leave the size of the batch open.
        warnings: Warnings for the user, one sentence each.
    """

    name: str
    paths: Mapping[str, Path]
    shown: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    has_free_batch: bool = False
    warnings: tuple[str, ...] = ()

    def read(self, precision: str, batch: int) -> Model:
        """Returns the model of a precision, read for a batch size.

        Raises:
            ModelError: The model cannot be read with these shapes.
        """
        size = batch if self.has_free_batch else None
        return read_model(
            self.paths[precision], name=self.name, batch=size, shapes=self.shapes_of(batch), values=self.values
        )

    def shapes_of(self, batch: int) -> dict[str, tuple[int, ...]]:
        """Returns the shapes that were given, for a batch."""
        return shapes_of_batch(self.shapes, batch)


@contextmanager
def open_files(
    model: str | Path | ModelProto,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    values: Mapping[str, float] | None = None,
    int8: str | Path | None = None,
    within: Within = "accuracy-safe",
) -> Iterator[ModelFiles]:
    """Yields the files of a model; those that are made here exist as long as the context is open.

    Args:
        model: Path of an ONNX file, or a model in memory.
        shapes: Full shape of each input for one sample, by name of the input.
        values: Values of inputs that control what the model does, by name; see `read_model`.
        int8: Path of the int8 version of the model.
        within: Whether an int8 version may be made: "accuracy-safe" or "quantised".

    Raises:
        ModelError: A file cannot be read.
        TuningError: `within` is unknown, or the file that is given as int8 has no quantised layers, or an int8 version
            is given for a model that is quantised already.
    """
    if within not in WITHIN:
        raise TuningError(f"{within!r} is not known: choose one of {', '.join(WITHIN)}")
    with TemporaryDirectory(prefix="costmodel-tune-") as folder:
        if isinstance(model, ModelProto):
            path, shown = Path(folder) / "model.onnx", "model.onnx"
            path.write_bytes(model.SerializeToString())
            name = model.graph.name or "model"
        else:
            path, shown, name = Path(model), str(model), Path(model).stem
        read = read_model(path, shapes=shapes, values=values, name=name)
        precision, warnings = INT8 if _is_quantised(read) else FLOAT32, []
        paths, texts, free = {precision: path}, {precision: shown}, read.has_free_batch
        if int8 is not None:
            other = read_model(int8, shapes=shapes, values=values, name=name)
            if precision == INT8 or not _is_quantised(other):
                which = f"{name} is quantised itself" if precision == INT8 else f"{int8} has no quantised layers"
                raise TuningError(f"{which}: give a float32 model, and its int8 version with --int8")
            paths[INT8], texts[INT8], free = Path(int8), str(int8), free and other.has_free_batch
        elif within == "quantised" and precision == FLOAT32:
            try:
                paths[INT8] = _quantised(read, path, Path(folder) / "int8.onnx")
                texts[INT8] = _MADE_PATH
                warnings.append(_UNCHECKED)
            except CostModelError as error:
                warnings.append(str(error))
        yield ModelFiles(name, paths, texts, dict(shapes or {}), dict(values or {}), free, tuple(warnings))


def _is_quantised(model: Model) -> bool:
    return any(node.op_type in _QUANTISED for node in model.proto.graph.node)


def _quantised(model: Model, source: Path, path: Path) -> Path:
    """Writes the int8 version of a model for timing and returns its path.

    Raises:
        TuningError: ONNX Runtime's quantiser failed.
    """
    from costmodel.training.corpora.quantised import DENSE, quantise_file

    if model.weights_missing:
        raise TuningError(f"{model.name} cannot be quantised, because its weights are absent: int8 was left out")
    # In a transformer only the products are worth it: softmax, norms and masks would lose accuracy.
    only = DENSE if any(node.op_type == "MatMul" for node in model.proto.graph.node) else ()
    try:
        quantise_file(source, path, only, {name: kind.shape for name, kind in model.inputs.items()})
    except Exception as error:  # whatever the quantiser stumbles over, the other settings remain
        first = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise TuningError(f"{model.name} cannot be quantised ({first}): int8 was left out") from error
    return path
