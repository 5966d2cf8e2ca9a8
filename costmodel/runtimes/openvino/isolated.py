"""Opens layer sequences in isolation so that OpenVINO runs them as it would inside a model.

Inside a model, a layer finds its input in the layout and element type in which the previous layer left it, and leaves
its output there. A network by itself has plain inputs and outputs of ONNX's types, to which OpenVINO reorders and
converts. These additions avoid that:

- An input or output of type int64 or bool becomes one of int32 or uint8, which OpenVINO uses in their place inside a
  model.
- An input or output in a channels-last layout becomes a plain tensor of permuted shape, with a Transpose between it and
  the layer. OpenVINO recognises that as the same memory if the layer demands that layout, as a convolution does.
- Other layers take the layout of what they read. For them, layers that leave a tensor in the channels-last layout
  produce the input, and the time of the same network without the layers is subtracted. Both networks return single
  elements, equally many: OpenVINO would copy the whole of what is produced, and each output takes a call 1 to 5 us.
- A layer that writes its result to the memory of its input, such as a softmax, may not overwrite what is fed, so that
  OpenVINO would copy it first. Such an input is produced as well, in its own layout.
- A layer without weights to speak of runs once just before each run that is timed: everything else that it touches is
  in the caches inside a model, among it the memory between its primitives, which each network has of its own. With
  several threads every layer does, because the others sleep between two laps: they wake up too late for their part.
- The outputs of all networks lie in the same memory, which is in the caches when a layer writes to it, as memory is
  inside a model, where the runtime uses it again and again. A convolution that adds its result to an input, in the
  memory of that input, cannot write to other memory: of its outputs, a network returns single elements only. Nor may it
  overwrite memory that is fed, so that OpenVINO would copy it first: that input is produced, too.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import cache, lru_cache, reduce
from itertools import accumulate
from typing import Any

import numpy as np
import openvino.opset13 as ops
from openvino import Model

from costmodel.ir.footprint import weight_bytes
from costmodel.ir.fused import expand
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, input_indices
from costmodel.runtimes.base import Runner, RuntimeSettings
from costmodel.runtimes.openvino.executed import added_inputs, adds_result_of, executed_graph, overwritten_inputs
from costmodel.runtimes.openvino.forms import (
    BYTE_RANGES,
    PERMUTED,
    element,
    is_channels_last,
    parameter_of,
    produced,
    production_form,
)
from costmodel.runtimes.openvino.isolated_network import IsolatedNetwork, is_reorder
from costmodel.runtimes.openvino.session import OpenVinoRunner, SurroundedOpenVinoRunner, compile_model
from costmodel.synthetic.aligned_memory import ALIGNMENT_BYTES, aligned_arrays
from costmodel.synthetic.network import value_name

__all__ = ["open_empty", "open_isolated"]

_EMPTY_SIZE = 16
_CACHED_EMPTY = 64
# A layer with fewer bytes of weights finds them in the caches soon enough, so that it is timed warm.
_WARM_BYTES = 512 << 10
# Operators that pass on the memory of their input.
_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")

# Outputs of more bytes are no longer in the caches when their memory is used again inside a model.
_SOON_REUSED_BYTES = 2 << 20


def open_isolated(sequence: LayerSequence, settings: RuntimeSettings) -> Runner:
    """Compiles the network of a sequence and returns its runner.

    Raises:
        Exception: OpenVINO cannot compile the network; the exception is OpenVINO's own.
    """
    if all(layer.op_type in _VIEWS for layer in expand(sequence).layers):
        return open_empty(1, 1, settings)  # an output would be a copy, which there is none of inside a model
    warm = settings.threads > 1 or weight_bytes(sequence) <= _WARM_BYTES
    if is_reorder(sequence) and not _is_producible(sequence.values[sequence.layers[0].inputs[0]].type):
        sequence = _as_transpose(sequence)
    kinds = _blocked_inputs(sequence)
    if not (is_reorder(sequence) and kinds):
        network, compiled = _compiled(sequence, settings)
        graph = executed_graph(compiled)
        if added := added_inputs(graph):
            return _open_in_place(sequence, added & kinds.keys(), settings, warm=warm)
        if not kinds or _is_recognised(compiled):
            if overwritten := {n for n in overwritten_inputs(graph) if network.types[n].dtype == "float32"}:
                return _open_produced(sequence, overwritten, settings, warm=warm)
            return _runner(compiled, network.feeds, _output_memory, settings, warm=warm)
        if not all(_is_producible(sequence.values[i].type) for i in kinds.values()):
            # No convolution produces integers of more than a byte: the layer runs in the plain layout.
            network, compiled = _compiled(_in_plain_layout(sequence), settings)
            return _runner(compiled, network.feeds, _output_memory, settings, warm=warm)
    return _open_produced(sequence, kinds.keys(), settings, warm=warm)


def _open_produced(sequence: LayerSequence, names: Set[str], settings: RuntimeSettings, *, warm: bool) -> Runner:
    """Returns the runner of a sequence some of whose inputs, those of the given names, are produced before it."""
    network = IsolatedNetwork(sequence, outputs=len(names))
    network.feed(producing=names)
    return _produced_runner(network, compile_model(network.model, settings), names, settings, warm=warm)


def _open_in_place(sequence: LayerSequence, added: Set[str], settings: RuntimeSettings, *, warm: bool) -> Runner:
    """Returns the runner of a sequence whose convolution adds its result to an input.

    Args:
        sequence: Sequence to run.
        added: Names of those inputs that are in a channels-last layout.
        settings: Settings of the runtime.
        warm: Whether it runs once just before each run that is timed.
    """
    producible = {name for name in added if _is_producible(sequence.values[_blocked_inputs(sequence)[name]].type)}
    network = IsolatedNetwork(sequence, outputs=max(1, len(producible)))
    network.feed(producing=producible)
    compiled = compile_model(network.model, settings)
    graph = executed_graph(compiled)
    if producible and all(any(adds_result_of(one, graph, name) for one in graph) for name in producible):
        return _produced_runner(network, compiled, producible, settings, warm=warm)
    network = IsolatedNetwork(sequence, outputs=1)
    network.feed()
    return _runner(compile_model(network.model, settings), network.feeds, None, settings, warm=warm)


def _compiled(sequence: LayerSequence, settings: RuntimeSettings) -> tuple[IsolatedNetwork, Any]:
    """Returns the network of a sequence, fed in internal form, and the compiled model."""
    network = IsolatedNetwork(sequence)
    network.feed()
    return network, compile_model(network.model, settings)


def _is_recognised(compiled: Any) -> bool:
    """Returns whether OpenVINO took every Transpose that stands for a layout as the same memory."""
    return not any(
        primitive.kind == "Transpose" and any(PERMUTED in name for name in primitive.operators)
        for primitive in executed_graph(compiled)
    )


def _runner(
    compiled: Any, feeds: Mapping[str, np.ndarray], output_memory: Any, settings: RuntimeSettings, *, warm: bool
) -> Runner:
    if not warm:
        return OpenVinoRunner(compiled, feeds, output_memory)
    # A call whose code and data are in the caches takes less time, too.
    empty = _warm_empty(max(1, len(feeds)), len(compiled.outputs), settings)
    return SurroundedOpenVinoRunner(compiled, feeds, output_memory, empty, warm=True)


def _produced_runner(
    network: IsolatedNetwork, compiled: Any, produced_inputs: Set[str], settings: RuntimeSettings, *, warm: bool
) -> Runner:
    """Returns the runner of a network some of whose inputs are produced, which is timed beside their production."""
    types = {name: network.types[name] for name in sorted(produced_inputs)}
    around = compile_model(_surroundings(types, len(compiled.outputs)), settings)
    fed = {name: network.feeds[name] for name in sorted(produced_inputs)}
    surroundings = OpenVinoRunner(around, fed, _output_memory, warm=warm)
    return SurroundedOpenVinoRunner(compiled, network.feeds, _output_memory, surroundings, warm=warm)


@lru_cache(_CACHED_EMPTY)
def _warm_empty(inputs: int, outputs: int, settings: RuntimeSettings) -> OpenVinoRunner:
    return open_empty(inputs, outputs, settings, warm=True)


def open_empty(inputs: int, outputs: int, settings: RuntimeSettings, *, warm: bool = False) -> OpenVinoRunner:
    """Returns the runner of a network that does next to nothing, with the given numbers of inputs and outputs."""
    fed = [parameter_of(f"input{number}", np.ones(_EMPTY_SIZE, np.float32)) for number in range(inputs)]
    total = reduce(ops.add, fed) if inputs > 1 else ops.negative(fed[0])
    views = [ops.reshape(total, ops.constant([_EMPTY_SIZE, *[1] * (number + 1)]), False) for number in range(outputs)]
    compiled = compile_model(Model(views, fed, "empty"), settings)
    feeds = {f"input{number}": np.ones(_EMPTY_SIZE, np.float32) for number in range(inputs)}
    return OpenVinoRunner(compiled, feeds, _output_memory, warm=warm)


def _blocked_inputs(sequence: LayerSequence) -> dict[str, int]:
    """Returns the indices of the inputs in a channels-last layout, by name."""
    return {value_name(i): i for i in input_indices(sequence) if is_channels_last(sequence.values[i].type)}


def _is_producible(kind: TensorType) -> bool:
    return kind.dtype in ("float32", *BYTE_RANGES)


def _as_transpose(sequence: LayerSequence) -> LayerSequence:
    """Returns a Transpose that moves the same data as a reorder, for element types that no convolution has."""
    (layer,) = sequence.layers
    read, written = (sequence.values[i].type for i in (layer.inputs[0], layer.outputs[0]))
    rank = len(read.shape)
    there, back = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
    last = tuple(read.shape[axis] for axis in there)
    shapes = (last, read.shape) if read.blocked else (read.shape, last)
    order = back if read.blocked else there
    values = [
        replace(sequence.values[i], type=TensorType(kind.dtype, shape))
        for i, kind, shape in zip((layer.inputs[0], layer.outputs[0]), (read, written), shapes, strict=True)
    ]
    transpose = replace(layer, op_type="Transpose", domain="", since=13, attributes={"perm": {"ints": order}})
    return LayerSequence((replace(transpose, inputs=(0,), outputs=(1,)),), tuple(values), (1,))


def _in_plain_layout(sequence: LayerSequence) -> LayerSequence:
    plain = expand(sequence)
    values = tuple(replace(value, type=replace(value.type, blocked=False)) for value in plain.values)
    return LayerSequence(plain.layers, values, plain.outputs)


def _surroundings(types: Mapping[str, TensorType], outputs: int) -> Any:
    """Returns the network that only feeds and produces the given inputs, with at least the given number of outputs."""
    parameters, sources = [], []
    for name, kind in types.items():
        fed = parameter_of(name, production_form(kind, np.zeros(kind.shape, kind.dtype)))
        parameters.append(fed)
        sources.append(produced(fed, kind, name).output(0))
    further = [element(sources[0], number) for number in range(1, outputs - len(sources) + 1)]
    return Model([ops.result(one) for one in (*map(element, sources), *further)], parameters)


@cache
def _output_arena() -> np.ndarray:
    (array,) = aligned_arrays([(np.dtype(np.uint8), (_SOON_REUSED_BYTES,))])
    array[...] = 0
    return array


def _output_memory(sizes: Sequence[int]) -> list[np.ndarray]:
    """Returns memory for outputs of the given numbers of bytes: if they are small, the same memory in each call."""
    starts = [0, *accumulate(-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in sizes)]
    if starts[-1] <= _SOON_REUSED_BYTES:
        return [_output_arena()[start : start + size] for start, size in zip(starts, sizes, strict=False)]
    return aligned_arrays([(np.dtype(np.uint8), (size,)) for size in sizes])
