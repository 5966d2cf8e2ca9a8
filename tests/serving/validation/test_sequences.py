"""Validation of layers that clients describe: what it accepts, and its messages."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from costmodel.errors import ModelError
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.serving.validation.sequences import check_sequence
from tests.zoo import ZOO

DATA = Path(__file__).parents[3] / "data"
LONGEST_MESSAGE = 300

CONV: dict[str, Any] = {
    "layers": [
        {
            "op": "Conv", "domain": "", "since": 11, "captured": 0, "in": [0, 1], "out": [2],
            "attrs": {
                "kernel_shape": {"ints": [3, 3]}, "strides": {"ints": [1, 1]}, "dilations": {"ints": [1, 1]},
                "pads": {"ints": [1, 1, 1, 1]}, "group": {"i": 2},
            },
        },
    ],
    "values": [
        ["float32", [1, 8, 9, 9], 0, "input", None],
        ["float32", [16, 4, 3, 3], 0, "constant", None],
        ["float32", [1, 16, 9, 9], 0, "internal", None],
    ],
    "outputs": [2],
}  # fmt: skip


def single(op: str, inputs: list[Any], made: list[int], attrs: dict[str, Any], **besides: Any) -> dict[str, Any]:
    """Returns one layer with inputs of these shapes, None where absent; a shape may come with data."""
    values, slots = [], []
    for given in inputs:
        slots.append(-1 if given is None else len(values))
        if isinstance(given, tuple):
            values.append(["int64", given[0], 0, "constant", given[1]])
        elif given is not None:
            values.append(["float32", given, 0, "input", None])
    values.append(["float32", made, 0, "internal", None])
    out = len(values) - 1
    layer = {"op": op, "domain": "", "since": 1, "captured": 0, "in": slots, "out": [out], "attrs": attrs} | besides
    return {"layers": [layer], "values": values, "outputs": [out]}


def changed(*path: Any, to: Any) -> dict[str, Any]:
    """Returns the convolution with another value at a path of its document."""
    document = deepcopy(CONV)
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return document


def sequence_of(document: dict[str, Any]) -> LayerSequence:
    """Returns the sequence of a document without validation."""
    return LayerSequence(
        tuple(
            SequenceLayer(
                one["op"],
                one["domain"],
                one["since"],
                one["attrs"],
                tuple(one["in"]),
                tuple(one["out"]),
                one["captured"],
            )
            for one in document["layers"]
        ),
        tuple(
            Value(TensorType(dtype, tuple(shape), bool(blocked)), role, None if data is None else tuple(data))
            for dtype, shape, blocked, role, data in document["values"]
        ),
        tuple(document["outputs"]),
    )


def attribute(name: str, content: Any) -> dict[str, Any]:
    """Returns the convolution with another value of an attribute."""
    return changed("layers", 0, "attrs", name, to=content)


def value(place: int, item: int, to: Any) -> dict[str, Any]:
    """Returns the convolution with another element type (0), shape (1), layout (2), role (3) or data (4) of a value."""
    return changed("values", place, item, to=to)


def test_a_convolution_is_accepted() -> None:
    """The convolution on which the refused variants are based is accepted."""
    check_sequence(sequence_of(CONV))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", 1, -0.5])
def test_numbers_that_json_does_not_have_are_named(number: float | str) -> None:
    """Infinity and NaN are accepted in the text form that attributes use for them."""
    check_sequence(sequence_of(single("Elu", [[2]], [2], {"alpha": {"f": number}})))
    held = {"v": {"t": {"dtype": "float16", "shape": [1], "data": [number]}}, "w": {"floats": [number, 1.0]}}
    check_sequence(sequence_of(single("Ours", [], [1], held)))


REFUSED = {
    # Structure
    "no layers": (changed("layers", to=[]), "has no layers"),
    "no outputs": (changed("outputs", to=[]), r"begins with Conv has no output"),
    "an input leaves": (changed("outputs", to=[0]), "outputs that are not"),
    "an output twice": (changed("outputs", to=[2, 2]), "outputs that are not"),
    "read before it is made": (changed("layers", 0, "in", to=[2, 1]), "reads the value 2, which nothing before"),
    "an input is made": (changed("layers", 0, "out", to=[0]), "produces the value 0, which is available already"),
    "nothing is made": (changed("layers", 0, "out", to=[-1]), "produces nothing"),
    "never read": (changed("values", to=[*CONV["values"], CONV["values"][0]]), "value 3, which no layer reads"),
    "never made": (changed("values", 1, 3, to="internal"), "reads the value 1"),
    "captures too much": (changed("layers", 0, "captured", to=3), "captures more values than it reads"),
    "too many inputs": (changed("layers", 0, "in", to=[0] * 20_000), "more than 10000 inputs"),
    # Values
    "no element type": (value(0, 0, "float31"), "value 0 .* element type that is not known"),
    "a list for a type": (value(0, 0, ["float32"]), "element type that is not known"),
    "a negative dimension": (value(0, 1, [1, 8, -9, 9]), "no integer from 0"),
    "a dimension that is true": (value(0, 1, [1, 8, True, 9]), "no integer from 0"),
    "a huge tensor": (value(0, 1, [2**20, 8, 2**10, 2**10]), "more than 137438953472 bytes"),
    "huge around nothing": (value(0, 1, [0, *[2**31 - 1] * 20]), "more than 137438953472 bytes"),
    "too many dimensions": (value(0, 1, [1] * 33), "has 33 dimensions"),
    "no role": (value(1, 3, "weight"), "neither an input nor a constant"),
    "a list for a role": (value(1, 3, ["input"]), "neither an input nor a constant"),
    "blocked scalar": (changed("values", 0, to=["float32", [8], 1, "input", None]), "blocked layout"),
    "data of an input": (value(0, 4, [1]), "value 0 .* has values"),
    "too little data": (value(1, 4, [1]), "has 1 values for 576 elements"),
    # Attributes
    "text for a number": (attribute("group", {"s": "2"}), "attribute group, which must be of the kind i"),
    "a Boolean for a number": (attribute("group", {"i": True}), "attribute group, which must be an integer from 1"),
    "no groups": (attribute("group", {"i": 0}), "attribute group, which must be an integer from 1"),
    "two kinds": (attribute("group", {"i": 1, "f": 1.0}), "must be of exactly one kind"),
    "an unknown kind": (attribute("group2", {"x": 1}), "must be of one of the kinds i, f, s"),
    "a long list": (attribute("strides", {"ints": [3] * 200_000}), "strides, which must be a list of 1 to 32"),
    "a stride of 0": (attribute("strides", {"ints": [0, 1]}), "strides, which must be a list of 1 to 32"),
    "a float": (attribute("strides", {"ints": [1.0, 1]}), "strides, which must be a list of 1 to 32"),
    "not defined": (attribute("colour", {"i": 1}), "attribute colour, which is not defined for it"),
    "another kind than defined": (attribute("auto_pad", {"i": 1}), "auto_pad, which must be of the kind s"),
    "no printable name": (attribute("\x00", {"i": 1}), "must have a name that can be printed"),
    "NUL": (attribute("auto_pad", {"s": "a\x00"}), "without NUL"),
    "half a surrogate pair": (attribute("auto_pad", {"s": "\ud800"}), "must be a text"),
    "infinity": (single("Elu", [[2]], [2], {"alpha": {"f": float("inf")}}), "Elu.* alpha, which must be a n"),
    "NaN": (single("Elu", [[2]], [2], {"alpha": {"f": float("nan")}}), "Elu.* alpha, which must be a n"),
    "a number by another name": (single("Elu", [[2]], [2], {"alpha": {"f": "nan"}}), "Elu.* alpha, which must be a n"),
    "a name for an integer": (
        single("Ours", [], [1], {"v": {"t": {"dtype": "int8", "shape": [1], "data": ["NaN"]}}}), "int8 cannot hold",
    ),
    "beyond float32": (single("Elu", [[2]], [2], {"alpha": {"f": 1e308}}), "Elu.* alpha, which must be a n"),
    "a subgraph that is none": (single("Ours", [], [1], {"body": {"g": "?"}}), "body, which must be base64"),
    "a tensor with data of others": (
        single("Ours", [], [1], {"v": {"t": {"dtype": "int8", "shape": [1], "data": [128]}}}), "int8 cannot hold",
    ),
    "a tensor without a type": (single("Ours", [], [1], {"v": {"t": {"shape": [1]}}}), "the keys dtype, shape"),
    # What operators need
    "no filter": (changed("layers", 0, "in", to=[0]), r"layer 0 \(Conv\) lacks its input 1"),
    "no filter, elsewhere": (
        single("Conv", [[1, 8, 9, 9]], [1, 8, 9, 9], {}, domain="com.example"), r"\(Conv\) lacks its input 1",
    ),
    "a flat filter": (value(1, 1, [16, 4]), "must have 3 or more dimensions in its input 1, not 2"),
    "a flat result": (value(2, 1, [1, 16]), "must have 4 dimensions in its result, not 2"),
    "groups that do not divide": (attribute("group", {"i": 3}), "3 groups, which do not divide its 16 channels"),
    "a long kernel": (attribute("kernel_shape", {"ints": [3] * 3}), "have 2 integers as its attribute kernel_shape"),
    "one pad": (attribute("pads", {"ints": [1]}), "must have 4 integers as its attribute pads"),
    "a power of nothing": (single("Pow", [[2], None], [2], {}), "lacks its input 1"),
    "too many inputs for it": (single("Relu", [[2], [2]], [2], {}), "has 2 inputs, and 1 are defined"),
    "no size": (single("LRN", [[1, 8, 9, 9]], [1, 8, 9, 9], {}), "lacks its attribute size"),
    "an axis beyond": (single("Softmax", [[2, 3]], [2, 3], {"axis": {"i": 2}}, since=13), "has the axis 2"),
    "no permutation": (single("Transpose", [[2, 3]], [3, 2], {"perm": {"ints": [1, 1]}}), "each of 2 axes once"),
    "an axis twice": (single("ReduceSum", [[2, 3]], [2], {"axes": {"ints": [1, -1]}}), "one of its axes twice"),
    "an axis that is no number": (
        single("ReduceAll", [[2, 3], ([1], [7])], [2], {}), "integers from -2 to 1 as its axes",
    ),
    "an equation of other ranks": (
        single("Einsum", [[2, 3], [3]], [2], {"equation": {"s": "ij,jk->i"}}, since=12), "not fit the 1 dimensions",
    ),
    "an equation of other sizes": (
        single("Einsum", [[2, 3], [4]], [2], {"equation": {"s": "ij,j->i"}}, since=12), "sizes 3 and 4 for j",
    ),
    "an equation without end": (
        single("Einsum", [[2**30, 2]] * 4, [], {"equation": {"s": "ab,cd,ef,gh->"}}, since=12),
        "absurdly many steps",
    ),
    "no heads": (
        single("MultiHeadAttention", [[1, 2, 8]], [1, 2, 8], {"num_heads": {"i": 0}}, domain="com.microsoft"),
        "heads that divide the 8 columns",
    ),
    "no columns": (
        single("MatMulNBits", [[1, 8], [4, 1, 4], [4]], [1, 4], {"K": {"i": 8}}, domain="com.microsoft"),
        "must have the attribute N",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused(kind: str) -> None:
    """A refusal is one short sentence that names the operator and the fault."""
    document, sentence = REFUSED[kind]
    with pytest.raises(ModelError, match=sentence) as refused:
        check_sequence(sequence_of(document))
    assert len(str(refused.value)) < LONGEST_MESSAGE


def test_a_message_does_not_repeat_what_was_sent() -> None:
    """Long names are truncated in messages."""
    for document in (
        changed("layers", 0, "op", to="Conv" * 1000),
        changed("layers", 0, "domain", to="\n" * 5000),
        attribute("strides" * 1000, {"ints": [1]}),
        changed("layers", 0, "since", to="x" * 5000),
    ):
        with pytest.raises(ModelError) as refused:
            check_sequence(sequence_of(document))
        assert len(str(refused.value)) < LONGEST_MESSAGE


@pytest.mark.parametrize("path", sorted(DATA.glob("*.parquet")), ids=lambda path: path.stem)
def test_what_was_measured_is_accepted(path: Path) -> None:
    """Sequences of real models and their samples are accepted."""
    texts = pq.read_table(path, columns=["sequence"]).column("sequence").unique().to_pylist()
    for text in texts[::40]:
        if text is not None:
            check_sequence(LayerSequence.from_text(text))


def test_every_operator_of_the_runtime_is_accepted(lower: Callable[..., LayerGraph]) -> None:
    """Every operator is accepted as lowered: alone, with its neighbours and in a whole model."""
    for specimen in ZOO.values():
        for level in ("none", "all"):
            graph = lower(specimen.model(), level)
            for granularity in (1, 3):
                for sequence in decompose("tiny", graph, granularity).unique.values():
                    check_sequence(sequence)
            check_sequence(whole_model(graph))


def test_whole_models_are_accepted(light_name: str, lowered_light: Callable[..., LayerGraph]) -> None:
    """Whole optimised light models are accepted as one sequence."""
    check_sequence(whole_model(lowered_light(light_name)))
