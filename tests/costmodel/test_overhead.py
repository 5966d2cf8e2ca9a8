"""What a call costs beside its layers: exact wherever calls and layers add up, and careful where they do not."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.decomposition import decompose, whole_model
from costmodel.graph import LayerGraph, TensorType
from costmodel.overhead import (
    LONG,
    SHORT,
    call_overhead_us,
    chain_overhead_us,
    joined,
    neighbourhoods,
    tiny_chain,
)
from costmodel.runtimes import RuntimeSettings
from costmodel.sequence import LayerSequence, SequenceLayer, Value
from tests.fakes import FakeRuntime, elementwise

Graphs = Callable[..., st.SearchStrategy[LayerGraph]]

call_us = st.floats(0.0, 1e3, allow_nan=False)
layer_us = st.floats(1e-3, 1e3, allow_nan=False)


def quick(count: int) -> list[LayerSequence]:
    """As many different sequences of one small layer."""
    return [elementwise(1, size) for size in range(1, count + 1)]


class TestChains:
    """Chains of tiny layers."""

    @pytest.mark.parametrize("layers", [SHORT, 2, LONG, 20])
    def test_a_chain_is_one_call_of_as_many_layers(self, layers: int, run_alone: Callable[..., None]) -> None:
        """Each reads what the one before it made, none is like the one before it, and the runtime runs them."""
        chain = tiny_chain(layers)
        assert [(layer.inputs, layer.outputs) for layer in chain.layers] == [((i,), (i + 1,)) for i in range(layers)]
        assert all(one.op_type != next_.op_type for one, next_ in pairwise(chain.layers))
        assert chain.outputs == (layers,)
        run_alone(chain)

    @given(call_us, layer_us, st.integers(1, 9))
    def test_what_does_not_grow_with_the_layers_is_the_call(self, call: float, layer: float, times: int) -> None:
        """With any cost of a call and of a tiny layer, the line through both chains finds that of the call."""
        found = chain_overhead_us([call + SHORT * layer] * times, [call + LONG * layer] * times)
        assert found == pytest.approx(call, rel=1e-6, abs=1e-9)

    def test_a_call_never_costs_less_than_nothing(self) -> None:
        """Noise may make a long chain look as if each layer cost more than the short chain took."""
        assert chain_overhead_us([5.0], [5.0 * LONG + 80.0]) == 0.0

    def test_a_few_slow_runs_change_nothing(self) -> None:
        """The typical run counts, of each chain by itself."""
        assert chain_overhead_us([10.0, 10.0, 500.0], [26.0, 26.0, 26.0, 26.0, 900.0]) == chain_overhead_us(
            [10.0], [26.0]
        )


class TestNeighbours:
    """Sequences in calls of their own, and the same in one call."""

    @given(
        share=st.floats(0.4, 1.0),
        limit=st.floats(0.1, 1e3),
        groups=st.lists(st.lists(layer_us, min_size=2, max_size=6), min_size=3, max_size=12),
    )
    def test_half_way_between_what_they_save_and_the_chains(
        self, share: float, limit: float, groups: list[list[float]]
    ) -> None:
        """Whatever the layers take: one call instead of four saves three times what a call costs, at the least."""
        saved = share * limit
        together = [([saved + layer for layer in layers], saved + sum(layers)) for layers in groups]
        assert call_overhead_us(limit, together) == pytest.approx((saved + limit) / 2, rel=1e-6, abs=1e-6)

    @given(
        limit=st.floats(0.0, 1e3),
        together=st.lists(st.tuples(st.lists(layer_us, min_size=2, max_size=6), layer_us), max_size=12),
    )
    def test_it_is_never_more_than_the_chains_allow_and_never_negative(
        self, limit: float, together: list[tuple[list[float], float]]
    ) -> None:
        """However noisy the neighbours."""
        assert 0.0 <= call_overhead_us(limit, together) <= limit

    def test_without_neighbours_the_chains_stand_in(self) -> None:
        """A share of what they allow, because the code of their layers is in the caches: the same from then on."""
        alone = call_overhead_us(10.0, [])
        assert 0.0 < alone < 10.0
        assert call_overhead_us(20.0, []) == pytest.approx(2 * alone)

    @pytest.mark.parametrize("overhead_us", [0.0, 0.25, 3.0, 57.0])
    @given(data=st.data())
    def test_a_runtime_whose_costs_add_up_is_seen_through(
        self, data: st.DataObject, graphs: Graphs, overhead_us: float
    ) -> None:
        """Chains and neighbours as they are run, of whatever layers: the call is found, and so the layers' own cost."""
        runtime, settings = FakeRuntime(overhead_us=overhead_us), RuntimeSettings()

        def took_us(sequence: LayerSequence) -> float:
            return runtime.open_sequence(sequence, settings).cost_us

        cut = decompose("m", data.draw(graphs()), 2).pieces
        parts = [piece.sequence for piece in cut] * 4
        together = [
            ([took_us(part) for part in parts[start : start + 4]], took_us(joined(parts[start : start + 4])))
            for start in range(0, len(parts) - 3, 4)
        ] * 3
        limit_us = chain_overhead_us([took_us(tiny_chain(SHORT))], [took_us(tiny_chain(LONG))])
        assert call_overhead_us(limit_us, together) == pytest.approx(overhead_us, abs=1e-6)


class TestNeighbourhoods:
    """Which sequences are run in one call, too."""

    @given(st.lists(st.floats(0.1, 400.0) | st.just(float("inf")), max_size=120))
    def test_they_are_quick_and_follow_each_other(self, latencies_us: list[float]) -> None:
        """Four at a time, none twice, a dozen of them at most: noise in slower ones would hide what a call costs."""
        found = neighbourhoods(quick(len(latencies_us)), latencies_us)
        assert len(found) <= 12
        positions = [position for chosen in found for position in chosen]
        assert positions == sorted(set(positions))
        assert set(positions) <= set(range(len(latencies_us)))
        for chosen in found:
            assert list(chosen) == list(range(chosen.start, chosen.start + 4))
            assert sum(latencies_us[position] for position in chosen) <= 250.0

    @pytest.mark.parametrize(("count", "expected"), [(3, 0), (4, 1), (7, 1), (8, 2), (48, 12)])
    def test_quick_ones_are_found(self, count: int, expected: int) -> None:
        """As many as there are."""
        assert len(neighbourhoods(quick(count), [5.0] * count)) == expected

    def test_they_are_of_all_parts_of_a_group(self) -> None:
        """Of many, those that are taken are spread from its first layers to its last."""
        found = neighbourhoods(quick(400), [5.0] * 400)
        starts = [chosen.start for chosen in found]
        assert len(starts) > 6
        assert starts[0] == 0
        assert starts[-1] >= 300
        assert len({next_ - start for start, next_ in pairwise(starts)}) == 1

    def test_large_tensors_stay_out(self) -> None:
        """They would drive each other out of the caches, as they do not in calls of their own; weights are cold."""
        large = elementwise(1 << 17)
        assert neighbourhoods([*quick(3), large], [5.0] * 4) == []
        heavy = TensorType("float32", (512, 512))
        weights = LayerSequence(
            (SequenceLayer("MatMul", "", 13, {}, (0, 1), (2,)),),
            (
                Value(TensorType("float32", (1, 512)), "input"),
                Value(heavy, "constant"),
                Value(TensorType("float32", (1, 512)), "internal"),
            ),
            (2,),
        )
        assert neighbourhoods([*quick(3), weights], [5.0] * 4) == [range(4)]


class TestJoining:
    """Sequences side by side in one network."""

    @given(data=st.data())
    def test_each_is_in_it_as_it_was(self, data: st.DataObject, graphs: Graphs) -> None:
        """Its layers with their arguments, its values and its outputs; none reads from another one."""
        parts = [whole_model(data.draw(graphs(most_layers=5))) for _ in range(data.draw(st.integers(1, 4)))]
        network = joined(parts)
        first_layer = first_value = 0
        for part in parts:
            layers = network.layers[first_layer : first_layer + len(part.layers)]
            shifted = tuple(
                replace(
                    layer,
                    inputs=tuple(i - first_value for i in layer.inputs),
                    outputs=tuple(i - first_value for i in layer.outputs),
                )
                for layer in layers
            )
            last = first_value + len(part.values)
            outputs = tuple(i - first_value for i in network.outputs if first_value <= i < last)
            assert LayerSequence(shifted, network.values[first_value:last], outputs) == part
            first_layer, first_value = first_layer + len(part.layers), last
        assert (len(network.layers), len(network.values)) == (first_layer, first_value)

    def test_an_absent_input_stays_absent(self) -> None:
        """It has no index to be shifted."""
        kind = TensorType("float32", (4,))
        clip = LayerSequence(
            (SequenceLayer("Clip", "", 13, {}, (0, -1, 1), (2,)),),
            (Value(kind, "input"), Value(TensorType("float32", ()), "constant"), Value(kind, "internal")),
            (2,),
        )
        assert [layer.inputs for layer in joined([clip, clip]).layers] == [(0, -1, 1), (3, -1, 4)]

    @pytest.mark.parametrize("granularity", [1, 3])
    def test_the_runtime_runs_it(
        self, granularity: int, lowered_light: Callable[[str], LayerGraph], run_alone: Callable[..., None]
    ) -> None:
        """Layers of a real model, blocked ones among them, four in one call."""
        sequences = list(decompose("m", lowered_light("shufflenet"), granularity).unique.values())
        found = neighbourhoods(sequences, [10.0] * len(sequences))
        assert found
        for positions in (found[0], found[-1]):
            run_alone(joined([sequences[position] for position in positions]))
