"""A runtime in fifty lines: ONNX's reference implementation, which fuses a Relu with the layer before it."""

from collections import Counter

from onnx import ModelProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from costmodel.ir import (
    Layer,
    LayerGraph,
    LayerSequence,
    TensorType,
    dtype_name,
    encode_attribute,
    expand,
    fuse,
    input_indices,
    signature_data,
    since_version,
    weight_indices,
)
from costmodel.onnx_io import Model, infer_model
from costmodel.runtimes import RuntimeSettings
from costmodel.synthetic import build_network, model_inputs, synthetic_value, value_name


class ToyRuntime:
    """ONNX's reference implementation as a runtime."""

    name = "toy"
    version = "1.0"

    def lower(self, model: Model, level: str) -> LayerGraph:
        """Returns each node as a layer, with each Relu fused into the layer whose result only it reads."""
        graph = model.proto.graph
        opset = next(entry.version for entry in model.proto.opset_import if not entry.domain)
        weights = {t.name: TensorType(dtype_name(t.data_type), tuple(t.dims)) for t in graph.initializer}
        types, constants = infer_model(model.proto) | weights, {t.name: signature_data(t) for t in graph.initializer}
        outputs = tuple(port.name for port in graph.output)
        readers = Counter([*outputs, *(name for node in graph.node for name in node.input)])
        layers: list[Layer] = []
        for node in graph.node:
            attributes = {a.name: encode_attribute(a) for a in node.attribute}
            since = since_version(node.op_type, node.domain, opset)
            layer = Layer(node.output[0], node.op_type, "", since, attributes, tuple(node.input), tuple(node.output))
            if node.op_type == "Relu" and layers and layers[-1].outputs == layer.inputs and readers[node.input[0]] == 1:
                layer = fuse(layer.name, [layers.pop(), layer], types, constants, layer.outputs)
            layers.append(layer)
        used = {name for layer in layers for name in (*layer.inputs, *layer.outputs)}
        kept = {name: kind for name, kind in types.items() if name in used}
        return LayerGraph(tuple(layers), kept, constants, tuple(model.inputs), outputs, opset)

    def open_sequence(self, sequence: LayerSequence, settings: RuntimeSettings) -> "ToyRunner":
        """Loads the operators of a sequence."""
        plain = expand(sequence)
        weights = [numpy_helper.from_array(synthetic_value(plain, i), value_name(i)) for i in weight_indices(plain)]
        feeds = {value_name(i): synthetic_value(plain, i) for i in input_indices(plain)}
        return ToyRunner(build_network(plain, weights=weights), feeds)

    def open_model(self, model: Model, settings: RuntimeSettings) -> "ToyRunner":
        """Loads a whole model from its file."""
        return ToyRunner(str(model.path), model_inputs(model))

    def fingerprint(self) -> str:
        """Returns a constant: the reference implementation is the same on every processor."""
        return "any"


class ToyRunner:
    """A loaded network with its inputs."""

    def __init__(self, network: ModelProto | str, feeds: dict[str, object]) -> None:
        self._session, self._feeds = ReferenceEvaluator(network), feeds

    def run(self) -> None:
        """Executes the network once."""
        self._session.run(None, self._feeds)

    def feed(self) -> None:
        """Does nothing, because nothing of a toy depends on caches."""
