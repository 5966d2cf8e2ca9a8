"""How matrix products are divided among threads."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.contraction import Contraction
from costmodel.features.divided_products import ProductTasks, product_tasks, undivided_flops
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import SequenceLayer

TASKS = st.builds(ProductTasks, st.integers(1, 10**6), st.integers(1, 10**6), st.floats(0, 1e12, allow_nan=False))


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


@pytest.mark.parametrize(
    ("op_type", "contraction", "inputs", "tasks"),
    [
        ("MatMul", Contraction(6, 32, 32, 32), [], ProductTasks(6, 32, 32.0**3)),
        # Products of two tensors in an Einsum come one after the other, as do those of images and groups here.
        ("Einsum", Contraction(6, 32, 64, 32), [], ProductTasks(1, 4, 2.0**16, in_turn=6)),
        ("ConvTranspose", Contraction(2, 100, 8, 64), [(2, 64, 10, 10)], ProductTasks(1, 7, 51_200.0, in_turn=2)),
        # Images of a batch are dealt out, unless their windows are spread out first, which one thread does.
        ("Conv", Contraction(4, 1024, 16, 27), [(4, 3, 32, 32)], ProductTasks(4)),
        ("Conv", Contraction(2, 16, 64, 27), [(2, 3, 4, 4)], ProductTasks(1, 64, 27_648.0, in_turn=2)),
        ("Conv", Contraction(1, 1024, 16, 27), [(1, 3, 32, 32)], ProductTasks(1, 64, 442_368.0)),
        # Groups of channels are no tasks of a quantised convolution, positions are.
        ("QLinearConv", Contraction(64, 49, 1, 9), [(2, 32, 7, 7)], ProductTasks(1, 49, 32 * 441.0, in_turn=2)),
        ("ConvInteger", Contraction(2, 49, 8, 9), [(2, 1, 7, 7)], ProductTasks(1, 4, 49 * 72.0, in_turn=2)),
        # Three steps in two directions; each step of a GRU has two products.
        ("LSTM", Contraction(6, 1, 2048, 512), [(3, 1, 512)], ProductTasks(1, 128, 2.0**20, in_turn=6)),
        ("GRU", Contraction(6, 1, 1536, 512), [(3, 1, 512)], ProductTasks(1, 48, 768 * 512.0, in_turn=12)),
        ("LSTM", Contraction(6, 8, 2048, 512), [(3, 8, 512)], ProductTasks(8)),  # sequences of a batch are dealt out
    ],
)
def test_tasks_of_kernels(
    op_type: str, contraction: Contraction, inputs: list[tuple[int, ...]], tasks: ProductTasks
) -> None:
    """What is dealt out, and what comes one after the other, is the kernel's choice."""
    attributes: dict[str, Any] = {"kernel_shape": {"ints": [3, 3]}} if "Conv" in op_type else {}
    layer = SequenceLayer(op_type, "", 13, attributes, (), (), 0)
    output = TensorType("float32", (1,))
    assert product_tasks(layer, [TensorType("float32", shape) for shape in inputs], [output], contraction) == tasks


@pytest.mark.parametrize(
    ("tasks", "regions"),
    [
        (ProductTasks(1, 64, 2.0**20), 1),
        (ProductTasks(1, 64, 2.0**20, in_turn=12), 12),
        (ProductTasks(1, 64, 1000, in_turn=12), 0),  # too small to be divided, so that no thread waits
        (ProductTasks(4, in_turn=3), 3),
    ],
)
def test_threads_wait_after_each_region(tasks: ProductTasks, regions: int) -> None:
    """Products that are divided one after the other are as many regions."""
    assert tasks.regions(4) == regions
    assert tasks.regions(1) == 0


@pytest.mark.parametrize(
    ("op_type", "inputs", "undivided"),
    [
        ("Gemm", [(64, 8), (8, 32), (32,)], True),
        ("Gemm", [(64, 8), (8, 32)], False),
        ("Conv", [(1, 8, 8, 8), (32, 8, 1, 1), (32,)], True),  # its product is divided, what is added to it is not
        ("Conv", [(1, 8, 8, 8), (32, 8, 1, 1)], False),
        ("Conv", [(2, 8, 8, 8), (32, 8, 1, 1), (32,)], False),  # each image is done by one thread
        ("Add", [(64, 32), (64, 32)], False),
    ],
)
def test_a_bias_is_not_divided(op_type: str, inputs: list[tuple[int, ...]], undivided: bool) -> None:
    """One thread adds the bias of a product."""
    attributes: dict[str, Any] = {"kernel_shape": {"ints": [1, 1]}} if op_type == "Conv" else {}
    layer = SequenceLayer(op_type, "", 13, attributes, (), (), 0)
    contraction = Contraction(inputs[0][0] if op_type == "Conv" else 1, 64, 32, 8)
    found = undivided_flops(
        layer, [TensorType("float32", shape) for shape in inputs], [TensorType("float32", (64, 32))], contraction
    )
    assert (found > 0) == undivided
