"""Checks, operator by operator, what the code that prices layers takes for granted.

Each rule in `costmodel.features` and `costmodel.ir.footprint` that reads a particular input or attribute of a layer has
its preconditions here and may rely on them. As in those rules, operators are
identified by their name alone, regardless of the domain.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from math import prod

from google.protobuf.message import DecodeError
from onnx import GraphProto

from costmodel.errors import ModelError
from costmodel.ir.attributes import subgraphs
from costmodel.ir.equation import expand_equation
from costmodel.ir.layer_view import LayerView
from costmodel.ir.sequence import LayerSequence, SequenceLayer
from costmodel.serving.validation.tensors import fault_of_type

__all__ = ["fault_of_preconditions"]

# A precondition returns what is wrong with a layer, as a predicate that follows the name of the layer, or None.
Precondition = Callable[[LayerView], str | None]

_MOST_STEPS = 2**96  # maximum number of multiply-adds of an Einsum: far beyond what any machine can compute
_MOST_OPERANDS = 16  # maximum number of inputs of a matrix product, including scales and zero points


def _tensor(slot: int, least: int = 0, most: int | None = None) -> Precondition:
    """Returns the precondition that a layer has an input at a given position, and that its rank is in a given range.

    Args:
        slot: Position of the input.
        least: Minimum rank.
        most: Maximum rank; None for no maximum.
    """

    def fault(view: LayerView) -> str | None:
        if not view.has_input(slot):
            return f"lacks its input {slot}"
        return _fault_of_rank(f"its input {slot}", len(view.input_shape(slot)), least, most)

    return fault


def _result_rank(least: int, most: int | None = None) -> Precondition:
    """Returns the precondition that a layer's first result has a rank from `least` to `most` (None: no maximum)."""
    return lambda view: _fault_of_rank("its result", len(_result_shape(view)), least, most)


def _fault_of_rank(what: str, rank: int, least: int, most: int | None) -> str | None:
    if rank < least or (most is not None and rank > most):
        wanted = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        return f"must have {wanted} dimensions in {what}, not {rank}"
    return None


def _result_shape(view: LayerView) -> tuple[int, ...]:
    """Returns the shape of the first of a layer's outputs that is not absent."""
    return next(value.type.shape for value in view.outputs if value is not None)


def _first_input_shape(view: LayerView) -> tuple[int, ...] | None:
    """Returns the shape of the first of a layer's inputs that is not absent; None if it has no inputs."""
    return next((value.type.shape for value in view.inputs if value is not None), None)


def _positive_attribute(name: str) -> Precondition:
    """Returns the precondition that a layer has the attribute `name`, an integer of 1 or more."""

    def fault(view: LayerView) -> str | None:
        given = view.attributes.get(name, {}).get("i")
        return None if given is not None and given >= 1 else f"must have the attribute {name}, 1 or more"

    return fault


def _grouped(weight: int) -> Precondition:
    """Returns the precondition that a convolution's number of groups divides the first dimension of its filter.

    Args:
        weight: Position of the filter among the inputs.
    """

    def fault(view: LayerView) -> str | None:
        group, channels = view.integer("group", 1), view.input_shape(weight)[0]
        return f"has {group} groups, which do not divide its {channels} channels" if channels % group else None

    return fault


def _same_rank(slot: int) -> Precondition:
    """Returns the precondition that a layer's first result has the same rank as its input at position `slot`."""

    def fault(view: LayerView) -> str | None:
        rank = len(view.input_shape(slot))
        return _fault_of_rank("its result", len(_result_shape(view)), rank, rank)

    return fault


def _valid_window(view: LayerView) -> str | None:
    """Requires that the attributes of a convolution or pooling fit the number of spatial axes of its first input.

    The attributes kernel_shape, strides and dilations, if present, must have one entry for each of these axes, and pads
    two.
    """
    data = _first_input_shape(view)
    spatial = 0 if data is None else len(data) - 2
    for name, sides in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("pads", 2)):
        given = view.attributes.get(name, {}).get("ints")
        if given is not None and len(given) != sides * spatial:
            return f"must have {sides * spatial} integers as its attribute {name}, not {len(given)}"
    return None


def _kernel_within(view: LayerView) -> str | None:
    """Requires that the attribute kernel_shape has at most as many entries as the first input has axes."""
    kernel, axes = view.attributes["kernel_shape"].get("ints", ()), len(_first_input_shape(view) or ())
    if len(kernel) > axes:
        return f"must have at most {axes} integers as its attribute kernel_shape, not {len(kernel)}"
    return None


def _limited_inputs(view: LayerView) -> str | None:
    """Requires that a layer has at most `_MOST_OPERANDS` inputs, because the rule for its work loops over them."""
    return f"has more than {_MOST_OPERANDS} inputs" if len(view.inputs) > _MOST_OPERANDS else None


def _valid_permutation(view: LayerView) -> str | None:
    """Requires that the attribute perm, if present, is a permutation of the axes of the first input."""
    rank, order = len(view.input_shape(0)), view.attributes.get("perm", {}).get("ints")
    if order is not None and sorted(order) != list(range(rank)):
        return f"must name each of {rank} axes once in its attribute perm"
    return None


def _valid_axis(beyond: int = 0) -> Precondition:
    """Returns the precondition that the attribute axis, if present, is an axis of the layer's first input.

    Args:
        beyond: Number by which the axis may exceed the last axis of the input.
    """

    def fault(view: LayerView) -> str | None:
        axis, data = view.attributes.get("axis", {}).get("i"), _first_input_shape(view)
        if axis is None or not data or -len(data) <= axis < len(data) + beyond:
            return None
        return f"has the axis {axis}, and its input has {len(data)} dimensions"

    return fault


def _valid_axes(view: LayerView) -> str | None:
    """Requires that the axes that a reduction names are axes of its first input, each named at most once."""
    data = _first_input_shape(view)
    axes = view.attributes.get("axes", {}).get("ints")
    if axes is None:
        axes = view.input_data(1)
    if not axes or not data:
        return None
    rank = len(data)
    if not all(type(axis) is int and -rank <= axis < rank for axis in axes):
        return f"must have integers from {-rank} to {rank - 1} as its axes"
    return "names one of its axes twice" if len({axis % rank for axis in axes}) < len(axes) else None


def _valid_equation(view: LayerView) -> str | None:
    """Requires that the equation of an Einsum layer fits its inputs and its result.

    The equation must have one letter for each dimension, and all dimensions with the same letter must have the same
    size, or size 1.
    """
    equation = view.attributes.get("equation", {}).get("s")
    if equation is None:
        return "lacks its attribute equation"
    missing = next((slot for slot, value in enumerate(view.inputs) if value is None), None)
    if missing is not None:
        return f"lacks its input {missing}"
    shapes = [value.type.shape for value in view.inputs if value is not None]
    try:
        terms, result = expand_equation(equation, [len(shape) for shape in shapes])
    except ModelError as error:
        return f"has {error}"
    sizes: dict[str, int] = {}
    for letter, size in zip("".join(terms), chain.from_iterable(shapes), strict=True):
        known = sizes.setdefault(letter, size)
        if 1 not in (size, known) and size != known:
            name = letter if letter.isalpha() else "its ellipsis"
            return f"has the sizes {known} and {size} for {name} in its equation"
        sizes[letter] = max(known, size)
    if len(result) != len(_result_shape(view)):
        return f"has an equation for a result of {len(result)} dimensions, not {len(_result_shape(view))}"
    return "has an equation of absurdly many steps" if prod(sizes.values()) > _MOST_STEPS else None


def _valid_heads(view: LayerView) -> str | None:
    """Requires that, if the result has three dimensions, the number of attention heads divides the last one."""
    shape = _result_shape(view)
    if len(shape) != 3:
        return None
    heads = view.integer("num_heads", view.integer("q_num_heads", 1))
    if not heads or shape[-1] % heads:
        return f"must have heads that divide the {shape[-1]} columns of its result"
    return None


def _valid_keys(past: int) -> Precondition:
    """Returns the precondition that the inputs of an attention layer have the axis that says how many keys there are.

    Input 1 has keys, or packed weights if its rank is 2; input 0 must then have the axis. The input at position `past`,
    which may be absent, has the keys of earlier runs of the model.

    Args:
        past: Position of the input with the keys of earlier runs.
    """

    def fault(view: LayerView) -> str | None:
        if len(_result_shape(view)) not in (3, 4):
            return None
        if view.has_input(1):
            lacking = _tensor(1, 2)(view)
            if lacking is None and len(view.input_shape(1)) == 2:
                lacking = _tensor(0, 1)(view)
            if lacking is not None:
                return lacking
        return _tensor(past, 2)(view) if view.has_input(past) else None

    return fault


def _valid_bodies(view: LayerView) -> str | None:
    """Requires that the subgraphs of a layer are graphs, and that the tensors that they declare are not absurdly large.

    A dimension without a size, which may be a negative number, counts as 1.
    """
    try:
        bodies = subgraphs(view.attributes)
    except DecodeError:
        return "has a subgraph that is no ONNX graph"
    for dimensions in (declared for body in bodies for declared in _declared_shapes(body)):
        fault = fault_of_type("float64", [max(1, dimension) for dimension in dimensions])
        if fault is not None:
            return f"has a subgraph with a tensor that {fault}"
    return None


def _declared_shapes(body: GraphProto) -> Iterator[Sequence[int]]:
    """Yields the shapes of the constants, inputs and outputs of a subgraph, 0 for a dimension without a size."""
    for tensor in body.initializer:
        yield tensor.dims
    for port in (*body.input, *body.output):
        yield [dimension.dim_value for dimension in port.type.tensor_type.shape.dim]


def _convolution(weight: int = 1) -> Sequence[Precondition]:
    return (_tensor(weight, 3), _same_rank(weight), _grouped(weight), _valid_window)


_PRODUCT = (_tensor(0, 1), _tensor(1), _limited_inputs)
_GENERAL_PRODUCT = (_tensor(0, 2, 2), _result_rank(2, 2))
_RECURRENT = (_tensor(0, 3, 3), _tensor(1, 3, 3), _tensor(2, 3, 3))
_POOL = (_tensor(0, 3), _valid_window)
_WITH_AXIS = (_tensor(0), _valid_axis())
_GATHER = (_tensor(0), _tensor(1), _valid_axis())

_PRECONDITIONS: Mapping[str, Sequence[Precondition]] = {
    "Conv": _convolution(),
    "FusedConv": _convolution(),
    "NhwcFusedConv": _convolution(),
    "ConvInteger": _convolution(),
    "QLinearConv": _convolution(weight=3),
    "ConvTranspose": (_tensor(0, 3), _tensor(1, 3), _grouped(1), _valid_window),
    "Gemm": _GENERAL_PRODUCT,
    "FusedGemm": _GENERAL_PRODUCT,
    "QGemm": _GENERAL_PRODUCT,
    "MatMul": _PRODUCT,
    "FusedMatMul": _PRODUCT,
    "MatMulInteger": _PRODUCT,
    "MatMulIntegerToFloat": _PRODUCT,
    "DynamicQuantizeMatMul": _PRODUCT,
    "QLinearMatMul": (*_PRODUCT, _tensor(3)),
    "MatMulNBits": (_tensor(0), _result_rank(1), _positive_attribute("N"), _positive_attribute("K")),
    "LSTM": _RECURRENT,
    "GRU": _RECURRENT,
    "RNN": _RECURRENT,
    "DynamicQuantizeLSTM": _RECURRENT,
    "Einsum": (_valid_equation,),
    "Attention": (_valid_heads, _valid_keys(past=4)),
    "MultiHeadAttention": (_valid_heads, _valid_keys(past=6)),
    "GroupQueryAttention": (_valid_heads, _valid_keys(past=3)),
    "QAttention": (_valid_heads, _valid_keys(past=8)),
    "MaxPool": _POOL,
    "AveragePool": _POOL,
    "LpPool": _POOL,
    "NhwcMaxPool": _POOL,
    "QLinearAveragePool": _POOL,
    "MaxUnpool": _POOL,
    "Scan": (_valid_bodies,),
    "Loop": (_valid_bodies,),
    "If": (_valid_bodies,),
    "LRN": (_tensor(0), _positive_attribute("size")),
    "Pow": (_tensor(0), _tensor(1)),
    "DFT": (_tensor(0),),
    "Transpose": (_tensor(0), _valid_permutation),
    "Softmax": _WITH_AXIS,
    "LogSoftmax": _WITH_AXIS,
    "Hardmax": _WITH_AXIS,
    "Concat": _WITH_AXIS,
    "Split": _WITH_AXIS,
    "ArgMax": _WITH_AXIS,
    "ArgMin": _WITH_AXIS,
    "TopK": _WITH_AXIS,
    "LayerNormalization": _WITH_AXIS,
    "Flatten": (_tensor(0), _valid_axis(beyond=1)),
    "Gather": _GATHER,
    "GatherElements": _GATHER,
    "GatherND": (_tensor(0), _tensor(1)),
    "GatherBlockQuantized": (_tensor(0), _tensor(1)),
    "EmbedLayerNormalization": tuple(_tensor(slot) for slot in (0, 2, 3, 5, 6)),  # embedding tables, scale and shift
}
_REDUCTION = "Reduce"  # prefix of the names of all reductions


def fault_of_preconditions(sequence: LayerSequence, layer: SequenceLayer) -> str | None:
    """Returns why a layer cannot be priced; None if it can.

    The text is a predicate, such as "lacks its input 0", before which the caller puts a name for the layer.

    Args:
        sequence: Layer sequence whose values are valid.
        layer: Layer of the sequence; it has a result, and each of its attributes is valid on its own.
    """
    preconditions = _PRECONDITIONS.get(layer.op_type, ())
    if layer.op_type.startswith(_REDUCTION):
        preconditions = (_valid_axes,)
    if "kernel_shape" in layer.attributes:
        preconditions = (*preconditions, _kernel_within)
    if not preconditions:
        return None
    view = LayerView.of(sequence, layer)
    return next((fault for precondition in preconditions if (fault := precondition(view)) is not None), None)
