"""How the work of a layer is divided among threads."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.analytical_bound import threads_speedup
from costmodel.features.parallelism import ProductTasks
from costmodel.features.work import layer_work
from costmodel.systems.system import System
from tests.fakes import elementwise
from tests.synthetic import SYSTEM

TASKS = st.builds(ProductTasks, st.integers(1, 10**6), st.integers(1, 10**6), st.floats(0, 1e12, allow_nan=False))


def _threads(count: int) -> System:
    return replace(SYSTEM, settings=replace(SYSTEM.settings, threads=count))


@given(TASKS, st.integers(1, 256))
def test_threads_bring_between_one_and_their_number(tasks: ProductTasks, threads: int) -> None:
    """Nothing becomes slower, and nothing quicker than by the number of threads."""
    assert 1 - 1e-9 <= tasks.speedup(threads) <= threads + 1e-9
    assert tasks.speedup(1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("tasks", "threads", "speedup"),
    [
        (ProductTasks(1, 100, 60_000), 2, 1),  # too small for a second thread
        (ProductTasks(1, 100, 70_000), 2, 2),
        (ProductTasks(3, 100, 1e9), 2, 1.5),  # three products for two threads, each done by one
        (ProductTasks(3, 100, 1e9), 4, 3),  # so large that each would be divided, but into parts of two
        (ProductTasks(1, 3, 1e9), 2, 1.5),  # parts of two and one
        (ProductTasks(1, 1, 1e9), 8, 1),
        (ProductTasks(5), 4, 2.5),
    ],
)
def test_whole_tasks_are_dealt_out(tasks: ProductTasks, threads: int, speedup: float) -> None:
    """The thread with the most to do decides."""
    assert tasks.speedup(threads) == pytest.approx(speedup)


@pytest.mark.parametrize(("op_type", "speedup"), [("Relu", 4.0), ("Cast", 1.0), ("Where", 1.0)])
def test_some_kernels_use_one_thread(op_type: str, speedup: float) -> None:
    """A kernel that is not parallel takes as long with more threads."""
    sequence = elementwise(10**6, op_type=op_type)
    work = layer_work(sequence, sequence.layers[0])
    assert threads_speedup(work, _threads(4)) == pytest.approx(speedup)
    assert threads_speedup(work, _threads(1)) == 1
