"""What a call costs beside its layers: exact wherever calls and layers add up, and careful where they do not."""

from collections.abc import Callable
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.overhead import LONG, SHORT, call_overhead_us, tiny_chain
from costmodel.runtimes import RuntimeSettings
from tests.fakes import FakeRuntime

call_us = st.floats(0.0, 1e3, allow_nan=False)
layer_us = st.floats(1e-3, 1e3, allow_nan=False)


@pytest.mark.parametrize("layers", [SHORT, 2, LONG, 20])
def test_a_chain_is_one_call_of_as_many_layers(layers: int, run_alone: Callable[..., None]) -> None:
    """Each reads what the one before it made, none is like the one before it, and the runtime runs them."""
    chain = tiny_chain(layers)
    assert [(layer.inputs, layer.outputs) for layer in chain.layers] == [((i,), (i + 1,)) for i in range(layers)]
    assert all(one.op_type != next_.op_type for one, next_ in pairwise(chain.layers))
    assert chain.outputs == (layers,)
    run_alone(chain)


@given(call_us, layer_us, st.integers(1, 9))
def test_what_does_not_grow_with_the_layers_is_the_call(call: float, layer: float, times: int) -> None:
    """With any cost of a call and of a tiny layer, the line through both chains finds that of the call."""
    found = call_overhead_us([call + SHORT * layer] * times, [call + LONG * layer] * times)
    assert found == pytest.approx(call, rel=1e-6, abs=1e-9)


def test_a_call_never_costs_less_than_nothing() -> None:
    """Noise may make a long chain look as if each layer cost more than the short chain took."""
    assert call_overhead_us([5.0], [5.0 * LONG + 80.0]) == 0.0


def test_a_few_slow_runs_change_nothing() -> None:
    """The typical run counts, of each chain by itself."""
    assert call_overhead_us([10.0, 10.0, 500.0], [26.0, 26.0, 26.0, 26.0, 900.0]) == call_overhead_us([10.0], [26.0])


@pytest.mark.parametrize("overhead_us", [0.0, 0.25, 3.0, 57.0])
def test_a_runtime_whose_costs_add_up_is_seen_through(overhead_us: float) -> None:
    """Chains as they are run: the call is found."""
    runtime, settings = FakeRuntime(overhead_us=overhead_us), RuntimeSettings()
    took_us = [runtime.open_sequence(tiny_chain(layers), settings).cost_us for layers in (SHORT, LONG)]
    assert call_overhead_us(*([time_us] for time_us in took_us)) == pytest.approx(overhead_us, abs=1e-6)
