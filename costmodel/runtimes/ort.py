"""ONNX Runtime on CPUs. Every call into onnxruntime is in this file."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, TensorProto, helper, numpy_helper

from costmodel.blocked import NotMaterialisableError, materialise
from costmodel.errors import LoweringError, MeasurementError
from costmodel.external import all_tensors, omitted_bytes, set_location
from costmodel.graph import LayerGraph, TensorType
from costmodel.inference import output_types
from costmodel.model import Model
from costmodel.network import build_network, external_tensor, input_indices, value_name, weight_indices
from costmodel.runtimes import Runner, RuntimeSettings
from costmodel.runtimes.ort_bodies import has_blocked_body, with_bodies_of
from costmodel.runtimes.ort_graph import canonical_graph
from costmodel.sequence import LayerSequence
from costmodel.shapes import forget_shapes
from costmodel.synthesis import model_inputs, synthetic, synthetic_like

__all__ = ["OnnxRuntime", "open_session"]

_LEVELS = {
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_PROVIDERS = ["CPUExecutionProvider"]
_WEIGHTS = "weights.bin"
# Lowered models carry values up to this size; larger ones are weights.
_EMBEDDED_BYTES = 1024
# What stands before the sentence in onnxruntime's messages: a code, and where in its source it happened.
_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : |/onnxruntime_src/\S+:\d+ .*?\) (?:const )?(?=[A-Z])")
_QUIET = 4  # fatal only: what went wrong reaches the user as our exception
ort.set_default_logger_severity(_QUIET)


def _options(settings: RuntimeSettings) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = _LEVELS[settings.level]
    options.log_severity_level = _QUIET
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(settings.spinning)))
    return options


def open_session(model: bytes | str, settings: RuntimeSettings, weights: Mapping[str, np.ndarray] | None = None) -> Any:
    """An `onnxruntime.InferenceSession` on the CPU.

    Args:
        model: Serialised model, or the path of one.
        settings: Threads, level, spinning.
        weights: Values for the initialisers that the model declares as external.
    """
    options = _options(settings)
    if weights:
        values = [ort.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
        options.add_external_initializers(list(weights), values)
    return _session(model, options)


def _session(model: bytes | str, options: ort.SessionOptions) -> Any:
    # With its fallback on, onnxruntime announces a failure on standard output, which is for our caller's results.
    return ort.InferenceSession(model, options, providers=_PROVIDERS, enable_fallback=0)


class _SessionRunner:
    """A loaded network with its inputs bound, so that a run does nothing but the run."""

    def __init__(self, session: Any, feeds: Mapping[str, np.ndarray]) -> None:
        self._session = session
        self._binding = session.io_binding()
        self._feeds = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
        for name, value in self._feeds.items():
            self._binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            self._binding.bind_output(output.name)

    def run(self) -> None:
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:
            raise MeasurementError(f"the network failed to run: {_first_line(error)}") from error


class OnnxRuntime:
    """ONNX Runtime's CPU execution provider."""

    name = "onnxruntime"
    version: str = ort.__version__

    def lower(self, model: Model, level: str) -> LayerGraph:
        """The layers that ONNX Runtime executes at `level`; see docs/adr/0002 for how weights stay untouched."""
        with tempfile.TemporaryDirectory(prefix="costmodel-") as folder:
            source, path = _placed(model, Path(folder))
            lowered = _compile(path, level, model.name)
            if has_blocked_body(lowered):
                with_bodies_of(lowered, _compile(path, "extended", model.name))
            # The steps that find shapes, cheapest first; each is taken only if the one before left a hole.
            return canonical_graph(
                model.name,
                source,
                lowered,
                declared=lambda names: _declared(source, path, names, model.name),
                observe_source=lambda names: _observe(source, names, model),
                observe_lowered=lambda names: _observe(lowered, names, model),
                block=self.block,
            )

    def open_sequence(self, sequence: LayerSequence, settings: RuntimeSettings) -> Runner:
        """`sequence` in this host's own blocks.

        Optimisation is off, because the layers are optimised already; bodies of If, Loop and Scan are kept in plain
        layout, so that a sequence with one is optimised as the model is.
        """
        try:
            local = materialise(sequence, self.block)
        except NotMaterialisableError as error:
            raise MeasurementError(f"{sequence.kind} cannot run on this host: {error}") from error
        # Small weights go into the network, where shape inference finds them: scales of Resize say a shape.
        indices = weight_indices(local)
        large = [i for i in indices if local.values[i].type.nbytes > _EMBEDDED_BYTES]
        weights = [external_tensor(value_name(i), local.values[i], _WEIGHTS) for i in large]
        weights += [numpy_helper.from_array(synthetic(local, i), value_name(i)) for i in indices if i not in set(large)]
        proto = build_network(local, weights=weights)
        try:
            session = open_session(
                proto.SerializeToString(),
                settings if _has_body(local) else replace(settings, level="none"),
                {value_name(i): synthetic(local, i) for i in large},
            )
            return _SessionRunner(session, {value_name(i): synthetic(local, i) for i in input_indices(local)})
        except Exception as error:
            raise MeasurementError(f"{sequence.kind} does not load: {_first_line(error)}") from error

    def open_model(self, model: Model, settings: RuntimeSettings) -> Runner:
        """The model as a user would load it, its symbolic dimensions replaced by numbers."""
        try:
            return _SessionRunner(self._model_session(model, settings), model_inputs(model.inputs))
        except Exception as error:
            raise _refusal(model.name, error) from error

    def _model_session(self, model: Model, settings: RuntimeSettings) -> Any:
        options = _options(settings)
        if model.weights_missing:
            proto, weights = _with_values(model.proto)
            return open_session(proto.SerializeToString(), settings, weights)
        if model.reshaped:
            declared = ModelProto()
            declared.CopyFrom(model.original or onnx.load(str(model.path)))
            _rewrite_inputs(declared, model)
            return open_session(declared.SerializeToString(), settings)
        for symbol, size in model.symbols.items():
            options.add_free_dimension_override_by_name(symbol, size)
        content = str(model.path) if model.original is None else model.original.SerializeToString()
        return _session(content, options)

    def fingerprint(self) -> str:
        """The block size, which is what ONNX Runtime's choice of layers depends on."""
        return f"block{self.block}"

    @cached_property
    def block(self) -> int:
        """Channels in a block of this host's NCHWc layout; 1 where it has none."""
        sample = helper.make_model(
            helper.make_graph(
                [helper.make_node("Conv", ["x", "w"], ["y"])],
                "probe",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8))],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                [helper.make_tensor("w", TensorProto.FLOAT, (1, 3, 1, 1), [1.0, 1.0, 1.0])],
            ),
            ir_version=9,
            opset_imports=[helper.make_opsetid("", 17)],
        )
        lowered = onnx.load_from_string(
            ort.ModelCompiler(
                _options(RuntimeSettings()),
                sample.SerializeToString(),
                graph_optimization_level=_LEVELS["all"],
            ).compile_to_bytes()
        )
        # A filter of one output channel is padded to one block.
        return max(int(tensor.dims[0]) for tensor in lowered.graph.initializer)


def _dtype(tensor: TensorProto) -> str:
    return str(helper.tensor_dtype_to_np_dtype(tensor.data_type))


def _has_body(sequence: LayerSequence) -> bool:
    return any("g" in value for layer in sequence.layers for value in layer.attributes.values())


def _rewrite_inputs(declared: ModelProto, model: Model) -> None:
    """Give the inputs of the model as its owner wrote it the shapes that were asked for."""
    fixed = {port.name: port for port in model.proto.graph.input}
    for port in declared.graph.input:
        if port.name in model.inputs:
            port.CopyFrom(fixed[port.name])
    forget_shapes(declared.graph)


def _with_values(model: ModelProto) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """A copy whose omitted values are synthetic, and the weights that are to be supplied with it."""
    proto = ModelProto()
    proto.CopyFrom(model)
    weights = {}
    supplied = len(proto.graph.initializer)  # all_tensors begins with those
    for position, tensor in enumerate(all_tensors(proto)):
        if not omitted_bytes(tensor):
            continue
        values = _weight_values(TensorType(_dtype(tensor), tuple(tensor.dims)))
        if position < supplied:
            set_location(tensor, _WEIGHTS)
            weights[tensor.name] = values
        else:  # onnxruntime takes weights from outside for the main graph only
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return proto, weights


def _weight_values(kind: TensorType) -> np.ndarray:
    """Positive, so that no root or logarithm meets a negative; small, so that no chain of products overflows."""
    values = synthetic_like(kind, positive=True)
    if values.dtype.kind in "iub":
        return values
    return np.asarray(values * values.dtype.type(max(1, kind.elements) ** -0.5), dtype=values.dtype)


def _placed(model: Model, folder: Path) -> tuple[ModelProto, Path]:
    """The model on disk beside a sparse file of zeros that stands for every weight: no page of it is ever written."""
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    largest = 0
    for tensor in all_tensors(proto):
        size = omitted_bytes(tensor)
        if size:
            set_location(tensor, _WEIGHTS)
            largest = max(largest, size)
    with (folder / _WEIGHTS).open("wb") as file:
        file.truncate(largest)
    names: set[str] = set()
    for node in proto.graph.node:  # names are what ties the lowered graph to this one
        if not node.name or node.name in names:
            node.name = next((name for name in node.output if name), "")
        names.add(node.name)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return proto, path


def _compile(path: Path, level: str, name: str) -> ModelProto:
    """ONNX Runtime's optimised graph, without the values of its weights."""

    def keep_outside(_: str, value: Any, known: Any) -> Any:
        if known is not None:
            return known
        size = value.tensor_size_in_bytes()
        return ort.OrtExternalInitializerInfo(_WEIGHTS, 0, size) if size > _EMBEDDED_BYTES else None

    try:
        compiler = ort.ModelCompiler(
            _options(RuntimeSettings()),
            str(path),
            graph_optimization_level=_LEVELS[level],
            get_initializer_location_func=keep_outside,
        )
        return onnx.load_from_string(compiler.compile_to_bytes())
    except Exception as error:
        raise _refusal(name, error) from error


def _declared(source: ModelProto, path: Path, names: Sequence[str], name: str) -> dict[str, TensorType]:
    """Static types that ONNX Runtime's own inference gives to values of the source, once constants are folded.

    It knows more than ONNX's: its own operators, and shapes that a model computes. It writes down the types of
    outputs only, so that is what the values become.
    """
    proto = ModelProto()
    proto.CopyFrom(source)
    _add_outputs(proto, names)
    beside = path.with_name("outputs.onnx")
    beside.write_bytes(proto.SerializeToString())
    return output_types(_compile(beside, "basic", name))


def _add_outputs(proto: ModelProto, names: Sequence[str]) -> None:
    known = {port.name for port in proto.graph.output}
    proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name not in known)


def _observe(graph: ModelProto, names: Sequence[str], model: Model) -> dict[str, TensorType]:
    """Types of values that no inference finds, seen by running the graph once on synthetic inputs.

    Raises:
        LoweringError: It does not run, or a value is no tensor.
    """
    proto, weights = _with_values(graph)
    _add_outputs(proto, names)
    try:
        session = open_session(proto.SerializeToString(), RuntimeSettings(level="none"), weights)
        kinds = {port.name: port.type for port in session.get_outputs()}
        found = session.run(list(names), model_inputs(model.inputs))
    except Exception as error:
        raise LoweringError(
            f"{model.name}: the shapes of {', '.join(names)} depend on data, and running the model to see them "
            f"failed ({_first_line(error)}): give fixed shapes with --shape"
        ) from error
    for name in names:
        if not kinds[name].startswith("tensor("):
            raise LoweringError(f"{model.name}: {name} is a {kinds[name]}: costmodel prices tensors only")
    return {name: TensorType(str(value.dtype), tuple(value.shape)) for name, value in zip(names, found, strict=True)}


def _refusal(name: str, error: Exception) -> LoweringError:
    return LoweringError(
        f"{name} is refused by onnxruntime {ort.__version__} ({_first_line(error)}): "
        "export it with operators and an opset that this version runs"
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    line = text[0] if text else type(error).__name__
    # "[ONNXRuntimeError] : 10 : INVALID_GRAPH : Load model from /tmp/... failed:This is ..." - keep the end.
    return _PREFIX.sub("", line).rsplit("failed:", 1)[-1].strip().rstrip(".:")
