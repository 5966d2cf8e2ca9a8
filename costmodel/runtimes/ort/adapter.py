"""The ONNX Runtime adapter: lowers models, and opens layer sequences and whole models as sessions on the CPU."""

import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnx import ModelProto, TensorProto, helper

from costmodel.errors import LoweringError, MeasurementError
from costmodel.ir.constants import dtype_name
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.ir.nchwc import NotMaterialisableError, materialise
from costmodel.ir.sequence import LayerSequence
from costmodel.onnx_io.external_data import all_tensors, omitted_bytes, set_location
from costmodel.onnx_io.input_shapes import clear_inferred_shapes
from costmodel.onnx_io.input_values import with_constants
from costmodel.onnx_io.model import Model
from costmodel.onnx_io.shape_inference import output_types
from costmodel.runtimes.base import ProfiledRun, Runner, RuntimeSettings
from costmodel.runtimes.ort.graph import canonical_graph, layer_names
from costmodel.runtimes.ort.inlined import restore_inlined
from costmodel.runtimes.ort.isolated_session import WEIGHTS_FOLDER, open_isolated
from costmodel.runtimes.ort.profiling import profiled_runs
from costmodel.runtimes.ort.provenance import name_nodes
from costmodel.runtimes.ort.session import (
    LEVELS,
    SessionRunner,
    first_line,
    new_session,
    open_session,
    ort_value,
    session_options,
    watched,
)
from costmodel.runtimes.ort.subgraphs import has_blocked_body, has_body, with_bodies_of
from costmodel.runtimes.ort.synthetic_weights import WEIGHTS_FILE, with_synthetic_weights
from costmodel.synthetic.values import model_inputs

__all__ = ["OnnxRuntime"]

# Seconds after which the trial run of a network with a loop is stopped by default.
PATIENCE_S = 60.0
# Lowered models carry values up to this size; larger ones are weights.
_EMBEDDED_BYTES = 1024
# Optimisations at the level "basic" that put an operator in the place of others, or move it: choices of this runtime,
# which another one does not share.
REWRITES = (
    "MatMulAddFusion", "TransposeOptimizer", "GeluFusionL1", "LayerNormFusionL1", "GemmTransposeFusion", "FuseReluClip",
    "PadFusion", "MatmulBNFusion", "QDQPropagationTransformer", "ClipQuantFusion", "ReluQuantRewrite", "GemmSumFusion",
    "DivMulFusion", "NotWhereFusion", "GemmActivationFusion", "WeightBiasQuantization",
    "QDQS8ToU8Transformer", "ConstantSharing", "AttentionFusion", "QuickGelu", "GeluFusion", "LayerNormFusion",
    "SimplifiedLayerNormFusion",
)  # fmt: skip
# Number of layers up to which an error lists the operators of a sequence.
_FEW_LAYERS = 4
# Names of values that an error lists; of more, it says how many.
_NAMED = 3


# What to do about a model that ONNX Runtime refuses, by a part of its message.
_ADVICE = {
    "IR version": "export it with an ir_version that this version reads",
    "is not a registered function/op": "replace the operator by those of ONNX, since costmodel loads no others",
    "is not a graph input": "repair the model, which onnx.checker.check_model examines",
    "Incompatible dimensions": "repair the model, or give other input shapes",
    "ShapeInferenceError": "repair the model, or give other input shapes",
    "TypeInferenceError": "repair the model, which onnx.checker.check_model examines",
}
_GENERAL_ADVICE = "export it with operators and an opset that this version runs"


class OnnxRuntime:
    """ONNX Runtime on the CPU, behind the interface through which costmodel uses every runtime.

    Attributes:
        patience_s: Time in seconds after which the trial run of a network with a loop is stopped and the network
            refused as endless.
    """

    name = "onnxruntime"
    version: str = ort.__version__

    def __init__(self, *, patience_s: float = PATIENCE_S) -> None:
        """Creates the adapter."""
        self.patience_s = patience_s

    def lower(self, model: Model, level: str) -> LayerGraph:
        """Returns the layers that ONNX Runtime executes at the level `level`; never reads weights (docs/adr/0002)."""
        with tempfile.TemporaryDirectory(prefix="costmodel-") as folder:
            source, path = _written_without_weights(model, Path(folder))
            lowered = _compile(path, level, model.name)
            if has_blocked_body(lowered):
                with_bodies_of(lowered, _compile(path, "extended", model.name))
            # The ways to find shapes, cheapest first; each is used only if the previous one left a shape unknown.
            return canonical_graph(
                model.name,
                source,
                lowered,
                declared=lambda names: _declared(source, path, names, model.name),
                observe_source=lambda names: _observe(source, names, model, self.patience_s),
                observe_lowered=lambda names: _observe(lowered, names, model, self.patience_s),
                block=self.block,
            )

    def fold(self, model: Model) -> tuple[ModelProto, LayerGraph]:
        """Returns a model as ONNX's own operators with constants folded and shapes known, for other runtimes to lower.

        Returns:
            The folded model, without the values of its weights, its nodes named after the layers of the graph; and the
            same as a graph of layers.

        Raises:
            LoweringError: ONNX Runtime cannot build the model.
        """
        with tempfile.TemporaryDirectory(prefix="costmodel-") as folder:
            source, path = _written_without_weights(model, Path(folder))
            folded = _compile(path, "basic", model.name, without=REWRITES)
            restore_inlined(folded, source)
            graph = canonical_graph(
                model.name,
                source,
                folded,
                declared=lambda names: _declared(source, path, names, model.name),
                observe_source=lambda names: _observe(source, names, model, self.patience_s),
                observe_lowered=lambda names: _observe(folded, names, model, self.patience_s),
                block=1,
            )
            names = layer_names(source, folded)
            for node in folded.graph.node:
                node.name = names[node.name]
            return folded, graph

    def open_sequence(self, sequence: LayerSequence, settings: RuntimeSettings) -> Runner:
        """Loads `sequence` in this host's blocked layout, as `costmodel.runtimes.ort.isolated_session` describes."""
        try:
            local = materialise(sequence, self.block)
        except NotMaterialisableError as error:
            raise MeasurementError(f"{_in_words(sequence)} cannot run on this host: {error}") from error
        try:
            return open_isolated(local, settings, self.patience_s)
        except Exception as error:
            raise MeasurementError(f"{_in_words(sequence)} does not load: {first_line(error)}") from error

    def open_model(self, model: Model, settings: RuntimeSettings) -> Runner:
        """Loads the whole model as a user would, with symbolic dimensions replaced by numbers."""
        try:
            session, weights = self._model_session(model, settings)
            runner = SessionRunner(session, model_inputs(model), weights)
            if has_body(model.proto):
                runner.check_end(self.patience_s)
            return runner
        except Exception as error:
            raise _refusal(model.name, error) from error

    def profile_model(
        self, model: Model, settings: RuntimeSettings, *, runs: int, warm_up_runs: int
    ) -> tuple[ProfiledRun, ...]:
        """Runs a model under ONNX Runtime's profiler, as `costmodel.runtimes.ort.profiling` describes."""
        try:
            return profiled_runs(model, settings, model_inputs(model), runs=runs, warm_up_runs=warm_up_runs)
        except MeasurementError:
            raise
        except Exception as error:
            raise _refusal(model.name, error) from error

    def _model_session(self, model: Model, settings: RuntimeSettings) -> tuple[Any, object]:
        """Returns a session for the model, and the weights in memory that must live as long as the session, if any."""
        options = session_options(settings, timed=True, concurrent=True)
        if model.weights_missing:
            proto, weights = with_synthetic_weights(model.proto)
            return open_session(proto.SerializeToString(), settings, weights, timed=True, concurrent=True), weights
        if model.reshaped or model.constants:
            declared = ModelProto()
            # Weights in files of their own stay there: they may be larger than what fits into one message.
            declared.CopyFrom(model.original or onnx.load(str(model.path), load_external_data=False))
            _rewrite_inputs(declared, model)
            if model.original is None and model.path is not None:
                options.add_session_config_entry(WEIGHTS_FOLDER, str(model.path.parent))
            return new_session(declared.SerializeToString(), options), None
        for symbol, size in model.symbols.items():
            options.add_free_dimension_override_by_name(symbol, size)
        content = str(model.path) if model.original is None else model.original.SerializeToString()
        return new_session(content, options), None

    def fingerprint(self) -> str:
        """Returns this host's block size as text, such as "block8"; ONNX Runtime's choice of layers depends on it."""
        return f"block{self.block}"

    @cached_property
    def block(self) -> int:
        """Number of channels in a block of this host's NCHWc layout; 1 if the host has no such layout."""
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
                session_options(RuntimeSettings()),
                sample.SerializeToString(),
                graph_optimization_level=LEVELS["all"],
            ).compile_to_bytes()
        )
        # A filter with one output channel is padded to one block.
        return max(int(tensor.dims[0]) for tensor in lowered.graph.initializer)


def _rewrite_inputs(declared: ModelProto, model: Model) -> None:
    """Gives `declared`, which is the model as its author wrote it, the inputs and input shapes of `model`."""
    with_constants(declared, model.constants)
    fixed = {port.name: port for port in model.proto.graph.input}
    for port in declared.graph.input:
        if port.name in model.inputs:
            port.CopyFrom(fixed[port.name])
    clear_inferred_shapes(declared.graph)


def _written_without_weights(model: Model, folder: Path) -> tuple[ModelProto, Path]:
    """Writes the model to `folder` with a sparse file of zeros as weights; returns the written model and its path."""
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    largest = 0
    for tensor in all_tensors(proto):
        size = omitted_bytes(tensor)
        if size:
            set_location(tensor, WEIGHTS_FILE)
            largest = max(largest, size)
    with (folder / WEIGHTS_FILE).open("wb") as file:
        file.truncate(largest)
    name_nodes(proto)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return proto, path


def _compile(path: Path, level: str, name: str, without: Sequence[str] = ()) -> ModelProto:
    """Returns the graph into which ONNX Runtime optimises the model at `path`, without the values of its weights.

    Args:
        path: File of the model.
        level: Optimisation level, one of `costmodel.runtimes.base.LEVELS`.
        name: Name of the model, for error messages.
        without: Names of optimisations that are left out.
    """

    def keep_outside(_: str, value: Any, known: Any) -> Any:
        if known is not None:
            return known
        size = value.tensor_size_in_bytes()
        return ort.OrtExternalInitializerInfo(WEIGHTS_FILE, 0, size) if size > _EMBEDDED_BYTES else None

    try:
        options = session_options(RuntimeSettings())
        options.add_session_config_entry("optimization.disable_specified_optimizers", ";".join(without))
        compiler = ort.ModelCompiler(
            options,
            str(path),
            graph_optimization_level=LEVELS[level],
            get_initializer_location_func=keep_outside,
        )
        return onnx.load_from_string(compiler.compile_to_bytes())
    except Exception as error:
        raise _refusal(name, error) from error


def _declared(source: ModelProto, path: Path, names: Sequence[str], name: str) -> dict[str, TensorType]:
    """Returns the static types that ONNX Runtime's shape inference finds for the values `names` of the source model.

    It finds more types than ONNX's shape inference: those of its own operators and, because it folds constants, shapes
    that a model computes. It reports the types of outputs only, so the values are made outputs of a copy of the model.
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


def _observe(graph: ModelProto, names: Sequence[str], model: Model, patience_s: float) -> dict[str, TensorType]:
    """Returns the types of the values `names`, found by running the graph once on synthetic inputs.

    Raises:
        LoweringError: The graph fails to run, or does not end in time.
    """
    proto, weights = with_synthetic_weights(graph)
    _add_outputs(proto, names)
    try:
        session = open_session(proto.SerializeToString(), RuntimeSettings(level="none"), weights)
        kinds = {port.name: port.type for port in session.get_outputs()}
        feeds = {name: ort_value(array) for name, array in model_inputs(model).items()}
        with watched(patience_s) if has_body(proto) else nullcontext() as options:
            values = session.run_with_ort_values(list(names), feeds, options)
    except Exception as error:
        raise LoweringError(
            f"{model.name}: the shapes of {_some_of(names)} depend on data, and running the model to see them "
            f"failed ({first_line(error, patience_s)}): give fixed shapes with the option shape"
        ) from error
    return {name: _type_of(kinds[name], value) for name, value in zip(names, values, strict=True)}


def _some_of(names: Sequence[str]) -> str:
    """Returns names as a list in a sentence; of many, the first ones and how many there are besides."""
    more = len(names) - _NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMED])} and {more} more"


# Types without a shape, by onnxruntime's name for them.
_SHAPELESS = {"seq": "sequence", "optional": "optional", "map": "map"}


def _type_of(kind: str, value: Any) -> TensorType:
    """Returns the type of a value; `kind` is onnxruntime's name for the type: "tensor(float)", "seq(tensor(float))"."""
    outermost = kind.partition("(")[0]
    if outermost != "tensor":
        return TensorType(_SHAPELESS.get(outermost, outermost), ())
    return TensorType(dtype_name(value.element_type()), tuple(value.shape()))


def _in_words(sequence: LayerSequence) -> str:
    """Returns what an error calls a sequence."""
    number = len(sequence.layers)
    return sequence.kind if number <= _FEW_LAYERS else f"the sequence of {number} layers"


def _refusal(name: str, error: Exception) -> LoweringError:
    reason = first_line(error)
    advice = next((advice for part, advice in _ADVICE.items() if part in reason), _GENERAL_ADVICE)
    return LoweringError(f"{name} is refused by onnxruntime {ort.__version__} ({reason}): {advice}")
