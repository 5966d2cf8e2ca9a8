"""Instances of an operator, written as text with concrete sizes, and a model made of many such instances."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import numpy as np
import onnx.parser
import onnx.shape_inference
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, ValueInfoProto, compose, helper, numpy_helper

from costmodel.ir.attributes import bind_captured
from costmodel.ir.constants import data_type_of, dtype_name
from costmodel.ir.graph import ITEM_BYTES, TensorType
from costmodel.synthetic.values import synthetic_tensor
from costmodel.training.corpora.operator_instances.draw import Draw, TooExpensiveError

__all__ = ["Drawer", "Sweep", "mixed_model_of", "model_of", "on_one_input"]

Drawer = Callable[[Draw], str]

_IR_VERSION = 10
_OTHER_DOMAINS = {"com.microsoft": 1, "com.microsoft.nchwc": 1}
_ATTEMPTS = 500
_VALUE = re.compile(r"[\w()]+(?:\[[^\]]*\])?\s+\w+")


@dataclass(frozen=True, slots=True)
class Sweep:
    """An operator and the functions that draw random instances of it, which are graphs with concrete sizes.

    An instance is written as "(float[2,3] x | float[3,4] w) => (float y) { y = MatMul(x, w) }": a graph in ONNX's own
    text form, except that a bar separates inputs from weights.

    Attributes:
        drawers: Functions that return a random instance as text; they take turns.
        count: Number of instances to draw.
        opset: Opset version of ONNX's own operators.
        ml: Opset version of the ai.onnx.ml operators.
        most_bytes: Maximum number of bytes that an instance reads and writes.
        most_weight_bytes: Maximum number of bytes of the weights of an instance, which are in its file.
    """

    drawers: Sequence[Drawer]
    count: int
    opset: int = 21
    ml: int = 3
    most_bytes: int = 64 << 20
    most_weight_bytes: int = 12 << 20

    def texts(self, seed: str) -> list[str]:
        """Returns `count` different random instances of the operator as text, the same ones for the same seed."""
        found: dict[str, None] = {}
        for index in range(self.count):
            drawer = self.drawers[index % len(self.drawers)]
            found[next(text for text in self._drawn(drawer, f"{seed}/{index}") if text not in found)] = None
        return list(found)

    def _drawn(self, drawer: Drawer, seed: str) -> Iterator[str]:
        """Yields the random instances, as text, that `drawer` makes, without those beyond the size limits."""
        for attempt in range(_ATTEMPTS):
            try:
                text = drawer(Draw(f"{seed}/{attempt}"))
            except TooExpensiveError:
                continue
            model, weights = self.parsed(text)
            known = onnx.shape_inference.infer_shapes(model).graph
            moved = sum(map(_bytes_of, (*known.input, *known.value_info, *known.output)))
            if moved <= self.most_bytes and sum(map(_bytes_of, weights)) <= self.most_weight_bytes:
                yield text

    def parsed(self, text: str) -> tuple[ModelProto, list[ValueInfoProto]]:
        """Parses an instance; returns a model whose last inputs are its weights, and the list of these last inputs."""
        fed, bar, rest = text.partition("|")
        imports = {"": self.opset, "ai.onnx.ml": self.ml, **_OTHER_DOMAINS}
        listed = ", ".join(f'"{domain}" : {version}' for domain, version in imports.items())
        header = f"<ir_version: {_IR_VERSION}, opset_import: [{listed}]> sweep "
        comma = "," if _VALUE.search(fed) else ""
        model = onnx.parser.parse_model(header + (fed + comma + rest if bar else text))
        count = len(_VALUE.findall(fed)) if bar else len(model.graph.input)
        return model, list(model.graph.input)[count:]


def on_one_input(shape: str, steps: str, weights: str = "", made: str = "", outputs: str = "float y") -> str:
    """Returns an instance with one input x as text.

    Args:
        shape: Type and shape of x, such as "float[2,3]".
        steps: Nodes, such as "y = Mul(x, w)".
        weights: Weights, such as "float[3] w".
        made: Constants, such as "<int64[1] axes = {2}>".
        outputs: Outputs, such as "float y, float z".
    """
    bar = f" | {weights}" if weights else ""
    return f"({shape} x{bar}) => ({outputs}) {made} {{ {steps} }}"


def model_of(sweep: Sweep, seed: str) -> ModelProto:
    """Returns one model that contains all instances of `sweep`, unconnected to each other.

    Args:
        sweep: Operator and the functions that draw its instances.
        seed: Seed of the instances; the same seed gives the same model.
    """
    return _joined(sweep.parsed(text) for text in sweep.texts(seed))


def mixed_model_of(sweeps: Mapping[str, Sweep], seed: str, most_weight_bytes: int) -> ModelProto:
    """Returns one model with instances of several operators, unconnected to each other.

    The operators take turns, and instances are left out whose weights the model has no room for.

    Args:
        sweeps: Operators by name; all must have the same opset version.
        seed: Seed of the instances; the same seed gives the same model.
        most_weight_bytes: Maximum size of all weights in bytes.
    """
    of_sweeps = [[sweep.parsed(text) for text in sweep.texts(f"{seed}/{name}")] for name, sweep in sweeps.items()]
    chosen, left = [], most_weight_bytes
    for parsed, weights in filter(None, chain.from_iterable(zip_longest(*of_sweeps))):
        nbytes = sum(map(_bytes_of, weights))
        if nbytes <= left:
            chosen.append((parsed, weights))
            left -= nbytes
    return _joined(chosen)


def _joined(instances: Iterable[tuple[ModelProto, list[ValueInfoProto]]]) -> ModelProto:
    """Returns one model that contains all instances, each given as a model and the list of its inputs with weights."""
    whole: ModelProto | None = None
    for index, (parsed, weights) in enumerate(instances):
        constants = [_weight(value) for value in weights]
        del parsed.graph.input[len(parsed.graph.input) - len(constants) :]
        parsed.graph.initializer.extend(constants)
        for position, node in enumerate(parsed.graph.node):
            node.name = f"{node.op_type}_{position}"
        one = compose.add_prefix(parsed, f"i{index}_")
        prefixed = {value.name: f"i{index}_{value.name}" for value in weights}
        for attribute in (attribute for node in one.graph.node for attribute in node.attribute):
            if attribute.type == AttributeProto.GRAPH:
                bind_captured(attribute.g, prefixed)  # add_prefix forgets the weights that bodies read
        if whole is None:
            whole = one
        else:
            _add(whole.graph, one.graph)
    assert whole is not None
    whole.graph.name = "sweep"
    return whole


def _add(to: GraphProto, graph: GraphProto) -> None:
    to.node.extend(graph.node)
    to.input.extend(graph.input)
    to.output.extend(graph.output)
    to.initializer.extend(graph.initializer)


def _weight(value: ValueInfoProto) -> TensorProto:
    """Returns synthetic weights of the given type and shape, of a magnitude as in trained networks.

    They are positive, because quantisation scales must be, except that indices and 4-bit values are 0.
    """
    kind = value.type.tensor_type
    dtype, shape = dtype_name(kind.elem_type), tuple(dim.dim_value for dim in kind.shape.dim)
    values = synthetic_tensor(TensorType(dtype, shape), positive=True)
    if dtype in ("int4", "uint4"):
        packed = np.zeros(-(-values.size // 2), np.uint8).tobytes()
        return helper.make_tensor(value.name, data_type_of(dtype), shape, packed, raw=True)
    if dtype in ("int32", "int64"):
        values = np.zeros(shape, dtype)  # 0 is a valid index into any axis
    elif dtype == "float32" and len(shape) > 1:
        values = values * np.float32(math.prod(shape[1:]) ** -0.5)
    return numpy_helper.from_array(values, value.name)


def _bytes_of(value: ValueInfoProto) -> int:
    """Returns the size of a tensor in bytes; 0 if its shape is unknown."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return 0
    return int(ITEM_BYTES.get(dtype_name(kind.elem_type), 4) * math.prod(dim.dim_value for dim in kind.shape.dim))
