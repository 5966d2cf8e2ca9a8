"""What the code that prices a layer computes with, operator by operator.

Each rule in `features/work.py`, `features/layout.py` and `costmodel/groups.py` that looks at particular inputs or
attributes has its preconditions here, and may rely on them. Operators are known by their name alone, whatever their
domain, as they are there.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod

from costmodel.call import Call
from costmodel.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["fault_of_needs"]

# A need says what is wrong with a call, to follow the name of the layer, or None.
Need = Callable[[Call], str | None]

_MOST_STEPS = 2**96  # multiply-adds of an Einsum: more than any machine does in a lifetime
_MOST_OPERANDS = 16  # of a matrix product, with scales and zero points
_ELLIPSIS = "."


def _tensor(slot: int, least: int = 0, most: int | None = None) -> Need:
    """The input in a slot is there, with a rank from `least` to `most`."""

    def fault(call: Call) -> str | None:
        if not call.has(slot):
            return f"lacks its input {slot}"
        return _fault_of_rank(f"its input {slot}", len(call.shape(slot)), least, most)

    return fault


def _result(least: int, most: int | None = None) -> Need:
    """The first result has a rank from `least` to `most`."""
    return lambda call: _fault_of_rank("its result", len(_made(call)), least, most)


def _fault_of_rank(what: str, rank: int, least: int, most: int | None) -> str | None:
    if rank < least or (most is not None and rank > most):
        wanted = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        return f"must have {wanted} dimensions in {what}, not {rank}"
    return None


def _made(call: Call) -> tuple[int, ...]:
    """Shape of the first result that is there."""
    return next(value.type.shape for value in call.outputs if value is not None)


def _first(call: Call) -> tuple[int, ...] | None:
    """Shape of the first input that is there."""
    return next((value.type.shape for value in call.inputs if value is not None), None)


def _integer(name: str, least: int = 1) -> Need:
    """The attribute is given, and an integer of at least `least`."""

    def fault(call: Call) -> str | None:
        given = call.attributes.get(name, {}).get("i")
        return None if given is not None and given >= least else f"must have the attribute {name}, {least} or more"

    return fault


def _grouped(weight: int) -> Need:
    """The groups share the first dimension of the filter evenly."""

    def fault(call: Call) -> str | None:
        group, channels = call.integer("group", 1), call.shape(weight)[0]
        return f"has {group} groups, which do not divide its {channels} channels" if channels % group else None

    return fault


def _as_many_axes(slot: int) -> Need:
    """The result has the rank of an input."""

    def fault(call: Call) -> str | None:
        rank = len(call.shape(slot))
        return _fault_of_rank("its result", len(_made(call)), rank, rank)

    return fault


def _window(call: Call) -> str | None:
    """Kernel, strides, dilations and pads have an entry for each axis that the window slides along."""
    data = _first(call)
    spatial = 0 if data is None else len(data) - 2
    for name, sides in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("pads", 2)):
        given = call.attributes.get(name, {}).get("ints")
        if given is not None and len(given) != sides * spatial:
            return f"must have {sides * spatial} integers as its attribute {name}, not {len(given)}"
    return None


def _kernel_within(call: Call) -> str | None:
    """A window has no more axes than what it slides over."""
    kernel, axes = call.attributes["kernel_shape"].get("ints", ()), len(_first(call) or ())
    if len(kernel) > axes:
        return f"must have at most {axes} integers as its attribute kernel_shape, not {len(kernel)}"
    return None


def _few_inputs(call: Call) -> str | None:
    """There are no more inputs than the rule looks through."""
    return f"has more than {_MOST_OPERANDS} inputs" if len(call.inputs) > _MOST_OPERANDS else None


def _permutation(call: Call) -> str | None:
    """The order of axes names each axis once."""
    rank, order = len(call.shape(0)), call.attributes.get("perm", {}).get("ints")
    if order is not None and sorted(order) != list(range(rank)):
        return f"must name each of {rank} axes once in its attribute perm"
    return None


def _axis(beyond: int = 0) -> Need:
    """The axis is one of the first input's, or up to `beyond` behind the last."""

    def fault(call: Call) -> str | None:
        axis, data = call.attributes.get("axis", {}).get("i"), _first(call)
        if axis is None or not data or -len(data) <= axis < len(data) + beyond:
            return None
        return f"has the axis {axis}, and its input has {len(data)} dimensions"

    return fault


def _axes(call: Call) -> str | None:
    """The axes are axes of the first input, each named once."""
    data = _first(call)
    axes = call.attributes.get("axes", {}).get("ints")
    if axes is None:
        axes = call.known(1)
    if not axes or not data:
        return None
    rank = len(data)
    if not all(type(axis) is int and -rank <= axis < rank for axis in axes):
        return f"must have integers from {-rank} to {rank - 1} as its axes"
    return "names one of its axes twice" if len({axis % rank for axis in axes}) < len(axes) else None


def _equation(call: Call) -> str | None:
    """Each term has a letter for each dimension of its input; each letter has one size, or is broadcast."""
    equation = call.attributes.get("equation", {}).get("s")
    if equation is None:
        return "lacks its attribute equation"
    terms, arrow, result = equation.replace(" ", "").partition("->")
    terms = terms.split(",")
    if len(terms) != len(call.inputs):
        return f"has an equation of {len(terms)} terms for {len(call.inputs)} inputs"
    sizes: dict[str, int] = {}
    for slot, (term, value) in enumerate(zip(terms, call.inputs, strict=True)):
        fault = _fault_of_term(slot, term, value, sizes)
        if fault is not None:
            return fault
    if arrow and _ELLIPSIS not in result and len(result) != len(_made(call)):
        return f"has an equation for a result of {len(result)} dimensions, not {len(_made(call))}"
    return "has an equation of absurdly many steps" if prod(sizes.values()) > _MOST_STEPS else None


def _fault_of_term(slot: int, term: str, value: Value | None, sizes: dict[str, int]) -> str | None:
    if value is None:
        return f"lacks its input {slot}"
    if _ELLIPSIS in term:
        return None
    if len(term) != len(value.type.shape) or not (term.isalpha() or not term):
        return f"has an equation that does not fit the {len(value.type.shape)} dimensions of its input {slot}"
    for letter, size in zip(term, value.type.shape, strict=True):
        known = sizes.setdefault(letter, size)
        if 1 not in (size, known) and size != known:
            return f"has the sizes {known} and {size} for {letter} in its equation"
        sizes[letter] = max(known, size)
    return None


def _heads(call: Call) -> str | None:
    """A result of three dimensions has heads that share the last one evenly."""
    made = _made(call)
    if len(made) != 3:
        return None
    heads = call.integer("num_heads", call.integer("q_num_heads", 1))
    if not heads or made[-1] % heads:
        return f"must have heads that divide the {made[-1]} columns of its result"
    return None


def _keys(past: int) -> Need:
    """Keys are packed weights of two dimensions, or have a length; so have those of earlier calls."""

    def fault(call: Call) -> str | None:
        if len(_made(call)) not in (3, 4):
            return None
        if call.has(1):
            lacking = _tensor(1, 2)(call)
            if lacking is None and len(call.shape(1)) == 2:
                lacking = _tensor(0, 1)(call)
            if lacking is not None:
                return lacking
        return _tensor(past, 2)(call) if call.has(past) else None

    return fault


def _convolution(weight: int = 1) -> Sequence[Need]:
    return (_tensor(weight, 3), _as_many_axes(weight), _grouped(weight), _window)


_PRODUCT = (_tensor(0, 1), _tensor(1), _few_inputs)
_GENERAL_PRODUCT = (_tensor(0, 2, 2), _result(2, 2))
_RECURRENT = (_tensor(0, 3, 3), _tensor(1, 3, 3), _tensor(2, 3, 3))
_POOL = (_tensor(0, 3), _window)
_ALONG = (_tensor(0), _axis())
_LOOKED_UP = (_tensor(0), _tensor(1), _axis())

_NEEDS: Mapping[str, Sequence[Need]] = {
    "Conv": _convolution(),
    "FusedConv": _convolution(),
    "NhwcFusedConv": _convolution(),
    "ConvInteger": _convolution(),
    "QLinearConv": _convolution(weight=3),
    "ConvTranspose": (_tensor(0, 3), _tensor(1, 3), _grouped(1), _window),
    "Gemm": _GENERAL_PRODUCT,
    "FusedGemm": _GENERAL_PRODUCT,
    "QGemm": _GENERAL_PRODUCT,
    "MatMul": _PRODUCT,
    "FusedMatMul": _PRODUCT,
    "MatMulInteger": _PRODUCT,
    "MatMulIntegerToFloat": _PRODUCT,
    "DynamicQuantizeMatMul": _PRODUCT,
    "QLinearMatMul": (*_PRODUCT, _tensor(3)),
    "MatMulNBits": (_tensor(0), _result(1), _integer("N"), _integer("K")),
    "LSTM": _RECURRENT,
    "GRU": _RECURRENT,
    "RNN": _RECURRENT,
    "DynamicQuantizeLSTM": _RECURRENT,
    "Einsum": (_equation,),
    "Attention": (_heads, _keys(past=4)),
    "MultiHeadAttention": (_heads, _keys(past=6)),
    "GroupQueryAttention": (_heads, _keys(past=3)),
    "MaxPool": _POOL,
    "AveragePool": _POOL,
    "LpPool": _POOL,
    "NhwcMaxPool": _POOL,
    "QLinearAveragePool": _POOL,
    "MaxUnpool": _POOL,
    "LRN": (_tensor(0), _integer("size")),
    "Pow": (_tensor(0), _tensor(1)),
    "DFT": (_tensor(0),),
    "Transpose": (_tensor(0), _permutation),
    "Softmax": _ALONG,
    "LogSoftmax": _ALONG,
    "Hardmax": _ALONG,
    "Concat": _ALONG,
    "Split": _ALONG,
    "ArgMax": _ALONG,
    "ArgMin": _ALONG,
    "TopK": _ALONG,
    "LayerNormalization": _ALONG,
    "Flatten": (_tensor(0), _axis(beyond=1)),
    "Gather": _LOOKED_UP,
    "GatherElements": _LOOKED_UP,
    "GatherND": (_tensor(0), _tensor(1)),
    "GatherBlockQuantized": (_tensor(0), _tensor(1)),
    "EmbedLayerNormalization": tuple(_tensor(slot) for slot in (0, 2, 3, 5, 6)),  # tables, scale and shift
}
_REDUCTION = "Reduce"  # how the names of all of them begin


def fault_of_needs(sequence: LayerSequence, layer: SequenceLayer) -> str | None:
    """What keeps a layer from being priced, to follow its name; None if nothing does.

    Args:
        sequence: One whose values are sound.
        layer: One of its layers that makes something, and whose attributes are sound by themselves.
    """
    needs = _NEEDS.get(layer.op_type, ())
    if layer.op_type.startswith(_REDUCTION):
        needs = (_axes,)
    if "kernel_shape" in layer.attributes:
        needs = (*needs, _kernel_within)
    if not needs:
        return None
    call = Call.of(sequence, layer)
    return next((fault for need in needs if (fault := need(call)) is not None), None)
