"""Versions of operators, and normalised attributes."""

from functools import cache

import hypothesis.strategies as st
import onnx.defs
import pytest
from hypothesis import given

from costmodel.ir.operators import COMMON_OPSET, canonical_attributes, opset_for, since_version

OPSETS = range(7, 27)


@cache
def _first_versions() -> dict[str, int]:
    """Returns the oldest version of each current ONNX operator."""
    alive = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == "" and not schema.deprecated}
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.name in alive:
            first[schema.name] = min(schema.since_version, first.get(schema.name, schema.since_version))
    return first


@pytest.mark.parametrize(
    ("operator", "one", "other", "same"),
    [
        ("Relu", 9, 12, True),
        ("Relu", 12, 13, False),
        ("Softmax", 11, 12, True),
        ("Softmax", 9, 13, False),
        ("AveragePool", 11, 18, True),
        # Eight times slower in onnxruntime from this version on.
        ("AveragePool", 18, 19, False),
        ("MaxPool", 12, 21, True),
        ("Reshape", 5, 13, False),
        # Their subgraphs depend on the opset of the model.
        ("If", 14, 15, False),
        ("Loop", 14, 15, False),
        ("Scan", 14, 15, False),
    ],
)
def test_layers_of_two_versions_are_two_layers(operator: str, one: int, other: int, same: bool) -> None:
    """Versions of an operator are different layers, because kernels may differ; opsets between them are not."""
    assert (since_version(operator, "", one) == since_version(operator, "", other)) is same


@given(st.sampled_from(sorted(_first_versions())), st.sampled_from(OPSETS))
def test_the_version_of_an_operator_is_that_of_its_opset(operator: str, opset: int) -> None:
    """The version equals that of ONNX's own look-up, for both names of the default domain."""
    if opset < _first_versions()[operator] or operator in ("If", "Loop", "Scan"):
        return
    expected = onnx.defs.get_schema(operator, opset, "").since_version
    assert since_version(operator, "", opset) == since_version(operator, "ai.onnx", opset) == expected


def test_other_domains_have_one_version() -> None:
    """Operators of domains without history have version 1."""
    assert since_version("Gelu", "com.microsoft", 17) == 1


@given(st.data(), st.sampled_from(OPSETS))
def test_the_opset_of_a_network_means_what_its_layers_mean(data: st.DataObject, opset: int) -> None:
    """The opset of a runnable network gives each of its layers the version that it had in its model."""
    alive = sorted(kind for kind, first in _first_versions().items() if first <= opset)
    kinds = data.draw(st.lists(st.sampled_from(alive), min_size=1, max_size=8))
    layers = [(kind, "", since_version(kind, "", opset)) for kind in kinds]
    together = opset_for([*layers, ("Gelu", "com.microsoft", 1)])
    assert together <= opset
    assert [since_version(kind, "", together) for kind in kinds] == [since for _, _, since in layers]


def test_a_network_of_no_own_operators_has_the_common_opset() -> None:
    """A network with layers of other domains only has the default opset."""
    assert opset_for([("Gelu", "com.microsoft", 1)]) == COMMON_OPSET


def test_no_network_is_older_than_what_the_runtime_runs() -> None:
    """No network's opset is below the runtime's oldest, where an unchanged operator means the same."""
    assert opset_for([("Relu", "", 6)]) == 7
    assert since_version("Relu", "", 7) == 6


def test_a_default_that_is_written_out_is_no_difference() -> None:
    """An explicit default, such as Softmax's axis, does not change a layer."""
    written = canonical_attributes("Softmax", "", 13, {"axis": {"i": -1}}, [(2, 3)], [(2, 3)])
    assert written == canonical_attributes("Softmax", "", 13, {}, [(2, 3)], [(2, 3)])
    assert written != canonical_attributes("Softmax", "", 13, {"axis": {"i": 0}}, [(2, 3)], [(2, 3)])


def test_windows_are_written_out() -> None:
    """Implied kernels and named padding modes are replaced by numbers."""
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
