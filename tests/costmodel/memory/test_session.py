"""Simulated memory: laws that hold for every graph, and agreement with hand-made graphs."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.ir.nchwc import BLOCKED_DOMAIN
from costmodel.ir.source_weights import SourceWeights
from costmodel.memory.session import MemoryDemand, memory_demand

Graphs = Callable[..., st.SearchStrategy[LayerGraph]]

MB = 10**6


def _layer(op_type: str, inputs: tuple[str, ...], output: str) -> Layer:
    return Layer(output, op_type, "", 13, {}, inputs, (output,))


def _graph(
    layers: list[Layer],
    shapes: dict[str, tuple[int, ...]],
    constants: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
) -> LayerGraph:
    return LayerGraph(
        layers=tuple(layers),
        types={name: TensorType("float32", shape) for name, shape in shapes.items()},
        constants=dict.fromkeys(constants),
        inputs=("x",),
        outputs=outputs or (layers[-1].outputs[0],),
        opset=21,
    )


def _demand(graph: LayerGraph) -> MemoryDemand:
    demand = memory_demand(graph)
    assert demand is not None
    return demand


def _chain(op_type: str, length: int, rows: int) -> LayerGraph:
    """Returns a chain of layers whose values have `rows` kB each."""
    names = ["x", *(f"v{place}" for place in range(length))]
    layers = [_layer(op_type, (before,), after) for before, after in pairwise(names)]
    return _graph(layers, dict.fromkeys(names, (rows, 250)))


@given(data=st.data())
def test_a_run_needs_the_largest_layer(data: st.DataObject, graphs: Graphs) -> None:
    """The peak is at least what one layer reads and writes, without the model's inputs, and views counted once."""
    graph = data.draw(graphs())
    demand = _demand(graph)
    own = set(graph.inputs)
    largest = max(
        max((graph.types[name].nbytes for name in {*layer.inputs, *layer.outputs} - own if name), default=0)
        for layer in graph.layers
    )
    assert demand.peak_bytes >= largest
    assert demand.layers == len(graph.layers)
    assert not demand.from_source


@given(data=st.data())
def test_names_do_not_matter(data: st.DataObject, graphs: Graphs) -> None:
    """A graph without names needs as much memory as the graph itself."""
    graph = data.draw(graphs())
    assert memory_demand(graph.anonymous()) == memory_demand(graph)


@given(length=st.integers(1, 8), rows=st.integers(1, 4000), more=st.integers(0, 4000))
def test_a_larger_batch_needs_no_less_memory(length: int, rows: int, more: int) -> None:
    """Memory does not shrink when all values grow."""
    small, large = _demand(_chain("Transpose", length, rows)), _demand(_chain("Transpose", length, rows + more))
    assert small.run_bytes <= large.run_bytes


def test_later_runs_take_a_second_set_of_buffers() -> None:
    """The first run allocates buffer by buffer, and the second one block for all of them beside it."""
    graph = _chain("Transpose", 9, 100_000)
    assert _demand(graph).run_bytes >= 2 * 2 * 100 * MB


def test_a_layer_that_overwrites_its_input_needs_one_buffer() -> None:
    """A chain of Relu works in one buffer, and a chain of Transpose in two."""
    assert _demand(_chain("Relu", 9, 100_000)).run_bytes < 0.7 * _demand(_chain("Transpose", 9, 100_000)).run_bytes


def test_the_latest_branch_runs_first() -> None:
    """A long branch that only the last layer joins is computed before the branches that come earlier in the graph."""
    layers = [_layer("Transpose", ("x",), "a"), _layer("Transpose", ("a",), "b"), _layer("Transpose", ("x",), "c")]
    shapes = {"x": (10, 250), "a": (100_000, 250), "b": (10, 250), "c": (100_000, 250), "y": (10, 250)}
    joined = _graph([*layers, _layer("Concat", ("b", "c"), "y")], shapes)
    separate = _graph([layers[0], layers[1]], shapes)
    assert _demand(joined).run_bytes > 1.5 * _demand(separate).run_bytes


def test_weights_that_are_rewritten_exist_twice() -> None:
    """Loading needs more memory if the runtime makes the weights of the layers from others in the file."""
    graph = _graph([_layer("Gemm", ("x", "w"), "y")], {"x": (1, 2500), "w": (2500, 2500), "y": (1, 2500)}, ("w",))
    as_stored = replace(graph, source_weights=SourceWeights({"w": 25 * MB}, {}))
    transposed = replace(graph, source_weights=SourceWeights({"original": 25 * MB}, {"w": 25 * MB}))
    assert _demand(graph).load_bytes == pytest.approx(_demand(as_stored).load_bytes, rel=1e-4)
    assert _demand(as_stored).from_source
    assert _demand(transposed).load_bytes >= _demand(as_stored).load_bytes + 20 * MB


def test_folded_constants_are_freed_before_weights_are_reordered() -> None:
    """A reordered weight finds room where constants lay of which nothing else is left."""
    layers = [replace(_layer("Conv", ("x", "w"), "y"), domain=BLOCKED_DOMAIN)]
    shapes = {"x": (1, 512, 4, 4), "w": (512, 512, 3, 3), "y": (1, 512, 4, 4)}
    graph, nbytes = _graph(layers, shapes, ("w",)), 512 * 512 * 9 * 4
    stored, folded = dict.fromkeys("abcd", nbytes), {"e": nbytes}
    kept = replace(graph, source_weights=SourceWeights(stored, folded))
    dropped = replace(graph, source_weights=SourceWeights(stored, folded, dropped=frozenset("abcd")))
    assert _demand(dropped).load_bytes < _demand(kept).load_bytes - 2 * nbytes


def test_what_a_value_is_folded_from_is_copied() -> None:
    """The copies exist while the value is made, and the next one finds their room."""
    graph = _graph([_layer("Add", ("x", "b"), "y")], {"x": (1, 2500), "b": (2500, 2500), "y": (2500, 2500)}, ("b",))
    folded = {"a": 25 * MB, "b": 25 * MB}
    plain, copied = (
        _demand(replace(graph, source_weights=SourceWeights({"w": 25 * MB}, folded, copied_bytes=copies))).load_bytes
        for copies in ({"a": (), "b": ()}, {"a": (25 * MB, 25 * MB), "b": (25 * MB,)})
    )
    assert copied == pytest.approx(plain + 50 * MB, rel=0.01)


def test_a_normalisation_becomes_a_convolution_with_a_weight_and_a_bias() -> None:
    """The runtime makes two parameters from the four of the file, with copies of all four beside them."""
    channels, nbytes = 1_000_000, 4 * MB
    attributes = {"group": {"i": channels}}
    layer = replace(_layer("Conv", ("x", "scale", "bias"), "y"), domain=BLOCKED_DOMAIN, attributes=attributes)
    shapes = {"x": (1, channels, 1, 1), "scale": (channels, 1, 1, 1), "bias": (channels,), "y": (1, channels, 1, 1)}
    graph = _graph([layer], shapes, ("scale", "bias"))
    parameters = dict.fromkeys(("gamma", "beta", "mean", "variance"), nbytes)
    demand = _demand(replace(graph, source_weights=SourceWeights(parameters, {})))
    assert demand.rewritten_bytes == 2 * nbytes
    assert demand.load_bytes > (2 * len(parameters) + 4) * nbytes


@pytest.mark.parametrize(("channels", "narrower"), [(24, True), (16, False), (32, False)])
def test_narrow_blocks_need_less_memory_for_odd_numbers_of_channels(channels: int, narrower: bool) -> None:
    """A processor without AVX-512 pads channels to 8 instead of 16."""
    graph = _chain("Transpose", 9, 1)
    kind = TensorType("float32", (1, channels, 500, 500), blocked=True)
    demand = _demand(replace(graph, types=dict.fromkeys(graph.types, kind)))
    assert (demand.in_narrow_blocks is not None) == narrower
    if demand.in_narrow_blocks is not None:
        assert demand.in_narrow_blocks.run_bytes < 0.8 * demand.run_bytes


def test_a_normalised_weight_is_what_a_plain_convolution_reads() -> None:
    """The weight into which a normalisation is folded is not allocated again under the name that the layer reads."""
    shapes = {"x": (1, 512, 4, 4), "w": (512, 512, 3, 3), "y": (1, 512, 4, 4)}
    graph, nbytes = _graph([_layer("Conv", ("x", "w"), "y")], shapes, ("w",)), 512 * 512 * 9 * 4
    normalised = SourceWeights({"before": nbytes}, {"before for y": nbytes}, dropped=frozenset({"before"}))
    assert _demand(replace(graph, source_weights=normalised)).rewritten_bytes == nbytes


def test_the_work_of_starting_is_counted() -> None:
    """What is stored, folded and packed adds up; the first run touches its own buffers only."""
    graph = _graph([_layer("Gemm", ("x", "w"), "y")], {"x": (1, 2500), "w": (2500, 2500), "y": (1000, 2500)}, ("w",))
    demand = _demand(replace(graph, source_weights=SourceWeights({"original": 25 * MB}, {"w": 25 * MB}, nodes=2)))
    assert (demand.stored_bytes, demand.rewritten_bytes, demand.source_nodes) == (25 * MB, 25 * MB, 2)
    assert demand.packed_bytes == pytest.approx(25 * MB, rel=0.01)
    assert demand.load_touched_bytes >= demand.load_bytes
    assert _demand(graph).source_nodes is None
    chain = _demand(_chain("Transpose", 3, 100_000))
    assert 200 * MB <= chain.first_run_touched_bytes < chain.run_bytes


def test_small_blocks_beside_the_weights_cost_memory() -> None:
    """Where the heap ends decides whether packed weights fit into the holes of their originals, or need new memory."""
    names = ["x", *(f"v{place}" for place in range(8))]
    layers = [_layer("Gemm", (before, f"w{after}"), after) for before, after in pairwise(names)]
    weights = tuple(f"w{name}" for name in names[1:])
    shapes = dict.fromkeys(names, (1, 800)) | dict.fromkeys(weights, (800, 800))
    demand = _demand(_graph(layers, shapes, weights))
    assert demand.least_peak_bytes < demand.peak_bytes < demand.most_peak_bytes
    assert demand.most_peak_bytes > demand.least_peak_bytes + 800 * 800 * 4


def _eight_products(length: int, rank: int) -> MemoryDemand:
    """Returns the demand of eight products whose weights have names of some length and so many dimensions."""
    names = ["x", *(f"v{place}" for place in range(8))]
    layers = [_layer("Gemm", (before, f"w{after}"), after) for before, after in pairwise(names)]
    weights = tuple(f"w{name}" for name in names[1:])
    shapes = dict.fromkeys(names, (1, 400)) | dict.fromkeys(weights, (400, 400))
    source = SourceWeights(dict.fromkeys(weights, 640_000), {}, labels=dict.fromkeys(weights, (length, rank)))
    return _demand(replace(_graph(layers, shapes, weights), source_weights=source))


@given(length=st.integers(0, 200), rank=st.integers(0, 8))
def test_a_model_needs_its_weights_and_at_most_two_copies_of_each(length: int, rank: int) -> None:
    """Whatever small blocks there are, the peak lies between the weights alone and all of them packed beside them."""
    demand = _eight_products(length, rank)
    assert 8 * 640_000 < demand.least_peak_bytes <= demand.peak_bytes <= demand.most_peak_bytes < (2 * 8 + 2) * 640_000


def test_names_and_dimensions_decide_which_holes_are_large_enough() -> None:
    """The blocks of a name and of dimensions settle beside a weight, or do not fit there."""
    assert len({_eight_products(length, 2).peak_bytes for length in (0, 20, 30, 45, 60)}) > 3
    assert len({_eight_products(30, rank).peak_bytes for rank in (1, 2, 4)}) > 1


def test_the_memory_of_reordered_weights_is_counted() -> None:
    """Reordering a weight makes copies of it, some of whose holes the next weight does not fit into."""
    names = ["x", *(f"v{place}" for place in range(8))]
    layers = [replace(_layer("Conv", (a, f"w{b}"), b), domain=BLOCKED_DOMAIN) for a, b in pairwise(names)]
    weights = tuple(f"w{name}" for name in names[1:])
    shapes = dict.fromkeys(names, (1, 256, 8, 8)) | dict.fromkeys(weights, (256, 256, 3, 3))
    nbytes = 256 * 256 * 9 * 4
    stored = SourceWeights({f"{name} before": nbytes for name in weights}, {})
    demand = _demand(replace(_graph(layers, shapes, weights), source_weights=stored))
    assert demand.rewritten_bytes == len(weights) * nbytes
    assert demand.peak_bytes > (2 * len(weights) + 2) * nbytes


def test_quantised_weights_are_packed() -> None:
    """Weights of 8 bits are packed for their kernels whatever their dimensions; those of other types are not."""
    shapes = {"x": (1, 64, 8, 8), "s": (), "w": (64, 64, 3, 3), "y": (1, 64, 6, 6)}
    layer = _layer("QLinearConv", ("x", "s", "z", "w", "s", "z", "s", "z"), "y")
    graph = _graph([layer], shapes | {"z": ()}, ("w", "s", "z"))
    types = {**graph.types, "w": TensorType("int8", shapes["w"])}
    assert _demand(replace(graph, types=types)).packed_bytes == 64 * 64 * 9
    assert _demand(graph).packed_bytes == 0
    assert _demand(replace(graph, layers=(replace(layer, inputs=("x",)),))).packed_bytes == 0


@pytest.mark.parametrize(("sharing", "copies"), [(1, 2), (2, 3), (5, 3)])
def test_layers_that_share_a_weight_share_its_packed_copy(sharing: int, copies: int) -> None:
    """The original stays until the last layer has packed it, and each packs a copy that it drops for the first one."""
    names = ["x", *(f"v{place}" for place in range(sharing))]
    layers = [_layer("MatMul", (before, "w"), after) for before, after in pairwise(names)]
    shapes = dict.fromkeys(names, (1, 2500)) | {"w": (2500, 2500)}
    assert _demand(_graph(layers, shapes, ("w",))).load_bytes == pytest.approx(copies * 25 * MB, rel=0.05)


def test_a_weight_that_another_layer_reads_as_it_is_stays_beside_its_packed_copy() -> None:
    """An embedding that is also the last product of a language model is there twice."""
    layers = [_layer("Gather", ("w", "x"), "y"), _layer("MatMul", ("y", "w"), "z")]
    shapes = {"x": (4,), "w": (2500, 2500), "y": (4, 2500), "z": (4, 2500)}
    both = _demand(_graph(layers, shapes, ("w",)))
    assert both.run_bytes == pytest.approx(50 * MB, rel=0.05)


def test_a_huge_graph_is_not_simulated() -> None:
    """Beyond some thousands of layers, the memory is unknown and the answer stays fast."""
    assert memory_demand(_chain("Relu", 5001, 1)) is None
    many = SourceWeights({f"w{place}": 4096 for place in range(10_001)}, {})
    assert memory_demand(replace(_chain("Relu", 1, 1), source_weights=many)) is None


def test_a_graph_with_too_many_values_is_not_simulated() -> None:
    """A layer may have thousands of outputs; placing all of their buffers would take too long."""
    names = tuple(f"y{place}" for place in range(30_000))
    split = Layer("split", "Split", "", 13, {}, ("x",), names)
    assert memory_demand(_graph([split], dict.fromkeys(("x", *names), (1,)), outputs=("y0",))) is None


def test_an_absent_output_is_nobodys_buffer() -> None:
    """A view of nothing behind a layer with an absent output is simulated."""
    norm = Layer("norm", "LayerNormalization", "", 17, {}, ("x",), ("a", ""))
    graph = _graph([norm, _layer("Reshape", ("",), "y"), _layer("Relu", ("a",), "z")], dict.fromkeys("xayz", (4, 250)))
    assert _demand(graph).run_bytes > 0


def test_a_view_of_nothing_is_a_buffer_of_its_own() -> None:
    """A layer without inputs, which only a faulty graph has where its operator needs one, does no harm."""
    graph = _graph([_layer("Reshape", (), "y")], {"y": (1000, 250)})
    assert _demand(graph).run_bytes >= MB


@pytest.mark.parametrize(("op_type", "more"), [("ConvTranspose", 32 * 32 * 64 * 16 * 4), ("Conv", 0)])
def test_a_transposed_convolution_needs_room_for_its_products(op_type: str, more: int) -> None:
    """A transposed convolution makes all products first; a convolution with fewer filters than positions does not."""
    shapes = {"x": (1, 8, 32, 32), "w": (8, 64, 4, 4), "y": (1, 64, 32, 32)}
    demand = _demand(_graph([_layer(op_type, ("x", "w"), "y")], shapes, ("w",)))
    pointwise = _demand(_graph([_layer("Relu", ("x",), "y")], shapes))
    assert demand.first_run_touched_bytes - pointwise.first_run_touched_bytes == pytest.approx(more, abs=200_000)


def test_a_convolution_with_more_filters_than_positions_unfolds_its_input() -> None:
    """The unfolded input has a value for each position and each element of a filter."""
    shapes = {"x": (1, 64, 64), "w": (512, 64, 16), "y": (1, 512, 49)}
    small = shapes | {"x": (1, 64, 1039), "y": (1, 512, 1024)}
    few, many = (_demand(_graph([_layer("Conv", ("x", "w"), "y")], one, ("w",))) for one in (shapes, small))
    assert few.first_run_touched_bytes == pytest.approx((512 + 64 * 16) * 49 * 4, abs=50_000)
    part, index = 64 << 10, (4 << 20) // 32
    assert many.first_run_touched_bytes == pytest.approx(512 * 1024 * 4 + part + index, abs=10_000)


def test_grouped_convolutions_unfold_their_input_too() -> None:
    """Each group has its own part of the filters and of the channels."""
    shapes = {"x": (1, 64, 64), "w": (512, 32, 16), "y": (1, 512, 49)}
    layer = replace(_layer("Conv", ("x", "w"), "y"), attributes={"group": {"i": 2}})
    demand = _demand(_graph([layer], shapes, ("w",)))
    assert demand.first_run_touched_bytes == pytest.approx((512 + 32 * 16) * 49 * 4, abs=50_000)


def test_values_that_are_no_tensors_of_numbers_have_no_size() -> None:
    """A model with strings or sequences is simulated; their contents are not."""
    graph = _graph([_layer("StringNormalizer", ("x",), "y"), _layer("LabelEncoder", ("y",), "z")], {"z": (250, 1000)})
    strings = {name: TensorType("string", (250, 1000)) for name in ("x", "y")}
    assert _demand(replace(graph, types=graph.types | strings)).run_bytes >= 1 * MB


def test_a_fused_convolution_unfolds_its_input_too() -> None:
    """A convolution with an activation needs the same workspace as one without."""
    shapes = {"x": (1, 64, 64), "w": (512, 64, 16), "y": (1, 512, 49)}
    layer = _layer("Conv", ("x", "w"), "y")
    fused = replace(layer, op_type="FusedConv", domain="com.microsoft")
    plain, both = (_demand(_graph([one], shapes, ("w",))) for one in (layer, fused))
    assert both.first_run_touched_bytes == plain.first_run_touched_bytes


@pytest.mark.parametrize(("group", "packed"), [(1, 256 * 256 * 4 * 4), (256, 0)])
def test_transposed_convolutions_pack_their_weights_unless_each_group_has_one_channel(group: int, packed: int) -> None:
    """What is packed is the transposed matrix of each group; one row is its own transpose."""
    layer = replace(_layer("ConvTranspose", ("x", "w"), "y"), attributes={"group": {"i": group}})
    shapes = {"x": (1, 256, 4, 4), "w": (256, 256, 2, 2), "y": (1, 256, 8, 8)}
    assert _demand(_graph([layer], shapes, ("w",))).packed_bytes == packed


def test_weights_without_dimensions_are_not_packed() -> None:
    """A graph that a stranger sends may have them; it is not refused here."""
    for op_type in ("ConvTranspose", "MatMul", "LSTM"):
        shapes: dict[str, tuple[int, ...]] = {"x": (1, 4, 4), "w": (), "y": (1, 4, 4)}
        assert _demand(_graph([_layer(op_type, ("x", "w"), "y")], shapes, ("w",))).packed_bytes == 0
