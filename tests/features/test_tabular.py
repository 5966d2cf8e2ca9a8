"""The tabular encoding of sequences on systems."""

from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from costmodel.errors import ModelError
from costmodel.features.analytical_bound import bound_us
from costmodel.features.schema import OPERATORS, SCHEMA
from costmodel.features.tabular import Encoder, encode_all
from costmodel.ir.graph import LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.systems.system import System
from tests.fakes import elementwise
from tests.synthetic import SYSTEM

Lowered = Callable[[str], LayerGraph]


def features_of(sequence: LayerSequence, system: System = SYSTEM) -> dict[str, float]:
    """Returns the features of a sequence's only layer, by name."""
    (row,) = encode_all([sequence], system).features.tolist()
    return dict(zip(SCHEMA.names, row, strict=True))


def on_host(**facts: object) -> System:
    """Returns the system on a host with the given differences."""
    assert SYSTEM.host is not None
    return replace(SYSTEM, host=replace(SYSTEM.host, **facts))  # type: ignore[arg-type]


def test_a_matrix_of_finite_numbers(light_name: str, lowered_light: Lowered) -> None:
    """Each layer is a row of finite float32, and the bounds of a sequence's rows add up to its bound."""
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
    """The encoding of no sequences is a matrix without rows."""
    encoded = encode_all([], SYSTEM)
    assert len(encoded) == 0
    assert encoded.features.shape == (0, len(SCHEMA.names))
    assert encoded.totals(encoded.bounds_us).shape == (0,)


def test_edges_join_the_layers_of_a_sequence(lowered_light: Lowered) -> None:
    """Edges join producer and consumer layers of the same sequence, in chains and branches."""
    encoded = encode_all([whole_model(lowered_light("squeezenet")), elementwise(8)], SYSTEM)
    made, read = encoded.edges
    assert (made < read).all()
    assert made.max() < encoded.starts[1]
    assert set(read.tolist()) == set(range(1, int(encoded.starts[1])))


def test_some_sequences_are_what_they_are_alone(light_name: str, lowered_light: Lowered) -> None:
    """A selection of sequences, by mask or by positions in any order, equals their separate encoding."""
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
    st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=30, max_size=30),
)
def test_what_is_remembered_is_what_is_worked_out(
    layers: list[tuple[str, list[int]]], most: int, footprints: list[tuple[float, float]]
) -> None:
    """Cached rows equal computed ones, whatever was encoded before and however small the cache."""
    encoder = Encoder(SYSTEM, most)
    sequences = [elementwise(*shape, op_type=op_type) for op_type, shape in layers]
    for around in (footprints[: len(sequences)], None, footprints[::-1][: len(sequences)]):
        expected, found = encode_all(sequences, SYSTEM, around), encoder.encode(sequences, around)
        assert np.array_equal(found.features, expected.features)
        assert np.array_equal(found.bounds_us, expected.bounds_us)
        assert np.array_equal(found.starts, expected.starts)


def test_longer_sequences_are_remembered_with_their_edges(light_name: str, lowered_light: Lowered) -> None:
    """A cached sequence of several layers keeps its edges."""
    sequences = list(decompose(light_name, lowered_light(light_name), 5).unique.values())
    encoder = Encoder(SYSTEM)
    expected = encode_all(sequences, SYSTEM)
    for _ in range(2):
        found = encoder.encode(sequences)
        assert np.array_equal(found.features, expected.features)
        assert np.array_equal(found.edges, expected.edges)


def test_every_layer_has_one_operator(light_name: str, lowered_light: Lowered) -> None:
    """Each layer's operator is encoded one-hot."""
    for sequence in decompose(light_name, lowered_light(light_name)).unique.values():
        ones = [name for name, value in features_of(sequence).items() if name.startswith("op_") and value]
        assert ones == [f"op_{sequence.kind}"]
        assert features_of(sequence)[ones[0]] == 1


def test_an_unknown_operator_has_a_column_too() -> None:
    """An operator that the schema does not list is encoded as `other`."""
    assert "Unheard" not in OPERATORS
    assert features_of(elementwise(8, op_type="Unheard"))["op_other"] == 1


def test_the_block_size_of_the_host_does_not_enter(lowered_light: Lowered) -> None:
    """Features of a blocked layer use logical shapes; hosts differ in the vector remainder only."""
    sequences = decompose("squeezenet", lowered_light("squeezenet")).unique.values()
    wide, narrow = on_host(isa=("avx", "avx2", "avx512f")), on_host(isa=("avx", "avx2"))
    for sequence in sequences:
        one, other = features_of(sequence, wide), features_of(sequence, narrow)
        differ = {name for name in one if one[name] != other[name]}
        assert "vector_bits" in differ
        of_vectors = {"vector_bits", "columns_waste", "columns_tile_waste", "depth_waste"}
        assert differ <= of_vectors | {"log_bound_us", "memory_share", "log_slowdown"}


def test_unknown_caches_are_tolerated() -> None:
    """On a host with unknown caches, the ratios to cache sizes are neutral."""
    features = features_of(elementwise(8), on_host(l1d_bytes=0, l2_bytes=0, l3_bytes=0))
    assert [features[f"work_over_l{level}"] for level in (1, 2, 3)] == [0, 0, 0]


def test_a_scalar_and_an_empty_tensor_encode() -> None:
    """Scalars and empty tensors can be encoded."""
    for shape in ((), (0,), (0, 3)):
        assert np.isfinite(list(features_of(elementwise(*shape)).values())).all()


def test_features_distinguish_faster_systems() -> None:
    """Each capability and setting that the bound depends on is a feature too."""
    sequence = elementwise(1000)
    for name, column in (
        ("gemm_gflops", "log_gemm_gflops"), ("memory_gbps", "log_memory_gbps"), ("layer_us", "layer_us"),
    ):  # fmt: skip
        able = {**SYSTEM.capabilities, name: 2 * SYSTEM.capabilities[name]}
        assert features_of(sequence, replace(SYSTEM, capabilities=able))[column] > features_of(sequence)[column]


def test_features_distinguish_the_window_of_a_convolution(lowered_light: Lowered) -> None:
    """Kernel, stride and padding of AlexNet's first convolution are those of the paper."""
    first = decompose("bvlc_alexnet", lowered_light("bvlc_alexnet")).segments
    sequence = next(p.sequence for p in first if p.sequence.kind == "Conv")
    features = features_of(sequence)
    assert (features["kernel_width"], features["stride"]) == (11, 4)
    assert features["log_kernel_area"] == pytest.approx(np.log(121))
    assert features["log_out_channels"] == pytest.approx(np.log(96))
    assert features["depthwise"] == 0


def test_edges_between_sequences_are_bounded() -> None:
    """A quadratic number of edges between long sequences is refused before it is computed."""
    kind = TensorType("float32", (2,))
    count = 1200
    many = LayerSequence(
        tuple(SequenceLayer("Relu", "", 14, {}, (0,), (i + 1,)) for i in range(count)),
        (Value(kind, "input"), *[Value(kind, "internal")] * count),
        tuple(range(1, count + 1)),
    )
    assert Encoder(SYSTEM).encode([many, elementwise()], predecessors=[(), (0,)]).edges.shape == (2, count)
    with pytest.raises(ModelError, match="ask for a smaller granularity"):
        Encoder(SYSTEM).encode([many, many], predecessors=[(), (0,)])
