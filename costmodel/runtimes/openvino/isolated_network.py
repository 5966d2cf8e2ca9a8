"""Builds the network of an isolated layer sequence, with inputs and outputs as they are inside a model.

`costmodel.runtimes.openvino.isolated` says which these are, and why.
"""

from collections.abc import Sequence, Set
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import openvino.opset13 as ops
from onnx import numpy_helper

from costmodel.ir.fused import expand
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, input_indices, weight_indices
from costmodel.runtimes.openvino.forms import (
    BYTE_RANGES,
    depthwise,
    depthwise_of_bytes,
    dequantised,
    element,
    flat,
    from_channels_last,
    from_internal,
    internal_form,
    is_channels_last,
    parameter_of,
    produced,
    production_form,
    put_out,
    skip_transposition,
)
from costmodel.runtimes.openvino.lowering import REORDER_DOMAIN
from costmodel.runtimes.openvino.session import core
from costmodel.synthetic.aligned_memory import aligned_copies
from costmodel.synthetic.index_inputs import index_limits
from costmodel.synthetic.network import build_network, value_name
from costmodel.synthetic.values import synthetic_value

__all__ = ["IsolatedNetwork", "is_reorder"]


def is_reorder(sequence: LayerSequence) -> bool:
    """Returns whether a sequence is a change of the layout and nothing else."""
    return len(sequence.layers) == 1 and sequence.layers[0].domain == REORDER_DOMAIN


class IsolatedNetwork:
    """The network of a sequence as an `openvino.Model`.

    Attributes:
        model: The `openvino.Model`.
        feeds: Values of its inputs by name.
        types: Types of its inputs by name, in the layouts in which they are read.
    """

    def __init__(self, sequence: LayerSequence, *, outputs: int | None = None) -> None:
        """Builds the network.

        Args:
            sequence: Sequence to build.
            outputs: None for the outputs of the sequence. If given, the network returns an element of each of them
                instead, and further elements of the first until there are so many, so that OpenVINO chooses their
                memory.
        """
        plain = expand(_without_reorders(sequence))
        zeros = _zero_points(plain)
        values = {i: synthetic_value(plain, i) for i in weight_indices(plain)}
        weights = [
            numpy_helper.from_array(np.zeros_like(value) if i in zeros else value, value_name(i))
            for i, value in values.items()
        ]
        network = build_network(plain, weights=weights)
        limits = index_limits(network.graph)
        indices = input_indices(plain)
        self.types = {value_name(i): plain.values[i].type for i in indices}
        fed = {value_name(i): synthetic_value(plain, i, limits.get(value_name(i))) for i in indices}
        self.feeds: dict[str, np.ndarray] = dict(zip(fed, aligned_copies(list(fed.values())), strict=True))
        self.model = core().read_model(network.SerializeToString())
        if is_reorder(sequence):
            _demand_layout(self.model, plain.values[sequence.layers[0].inputs[0]].type)
        # In the order of the outputs of the network, which is that of the sequence.
        kinds = [plain.values[i].type for i in plain.outputs]
        if is_reorder(sequence):
            kinds = [replace(kind, blocked=False) for kind in kinds]
        results = self.model.get_results()
        if outputs is not None:
            self._return_elements(kinds, outputs)
        for number, (result, kind) in enumerate(zip(results, kinds, strict=True)):
            put_out(result, kind, f"output{number}")

    def _return_elements(self, kinds: Sequence[TensorType], outputs: int) -> None:
        """Returns elements of the results in their place, of the first so many that there are `outputs` in all.

        Args:
            kinds: Types of the results, in the layouts in which the layers leave them.
            outputs: Number of outputs of the network.
        """
        results = self.model.get_results()
        sources = [result.input(0).get_source_output() for result in results]
        if any(is_channels_last(kind) for kind in self.types.values()):
            # The layers would keep the layout that they read; a view has the plain one only.
            sources = [source if kind.blocked else flat(source) for source, kind in zip(sources, kinds, strict=True)]
        for result, source in zip(results, sources, strict=True):
            result.input(0).replace_source_output(element(source))
        self.model.add_results([ops.result(element(sources[0], i)) for i in range(1, outputs - len(results) + 1)])

    def feed(self, *, producing: Set[str] = frozenset()) -> None:
        """Feeds the inputs in the form that they have inside a model.

        Args:
            producing: Names of inputs that layers before them produce.
        """
        for parameter in self.model.get_parameters():
            (name,) = parameter.output(0).get_names() & self.feeds.keys()
            kind = self.types[name]
            values = (production_form if name in producing else internal_form)(kind, self.feeds[name])
            if values is self.feeds[name] and name not in producing:
                continue
            # OpenVINO computes in integers only if nothing comes before the dequantisation.
            last = parameter if name in producing else dequantised(parameter)
            readers, begins = last.output(0).get_target_inputs(), parameter.output(0).get_target_inputs()
            fed = parameter_of(name, values)
            if name in producing:
                inner = produced(fed, kind, name)
            elif last is parameter:
                inner = from_internal(fed, kind, name)
            else:
                inner = from_channels_last(last, kind, name)
            for target in readers:
                target.replace_source_output(inner.output(0))
            if is_channels_last(kind) and name not in producing:
                skip_transposition(inner)
            if last is not parameter:
                for target in begins:
                    target.replace_source_output(fed.output(0))
            parameter.output(0).set_names(set())
            self.model.add_parameters([fed])
            self.model.remove_parameter(parameter)
            self.feeds[name] = values
        self.model.validate_nodes_and_infer_types()


def _zero_points(sequence: LayerSequence) -> set[int]:
    """Returns the indices of zero points, which are zeros if their values are not known, as those of channels are."""
    return {
        layer.inputs[2]
        for layer in sequence.layers
        if layer.op_type in ("QuantizeLinear", "DequantizeLinear") and len(layer.inputs) > 2
    }


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


def _demand_layout(model: Any, kind: TensorType) -> None:
    """Makes the network of an Identity reorder its input: to the plain layout from channels-last, or else to that one.

    A view has the plain layout only. A depthwise convolution demands a channels-last layout; it computes one position.
    """
    target = model.get_results()[0].input(0)
    source = target.get_source_output()
    if kind.blocked:
        shape = [kind.shape[0] * kind.shape[1], prod(kind.shape[2:])]
        target.replace_source_output(ops.reshape(source, ops.constant(shape), False).output(0))
    else:
        convolution = depthwise_of_bytes if kind.dtype in BYTE_RANGES else depthwise
        target.replace_source_output(convolution(source, kind, kind.shape[2:]).output(0))
