"""The analytical bound: the roofline of a sequence on a system plus the cost of empty layers."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.analytical_bound import bound_us, layer_bound_us
from costmodel.features.work import Work
from costmodel.ir.graph import LayerGraph
from costmodel.partition.decomposition import decompose
from costmodel.systems.system import System
from tests.fakes import elementwise
from tests.synthetic import SYSTEM

EMPTY_US = SYSTEM.capabilities["layer_us"]
FASTER = ({"gemm_gflops": 2.0}, {"memory_gbps": 2.0}, {"scalar_ns": 0.5}, {"layer_us": 0.5})


def _with(factors: dict[str, float]) -> System:
    able = {name: value * factors.get(name, 1.0) for name, value in SYSTEM.capabilities.items()}
    return replace(SYSTEM, capabilities=able)


def test_the_bound_is_the_slower_of_arithmetic_and_memory() -> None:
    """At 80 GFLOP/s and 10 GB/s, 80 MFLOP take 1 ms, and so do 10 MB; the empty layer's time is added."""
    computing = Work(80e6, 0, 0, 1000, 1000, 1000, None)
    moving = Work(0, 1000, 0, 4_000_000, 4_000_000, 2_000_000, None)
    assert layer_bound_us(computing, SYSTEM) == pytest.approx(1000 + EMPTY_US)
    assert layer_bound_us(moving, SYSTEM) == pytest.approx(1000 + EMPTY_US)


def test_copies_take_time_and_vectors_are_filled_up() -> None:
    """Copies count like simple operations; one column takes as long as a vector of sixteen."""
    copying = Work(0, 0, 0, 0, 0, 0, None, copy_flops=20e6)
    assert layer_bound_us(copying, SYSTEM) == pytest.approx(1000 + EMPTY_US)
    lanes = SYSTEM.host.vector_bits // 32 if SYSTEM.host else 0
    for columns in (1, lanes):
        work = Work(80e6 * columns / lanes, 0, 0, 0, 0, 0, None, vectorised=columns)
        assert layer_bound_us(work, SYSTEM) == pytest.approx(1000 + EMPTY_US)


def test_scalar_calls_share_the_threads() -> None:
    """A thousand scalar calls of 8 ns take 8 us on one thread and 4 us on two."""
    work = Work(0, 0, 1000, 0, 0, 0, None)
    assert layer_bound_us(work, SYSTEM) == pytest.approx(8 + EMPTY_US)
    two = replace(SYSTEM, settings=replace(SYSTEM.settings, threads=2))
    assert layer_bound_us(work, two) == pytest.approx(4 + EMPTY_US)


def test_every_bound_is_positive_and_falls_with_a_faster_system(
    light_name: str, lowered_light: Callable[[str], LayerGraph]
) -> None:
    """Every layer of the light models has a positive bound, and no better capability increases it."""
    for sequence in decompose(light_name, lowered_light(light_name)).unique.values():
        bound = bound_us(sequence, SYSTEM)
        assert bound >= EMPTY_US
        assert all(bound_us(sequence, _with(factors)) <= bound for factors in FASTER)
        everything = {name: factor for factors in FASTER for name, factor in factors.items()}
        assert bound_us(sequence, _with(everything)) < bound


def test_a_sequence_is_the_sum_of_its_layers(lowered_light: Callable[[str], LayerGraph]) -> None:
    """The bound of a sequence is the sum of its layers' bounds."""
    graph = lowered_light("squeezenet")
    alone = {p.layers[0]: bound_us(p.sequence, SYSTEM) for p in decompose("squeezenet", graph).segments}
    for segment in decompose("squeezenet", graph, 5).segments:
        assert bound_us(segment.sequence, SYSTEM) == pytest.approx(sum(alone[name] for name in segment.layers))


@given(flops=st.floats(0, 1e12), calls=st.floats(0, 1e9), moved=st.integers(0, 10**12), more=st.integers(1, 10))
def test_more_work_never_takes_less_time(flops: float, calls: float, moved: int, more: int) -> None:
    """The bound does not decrease in any amount of work."""
    work = Work(flops, flops, calls, moved, moved, moved, None)
    harder = Work(flops * more, flops * more, calls * more, moved * more, moved * more, moved * more, None)
    assert 0 <= layer_bound_us(work, SYSTEM) <= layer_bound_us(harder, SYSTEM)


def test_a_system_whose_empty_layers_take_no_time_still_has_a_bound() -> None:
    """The bound is positive even where the measured time of an empty layer is 0."""
    assert bound_us(elementwise(0, op_type="Identity"), _with({"layer_us": 0.0})) > 0
