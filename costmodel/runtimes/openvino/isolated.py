"""Opens layer sequences in isolation so that OpenVINO runs them as it would inside a model.

Inside a model, a layer finds its input in the layout in which the previous one left it, and leaves its output there. A
network by itself has plain inputs and outputs, to which OpenVINO reorders. Two additions avoid that: an input in a
channels-last layout is fed as a plain tensor of permuted shape followed by a Transpose, which OpenVINO recognises as
the same memory; and every output is reduced to its first element by a Slice. The networks from which the call overhead
is determined have such a Slice, too, so that its time is not counted.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import openvino.opset13 as ops
from onnx import numpy_helper

from costmodel.ir.fused import expand
from costmodel.ir.sequence import LayerSequence, input_indices, weight_indices
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.openvino.lowering import REORDER_DOMAIN
from costmodel.runtimes.openvino.session import OpenVinoRunner, compile_model, core
from costmodel.synthetic.aligned_memory import aligned_copies
from costmodel.synthetic.index_inputs import index_limits
from costmodel.synthetic.network import build_network, value_name
from costmodel.synthetic.values import synthetic_value

__all__ = ["isolated_model", "open_isolated"]


def open_isolated(sequence: LayerSequence, settings: RuntimeSettings) -> OpenVinoRunner:
    """Compiles the network of a sequence and returns its runner.

    Raises:
        Exception: OpenVINO cannot compile the network; the exception is OpenVINO's own.
    """
    model, feeds = isolated_model(sequence)
    return OpenVinoRunner(compile_model(model, settings), feeds)


def isolated_model(sequence: LayerSequence) -> tuple[Any, dict[str, np.ndarray]]:
    """Returns the `openvino.Model` of a sequence in the layouts of its values, and values for its inputs by name."""
    plain = expand(_without_reorders(sequence))
    weights = [numpy_helper.from_array(synthetic_value(plain, i), value_name(i)) for i in weight_indices(plain)]
    network = build_network(plain, weights=weights)
    limits = index_limits(network.graph)
    feeds = {value_name(i): synthetic_value(plain, i, limits.get(value_name(i))) for i in input_indices(plain)}
    model = core().read_model(network.SerializeToString())
    last = {value_name(i) for i in input_indices(plain) if plain.values[i].type.blocked}
    for parameter in model.get_parameters():
        name = next(iter(set(parameter.output(0).get_names()) & set(feeds)))
        if name in last and len(parameter.shape) > 2:
            feeds[name] = _make_channels_last(model, parameter, name, feeds[name])
    for result in model.get_results():
        _take_first_element(result)
    return model, dict(zip(feeds, aligned_copies(list(feeds.values())), strict=True))


def _without_reorders(sequence: LayerSequence) -> LayerSequence:
    """Returns the sequence with an Identity for each reorder, for which ONNX has no operator."""
    return LayerSequence(
        tuple(
            replace(layer, op_type="Identity", domain="", since=1) if layer.domain == REORDER_DOMAIN else layer
            for layer in sequence.layers
        ),
        sequence.values,
        sequence.outputs,
    )


def _make_channels_last(model: Any, parameter: Any, name: str, values: np.ndarray) -> np.ndarray:
    """Puts an input of permuted shape and a Transpose in the place of an input; returns the values of permuted shape."""
    rank = len(parameter.shape)
    shape = [parameter.shape[axis] for axis in (0, *range(2, rank), 1)]
    last = ops.parameter(shape, parameter.get_element_type())
    transposed = ops.transpose(last, ops.constant([0, rank - 1, *range(1, rank - 1)]))
    for target in parameter.output(0).get_target_inputs():
        target.replace_source_output(transposed.output(0))
    parameter.output(0).set_names(set())
    last.output(0).set_names({name})
    model.add_parameters([last])
    model.remove_parameter(parameter)
    return values.reshape(shape)


def _take_first_element(result: Any) -> None:
    """Makes a result of the network its own first element."""
    source = result.input(0).get_source_output()
    rank = len(source.get_shape())
    if rank and np.prod(list(source.get_shape())) > 1:
        first = ops.slice(source, ops.constant([0] * rank), ops.constant([1] * rank), ops.constant([1] * rank))
        result.input(0).replace_source_output(first.output(0))
