"""The tabular encoding of sequences on systems."""

from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from costmodel.decomposition import decompose, whole_model
from costmodel.errors import ModelError
from costmodel.features.bound import bound_us
from costmodel.features.schema import OPERATORS, SCHEMA
from costmodel.features.tabular import Encoder, encode_all
from costmodel.graph import LayerGraph, TensorType
from costmodel.sequence import LayerSequence, SequenceLayer, Value
from costmodel.systems import System
from tests.fakes import elementwise
from tests.synthetic import SYSTEM

Lowered = Callable[[str], LayerGraph]


def features_of(sequence: LayerSequence, system: System = SYSTEM) -> dict[str, float]:
    """The features of a sequence's only layer by name."""
    (row,) = encode_all([sequence], system).features.tolist()
    return dict(zip(SCHEMA.names, row, strict=True))


def on_host(**facts: object) -> System:
    """The system, on a host that differs in some facts."""
    assert SYSTEM.host is not None
    return replace(SYSTEM, host=replace(SYSTEM.host, **facts))  # type: ignore[arg-type]


def test_a_matrix_of_finite_numbers(light_name: str, lowered_light: Lowered) -> None:
    """Every layer of the light models' sequences is a row of finite float32, and the bounds of a sequence add up."""
    graph = lowered_light(light_name)
    sequences = [s for g in (1, 5) for s in decompose(light_name, graph, g).unique.values()]
    encoded = encode_all(sequences, SYSTEM)
    assert encoded.features.dtype == np.float32
    assert encoded.features.shape == (sum(len(s.layers) for s in sequences), len(SCHEMA.names))
    assert np.isfinite(encoded.features).all()
    assert encoded.bounds_us.dtype == np.float64
    assert encoded.lengths.tolist() == [len(s.layers) for s in sequences]
    assert encoded.totals(encoded.bounds_us) == pytest.approx([bound_us(sequence, SYSTEM) for sequence in sequences])


def test_no_sequences_are_a_matrix_without_rows() -> None:
    """Nothing to encode is no special case."""
    encoded = encode_all([], SYSTEM)
    assert len(encoded) == 0
    assert encoded.features.shape == (0, len(SCHEMA.names))
    assert encoded.totals(encoded.bounds_us).shape == (0,)


def test_edges_join_the_layers_of_a_sequence(lowered_light: Lowered) -> None:
    """A chain has one between each two layers; branches meet; nothing leaves its sequence."""
    encoded = encode_all([whole_model(lowered_light("squeezenet")), elementwise(8)], SYSTEM)
    made, read = encoded.edges
    assert (made < read).all()
    assert made.max() < encoded.starts[1]
    assert set(read.tolist()) == set(range(1, int(encoded.starts[1])))


def test_some_sequences_are_what_they_are_alone(light_name: str, lowered_light: Lowered) -> None:
    """Taking sequences out of many, by mask or by position in any order, gives the same as encoding them alone."""
    sequences = list(decompose(light_name, lowered_light(light_name), 5).unique.values())
    encoded = encode_all(sequences, SYSTEM)
    chosen = np.random.default_rng(0).permutation(len(sequences))[: len(sequences) // 2]
    mask = np.isin(np.arange(len(sequences)), chosen)
    for taken, alone in (
        (encoded.take(chosen), encode_all([sequences[i] for i in chosen], SYSTEM)),
        (encoded.take(mask), encode_all([s for s, used in zip(sequences, mask, strict=True) if used], SYSTEM)),
    ):
        assert np.array_equal(taken.features, alone.features)
        assert np.array_equal(taken.bounds_us, alone.bounds_us)
        assert np.array_equal(taken.starts, alone.starts)
        assert {tuple(e) for e in taken.edges.T.tolist()} == {tuple(e) for e in alone.edges.T.tolist()}


@given(
    st.lists(
        st.tuples(st.sampled_from(("Relu", "Exp", "Unheard")), st.lists(st.integers(0, 70), max_size=4)), max_size=30
    ),
    st.integers(1, 30),
    st.lists(st.floats(0, 1e9), min_size=30, max_size=30),
)
def test_what_is_remembered_is_what_is_worked_out(
    layers: list[tuple[str, list[int]]], most: int, footprints: list[float]
) -> None:
    """Whatever was encoded before, in whatever surroundings, and however little is remembered."""
    encoder = Encoder(SYSTEM, most)
    sequences = [elementwise(*shape, op_type=op_type) for op_type, shape in layers]
    for around in (footprints[: len(sequences)], None, footprints[::-1][: len(sequences)]):
        expected, found = encode_all(sequences, SYSTEM, around), encoder.encode(sequences, around)
        assert np.array_equal(found.features, expected.features)
        assert np.array_equal(found.bounds_us, expected.bounds_us)
        assert np.array_equal(found.starts, expected.starts)


def test_longer_sequences_are_remembered_with_their_edges(light_name: str, lowered_light: Lowered) -> None:
    """The second time as the first."""
    sequences = list(decompose(light_name, lowered_light(light_name), 5).unique.values())
    encoder = Encoder(SYSTEM)
    expected = encode_all(sequences, SYSTEM)
    for _ in range(2):
        found = encoder.encode(sequences)
        assert np.array_equal(found.features, expected.features)
        assert np.array_equal(found.edges, expected.edges)


def test_every_layer_has_one_operator(light_name: str, lowered_light: Lowered) -> None:
    """A one-hot code, of the operator that the layer is."""
    for sequence in decompose(light_name, lowered_light(light_name)).unique.values():
        ones = [name for name, value in features_of(sequence).items() if name.startswith("op_") and value]
        assert ones == [f"op_{sequence.kind}"]
        assert features_of(sequence)[ones[0]] == 1


def test_an_unknown_operator_has_a_column_too() -> None:
    """What the schema does not list is `other`, never nothing."""
    assert "Unheard" not in OPERATORS
    assert features_of(elementwise(8, op_type="Unheard"))["op_other"] == 1


def test_the_block_size_of_the_host_does_not_enter(lowered_light: Lowered) -> None:
    """A blocked layer has logical shapes: an AVX-512 host differs from an AVX2 one in what its vectors leave over."""
    sequences = decompose("squeezenet", lowered_light("squeezenet")).unique.values()
    wide, narrow = on_host(isa=("avx", "avx2", "avx512f")), on_host(isa=("avx", "avx2"))
    for sequence in sequences:
        one, other = features_of(sequence, wide), features_of(sequence, narrow)
        differ = {name for name in one if one[name] != other[name]}
        assert "vector_bits" in differ
        assert differ <= {"vector_bits", "columns_waste", "columns_tile_waste", "depth_waste"}


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


def test_the_window_of_a_convolution_is_seen(lowered_light: Lowered) -> None:
    """Kernel, stride and padding of AlexNet's first convolution are those of the paper."""
    first = decompose("bvlc_alexnet", lowered_light("bvlc_alexnet")).pieces
    sequence = next(p.sequence for p in first if p.sequence.kind == "Conv")
    features = features_of(sequence)
    assert (features["kernel_width"], features["stride"]) == (11, 4)
    assert features["log_kernel_area"] == pytest.approx(np.log(121))
    assert features["log_out_channels"] == pytest.approx(np.log(96))
    assert features["depthwise"] == 0


def test_edges_between_sequences_are_bounded() -> None:
    """Long sequences that read each other in full are refused: a product of lengths is not worked out."""
    kind = TensorType("float32", (2,))
    count = 1200
    many = LayerSequence(
        tuple(SequenceLayer("Relu", "", 14, {}, (0,), (i + 1,)) for i in range(count)),
        (Value(kind, "input"), *[Value(kind, "internal")] * count),
        tuple(range(1, count + 1)),
    )
    assert encode_all([many, elementwise()], SYSTEM, needs=[(), (0,)]).edges.shape == (2, count)
    with pytest.raises(ModelError, match="ask for a smaller granularity"):
        encode_all([many, many], SYSTEM, needs=[(), (0,)])
