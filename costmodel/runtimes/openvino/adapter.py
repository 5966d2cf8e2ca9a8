"""The OpenVINO adapter: lowers models, and opens layer sequences and whole models on the CPU."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino.opset13 as ops
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from costmodel.errors import LoweringError, MeasurementError
from costmodel.ir.attributes import integer
from costmodel.ir.constants import dtype_name
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence, SequenceLayer
from costmodel.onnx_io.external_data import all_tensors, omitted_bytes, set_location
from costmodel.onnx_io.model import Model
from costmodel.runtimes.base import ProfiledRun, Runner, RuntimeSettings
from costmodel.runtimes.openvino.executed import Primitive, executed_graph
from costmodel.runtimes.openvino.executed_types import in_executed_types
from costmodel.runtimes.openvino.isolated import open_empty, open_isolated
from costmodel.runtimes.openvino.lowering import REVISION, layers_of_primitives, lowered_graph
from costmodel.runtimes.openvino.profiling import profiled_runs
from costmodel.runtimes.openvino.session import OpenVinoRunner, compile_model, core, first_line
from costmodel.runtimes.openvino.views import with_own_views
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.synthetic.values import model_inputs

__all__ = ["OpenVino"]

_SEED = 0
_PATTERN_BYTES = 1 << 20
_STEP_BYTES = 64  # between the beginnings of two weights in a file


class OpenVino:
    """OpenVINO's CPU plugin, behind the interface through which costmodel uses every runtime."""

    name = "openvino"
    version: str = ov.__version__.partition("-")[0]

    def lower(self, model: Model, level: str) -> LayerGraph:
        """Returns the layers that OpenVINO executes; it has one level of optimisation, which `level` does not change.

        The model is compiled with synthetic weights.
        """
        folded, graph = OnnxRuntime().fold(model)
        with _compiled(model.name, folded, RuntimeSettings()) as compiled:
            primitives = executed_graph(compiled)
            return lowered_graph(folded, _as_executed(graph, primitives), primitives)

    def open_sequence(self, sequence: LayerSequence, settings: RuntimeSettings) -> Runner:
        """Loads `sequence` as `costmodel.runtimes.openvino.isolated` describes."""
        if any(_ends_the_process(layer) for layer in sequence.layers):
            raise MeasurementError(
                f"OpenVINO {self.version} ends the process when it runs a one-sided DFT to which a length is given: "
                "pad or cut the signal before, and leave the length out"
            )
        try:
            return open_isolated(sequence, settings)
        except Exception as error:
            raise MeasurementError(f"{sequence.kind} does not load in OpenVINO: {first_line(error)}") from error

    def open_empty(self, inputs: int, outputs: int, settings: RuntimeSettings) -> Runner:
        """Loads a network that adds up its inputs, of 16 numbers each, and returns the sum as each of its outputs."""
        return open_empty(inputs, outputs, settings)

    def open_model(self, model: Model, settings: RuntimeSettings) -> Runner:
        """Loads the whole model as a user would, with its input shapes fixed; missing weights become synthetic ones."""
        with tempfile.TemporaryDirectory(prefix="costmodel-") as folder:
            try:
                if model.weights_missing:
                    content: str | bytes = str(_written_with_weights(model.proto, Path(folder)))
                else:
                    content = str(model.path) if model.original is None else model.original.SerializeToString()
                source = core().read_model(content)
                for tensor in () if model.weights_missing else model.constants:
                    _make_constant(source, tensor)
                source.reshape({name: list(kind.shape) for name, kind in model.inputs.items()})
                compiled = compile_model(source, settings)
                return OpenVinoRunner(compiled, model_inputs(model))
            except Exception as error:
                raise _refusal(model.name, error) from error

    def profile_model(
        self, model: Model, settings: RuntimeSettings, *, runs: int, warm_up_runs: int
    ) -> tuple[ProfiledRun, ...]:
        """Runs a model with synthetic weights and OpenVINO's counters, as `costmodel.runtimes.openvino.profiling` does.

        Layers have the names that `lower` gives them.
        """
        folded, graph = OnnxRuntime().fold(model)
        with _compiled(model.name, folded, settings, counters=True) as compiled:
            primitives = executed_graph(compiled)
            graph = _as_executed(graph, primitives)
            lowered = lowered_graph(folded, graph, primitives)
            layer_of = layers_of_primitives(lowered, graph, primitives)
            runner = OpenVinoRunner(compiled, model_inputs(model))
            names = [layer.name for layer in lowered.layers]
            return profiled_runs(runner, names, layer_of, runs=runs, warm_up_runs=warm_up_runs)

    def fingerprint(self) -> str:
        """Returns the instruction sets on which OpenVINO's choice of primitives depends, and the `REVISION`."""
        return "-".join([*sorted(core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")), f"lowering{REVISION}"])


def _make_constant(source: Any, tensor: TensorProto) -> None:
    """Replaces the parameter of an OpenVINO model that has the name of `tensor` by that constant."""
    parameter = source.input(tensor.name).get_node()
    constant = ops.constant(numpy_helper.to_array(tensor))
    for reader in parameter.output(0).get_target_inputs():
        reader.replace_source_output(constant.output(0))
    source.remove_parameter(parameter)


def _ends_the_process(layer: SequenceLayer) -> bool:
    """Returns whether a layer is a one-sided DFT with a length; whichever other crashes is found by running it."""
    given = len(layer.inputs) > 1 and layer.inputs[1] >= 0
    return layer.op_type == "DFT" and given and bool(integer(layer.attributes, "onesided", 0))


def _as_executed(graph: LayerGraph, primitives: Sequence[Primitive]) -> LayerGraph:
    """Returns a folded model with the element types and the views that OpenVINO's executed graph shows."""
    return with_own_views(in_executed_types(graph, primitives), primitives)


@contextmanager
def _compiled(name: str, folded: ModelProto, settings: RuntimeSettings, *, counters: bool = False) -> Iterator[Any]:
    """Gives a folded model that is compiled with synthetic weights, whose files exist as long as the context.

    Args:
        name: Name of the model, for the error message.
        folded: The model as ONNX's own operators.
        settings: Threads of the runtime.
        counters: Whether OpenVINO counts the time of each primitive.

    Raises:
        LoweringError: OpenVINO does not compile the model.
    """
    with tempfile.TemporaryDirectory(prefix="costmodel-") as folder:
        path = _written_with_weights(folded, Path(folder))
        try:
            compiled = compile_model(core().read_model(path), settings, counters=counters)
        except Exception as error:
            raise _refusal(name, error) from error
        yield compiled


def _written_with_weights(folded: ModelProto, folder: Path) -> Path:
    """Writes a folded model with synthetic weights to a folder and returns its path.

    Weights are external and share one file for each element type. Each begins elsewhere in the file, so that no two are
    equal: OpenVINO would compute products with equal weights once. Zero points of channels are zeros, as those of
    weights usually are.
    """
    proto = ModelProto()
    proto.CopyFrom(folded)
    zero_points = {node.input[2] for node in proto.graph.node if _is_quantising(node) and len(node.input) > 2}
    sizes: dict[str, int] = {}
    starts: dict[str, int] = {}
    for tensor in all_tensors(proto):
        size = omitted_bytes(tensor)
        if size:
            kind = "zeros" if tensor.name in zero_points else dtype_name(tensor.data_type)
            begin = starts.get(kind, 0)
            set_location(tensor, f"{kind}.bin", offset=begin)
            starts[kind] = begin + _STEP_BYTES
            sizes[kind] = max(sizes.get(kind, 0), begin + size)
    for kind, size in sizes.items():
        with (folder / f"{kind}.bin").open("wb") as file:
            pattern = _pattern(kind)
            for _ in range(0, size, len(pattern)) if pattern else ():
                file.write(pattern)
            file.truncate(size)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def _is_quantising(node: NodeProto) -> bool:
    return node.op_type in ("QuantizeLinear", "DequantizeLinear")


def _pattern(kind: str) -> bytes:
    """Returns values of synthetic weights of an element type, which OpenVINO cannot simplify; b"" for zeros."""
    rng = np.random.default_rng(_SEED)
    if kind in ("float32", "float64", "float16"):
        return rng.uniform(0.01, 0.1, _PATTERN_BYTES // np.dtype(kind).itemsize).astype(kind).tobytes()
    if kind in ("int8", "uint8"):
        return rng.integers(1, 100, _PATTERN_BYTES).astype(kind).tobytes()
    if kind == "bool":  # a choice by a mask of equal values is none, and what was to be chosen from is not computed
        return rng.integers(0, 2, _PATTERN_BYTES).astype(np.uint8).tobytes()
    return b""


def _refusal(name: str, error: Exception) -> LoweringError:
    return LoweringError(
        f"{name} is refused by openvino {OpenVino.version} ({first_line(error)}): export it with operators that this "
        "version runs"
    )
