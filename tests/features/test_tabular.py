"""The tabular encoding of sequences on systems."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from costmodel.decomposition import decompose
from costmodel.features.bound import bound_us
from costmodel.features.schema import OPERATORS, SCHEMA
from costmodel.features.tabular import encode, encode_all
from costmodel.graph import LayerGraph, TensorType
from costmodel.sequence import LayerSequence, SequenceLayer, Value
from costmodel.systems import System
from tests.fakes import elementwise
from tests.synthetic import SYSTEM

Lowered = Callable[[str], LayerGraph]


def features_of(sequence: LayerSequence, system: System = SYSTEM) -> dict[str, float]:
    """The features of one sequence by name."""
    return dict(zip(SCHEMA.names, encode(sequence, system)[0], strict=True))


def on_host(**facts: object) -> System:
    """The system, on a host that differs in some facts."""
    assert SYSTEM.host is not None
    return replace(SYSTEM, host=replace(SYSTEM.host, **facts))  # type: ignore[arg-type]


def test_a_matrix_of_finite_numbers(light_name: str, lowered_light: Lowered) -> None:
    """Every sequence of the light models, of one layer and of five, is a row of finite float32, beside its bound."""
    graph = lowered_light(light_name)
    sequences = [s for g in (1, 5) for s in decompose(light_name, graph, g).unique.values()]
    features, bounds = encode_all(sequences, SYSTEM)
    assert features.dtype == np.float32
    assert features.shape == (len(sequences), len(SCHEMA.names))
    assert np.isfinite(features).all()
    assert bounds.dtype == np.float64
    assert bounds == pytest.approx([bound_us(sequence, SYSTEM) for sequence in sequences])


def test_no_sequences_are_a_matrix_without_rows() -> None:
    """Nothing to encode is no special case."""
    features, bounds = encode_all([], SYSTEM)
    assert features.shape == (0, len(SCHEMA.names))
    assert bounds.shape == (0,)


def test_operator_shares_sum_to_one(light_name: str, lowered_light: Lowered) -> None:
    """One layer is a one-hot code, a longer sequence the mixture that its bounds make."""
    graph = lowered_light(light_name)
    for granularity in (1, 3):
        for sequence in decompose(light_name, graph, granularity).unique.values():
            shares = {name: value for name, value in features_of(sequence).items() if name.startswith("op_")}
            assert sum(shares.values()) == pytest.approx(1)
            assert {name.removeprefix("op_") for name, share in shares.items() if share} <= {
                layer.op_type for layer in sequence.layers
            }
            if len(sequence.layers) == 1:
                assert max(shares.values()) == 1


def test_an_unknown_operator_has_a_column_too() -> None:
    """What the schema does not list is `other`, never nothing."""
    assert "Sinh" not in OPERATORS
    assert features_of(elementwise(8, op_type="Sinh"))["op_other"] == 1


def test_the_block_size_of_the_host_does_not_enter(lowered_light: Lowered) -> None:
    """A blocked layer has logical shapes: an AVX-512 host differs from an AVX2 one in its vectors alone."""
    sequences = decompose("squeezenet", lowered_light("squeezenet")).unique.values()
    wide, narrow = on_host(isa=("avx", "avx2", "avx512f")), on_host(isa=("avx", "avx2"))
    for sequence in sequences:
        one, other = features_of(sequence, wide), features_of(sequence, narrow)
        assert {name for name in one if one[name] != other[name]} == {"vector_bits"}


def test_unknown_caches_are_tolerated() -> None:
    """A host whose caches nobody could read has neutral ratios to them."""
    features = features_of(elementwise(8), on_host(l1d_bytes=0, l2_bytes=0, l3_bytes=0))
    assert [features[f"work_over_l{level}"] for level in (1, 2, 3)] == [0, 0, 0]


def test_a_scalar_and_an_empty_tensor_encode() -> None:
    """No axes and no elements are shapes as any other."""
    for shape in ((), (0,), (0, 3)):
        assert np.isfinite(list(features_of(elementwise(*shape)).values())).all()


def test_faster_systems_are_seen() -> None:
    """Each capability and setting that the bound is made of is a feature too."""
    sequence = elementwise(1000)
    for name, column in (
        ("gemm_gflops", "log_gemm_gflops"), ("memory_gbps", "log_memory_gbps"), ("layer_us", "layer_us"),
    ):  # fmt: skip
        able = {**SYSTEM.capabilities, name: 2 * SYSTEM.capabilities[name]}
        assert features_of(sequence, replace(SYSTEM, capabilities=able))[column] > features_of(sequence)[column]


def test_a_transpose_knows_what_stays_together() -> None:
    """Copying runs of 64 numbers is another thing than copying single ones."""

    def transposed(order: list[int]) -> dict[str, float]:
        layer = SequenceLayer("Transpose", "", 1, {"perm": {"ints": order}}, (0,), (1,))
        shape = (4, 8, 64)
        made = tuple(shape[axis] for axis in order)
        values = (Value(TensorType("float32", shape), "input"), Value(TensorType("float32", made), "internal"))
        return features_of(LayerSequence((layer,), values, (1,)))

    kept, moved = transposed([1, 0, 2]), transposed([0, 2, 1])
    assert (kept["last_axis_kept"], moved["last_axis_kept"]) == (1, 0)
    assert kept["inner_run"] == pytest.approx(np.log(64))
    assert moved["inner_run"] == 0


def test_the_window_of_a_convolution_is_seen(lowered_light: Lowered) -> None:
    """Kernel, stride and padding of AlexNet's first convolution are those of the paper."""
    first = decompose("bvlc_alexnet", lowered_light("bvlc_alexnet")).pieces
    sequence = next(p.sequence for p in first if p.sequence.kind == "Conv")
    features = features_of(sequence)
    assert (features["kernel_area"], features["kernel_width"], features["stride"]) == (121, 11, 4)
    assert features["log_out_channels"] == pytest.approx(np.log(96))
    assert features["depthwise"] == 0
