"""The call overhead: exact where calls and layers add up, and robust where they do not."""

from collections.abc import Callable
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.measure.call_overhead import LONG_CHAIN_LAYERS, SHORT_CHAIN_LAYERS, call_overhead_us, tiny_chain
from costmodel.runtimes.base import RuntimeSettings
from tests.fakes import FakeRuntime

call_us = st.floats(0.0, 1e3, allow_nan=False)
layer_us = st.floats(1e-3, 1e3, allow_nan=False)


@pytest.mark.parametrize("layers", [SHORT_CHAIN_LAYERS, 2, LONG_CHAIN_LAYERS, 20])
def test_a_chain_is_one_call_of_as_many_layers(layers: int, run_alone: Callable[..., None]) -> None:
    """The chains have the requested number of layers, no two alike, and run on the runtime."""
    chain = tiny_chain(layers)
    assert [(layer.inputs, layer.outputs) for layer in chain.layers] == [((i,), (i + 1,)) for i in range(layers)]
    assert all(one.op_type != next_.op_type for one, next_ in pairwise(chain.layers))
    assert chain.outputs == (layers,)
    run_alone(chain)


@given(call_us, layer_us, st.integers(1, 9))
def test_what_does_not_grow_with_the_layers_is_the_call(call: float, layer: float, times: int) -> None:
    """The call overhead is the intercept of the line through both chains' times."""
    found = call_overhead_us([call + SHORT_CHAIN_LAYERS * layer] * times, [call + LONG_CHAIN_LAYERS * layer] * times)
    assert found == pytest.approx(call, rel=1e-6, abs=1e-9)


def test_a_call_never_costs_less_than_nothing() -> None:
    """The call overhead is never negative, however noisy the times."""
    assert call_overhead_us([5.0], [5.0 * LONG_CHAIN_LAYERS + 80.0]) == 0.0


def test_a_few_slow_runs_change_nothing() -> None:
    """A few slow runs do not change the call overhead."""
    assert call_overhead_us([10.0, 10.0, 500.0], [26.0, 26.0, 26.0, 26.0, 900.0]) == call_overhead_us([10.0], [26.0])


@pytest.mark.parametrize("overhead_us", [0.0, 0.25, 3.0, 57.0])
def test_the_overhead_is_exact_where_costs_add_up(overhead_us: float) -> None:
    """The call overhead of the fake runtime is found."""
    runtime, settings = FakeRuntime(overhead_us=overhead_us), RuntimeSettings()
    took_us = [
        runtime.open_sequence(tiny_chain(layers), settings).cost_us
        for layers in (SHORT_CHAIN_LAYERS, LONG_CHAIN_LAYERS)
    ]
    assert call_overhead_us(*([time_us] for time_us in took_us)) == pytest.approx(overhead_us, abs=1e-6)
