"""Versions of operators, and attributes in one form."""

from functools import cache

import onnx.defs
import pytest

from costmodel.operators import COMMON_OPSET, canonical_attributes, opset_for, since_version


@pytest.mark.parametrize(
    ("operator", "dtypes", "one", "other", "same"),
    [
        ("Relu", ("float32",), 9, 18, True),
        ("Conv", ("float32", "float32"), 7, 22, True),
        ("Reshape", ("float32", "int64"), 5, 13, True),
        ("Softmax", ("float32",), 9, 13, False),
        ("Split", ("float32", "int64"), 11, 13, False),
        ("ReduceSum", ("float32", "int64"), 11, 13, False),
        ("Upsample", ("float32", "float32"), 7, 9, False),
        ("If", ("bool",), 13, 16, False),
        ("MaxPool", ("float32",), 8, 22, True),
        ("GridSample", ("float32", "float32"), 16, 20, False),
        ("RoiAlign", ("float32", "float32", "int64"), 10, 16, False),
    ],
)
def test_versions_that_mean_the_same_are_one(
    operator: str, dtypes: tuple[str, ...], one: int, other: int, same: bool
) -> None:
    """A version that merely admits another element type is not another operator."""
    assert (since_version(operator, "", one, dtypes) == since_version(operator, "", other, dtypes)) is same


def test_an_element_type_that_came_late_needs_the_late_version() -> None:
    """Relu on bfloat16 does not exist in the version that Relu on float32 is traced back to."""
    assert since_version("Relu", "", 18, ("bfloat16",)) > since_version("Relu", "", 18, ("float32",))


def test_an_attribute_that_came_late_needs_the_late_version() -> None:
    """MaxPool that rounds up does not exist in the version that knows no rounding."""
    versions = {since_version("MaxPool", "", 22, ("float32",), frozenset(used)) for used in ((), ("ceil_mode",))}
    assert versions == {8, 10}


def test_other_domains_have_one_version() -> None:
    """Domains without history are at version 1."""
    assert since_version("Gelu", "com.microsoft", 17, ("float32",)) == 1


@pytest.mark.parametrize("opset", range(9, 25))
def test_the_opset_of_a_network_means_what_its_layers_mean(opset: int) -> None:
    """Whatever layers one model may hold, the network's opset gives each the meaning that it had."""
    alive = [kind for kind, first in _first_versions().items() if first <= opset]
    layers = [(kind, "", since_version(kind, "", opset, ())) for kind in alive]
    for one in layers:
        together = opset_for([one, ("Relu", "", 6), ("Gelu", "com.microsoft", 1)])
        assert since_version(one[0], "", together, ()) == one[2] or one[0] in ("If", "Loop", "Scan")
        assert together <= max(COMMON_OPSET, opset)
    assert opset_for(layers) <= max(COMMON_OPSET, opset)
    assert all(opset_for(layers) >= since for _, _, since in layers)


@cache
def _first_versions() -> dict[str, int]:
    """The oldest version of each of ONNX's operators that are still alive."""
    alive = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == "" and not schema.deprecated}
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.name in alive:
            first[schema.name] = min(schema.since_version, first.get(schema.name, schema.since_version))
    return first


def test_a_network_of_no_own_operators_has_the_common_opset() -> None:
    """Layers of other domains ask for nothing."""
    assert opset_for([("Gelu", "com.microsoft", 1)]) == COMMON_OPSET


def test_a_default_that_is_written_out_is_no_difference() -> None:
    """Softmax over the last axis is the same whether it says so or not."""
    written = canonical_attributes("Softmax", "", 13, {"axis": {"i": -1}}, [(2, 3)], [(2, 3)])
    assert written == canonical_attributes("Softmax", "", 13, {}, [(2, 3)], [(2, 3)])
    assert written != canonical_attributes("Softmax", "", 13, {"axis": {"i": 0}}, [(2, 3)], [(2, 3)])


def test_windows_are_written_out() -> None:
    """A convolution that implies its kernel, and one that asks for padding by name, say what they do in numbers."""
    shapes = [(1, 3, 10, 10), (8, 3, 3, 4)], [(1, 8, 5, 5)]
    attributes = canonical_attributes(
        "Conv", "", 1, {"auto_pad": {"s": "SAME_UPPER"}, "strides": {"ints": [2, 2]}}, *shapes
    )
    assert attributes == {
        "dilations": {"ints": [1, 1]},
        "kernel_shape": {"ints": [3, 4]},
        "pads": {"ints": [0, 1, 1, 1]},
        "strides": {"ints": [2, 2]},
    }
    lower = canonical_attributes("Conv", "", 1, {"auto_pad": {"s": "SAME_LOWER"}, "strides": {"ints": [2, 2]}}, *shapes)
    assert lower["pads"] == {"ints": [1, 1, 0, 1]}
