"""How tensors are transposed, compared with what numpy does to their elements."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.transposition import TransposePath, matrix_rows, transpose_flops, transpose_path, unmoved_run

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@st.composite
def transpositions(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Draws a shape and an order of its axes."""
    shape = draw(shapes)
    return shape, draw(st.permutations(range(len(shape))))


@given(transpositions())
def test_a_copy_leaves_every_element_where_it_was(case: tuple[list[int], list[int]]) -> None:
    """A transposition is a copy exactly if no element moves."""
    shape, order = case
    before = np.arange(np.prod(shape)).reshape(shape)
    stays = np.array_equal(before.transpose(order).ravel(), before.ravel())
    if transpose_path(order, shape) == TransposePath.COPY:
        assert stays
    elif np.prod(shape) > 1 and all(size > 1 for size in shape):
        assert not stays


@given(transpositions())
def test_runs_stay_together(case: tuple[list[int], list[int]]) -> None:
    """Elements of a run that no axis moves are adjacent after the transposition as well."""
    shape, order = case
    run = unmoved_run(order, shape)
    after = np.arange(np.prod(shape)).reshape(shape).transpose(order).reshape(-1, run)
    assert (np.diff(after, axis=1) == 1).all()


@pytest.mark.parametrize(
    ("order", "path"),
    [
        ((0, 1, 2, 3), TransposePath.COPY),
        ((0, 2, 3, 1), TransposePath.MOVE_ONE_AXIS),
        ((0, 3, 1, 2), TransposePath.MOVE_ONE_AXIS),
        ((0, 2, 1, 3), TransposePath.MOVE_ONE_AXIS),
        ((2, 3, 0, 1), TransposePath.MOVE_ONE_AXIS),
        ((0, 3, 2, 1), TransposePath.ANY_ORDER),
        ((2, 1, 0, 3), TransposePath.ANY_ORDER),
        ((1, 0, 3, 2), TransposePath.ANY_ORDER),
    ],
)
def test_paths(order: tuple[int, ...], path: TransposePath) -> None:
    """One axis that moves past others has a kernel of its own."""
    assert transpose_path(order, (2, 3, 4, 5)) == path


@pytest.mark.parametrize(
    ("order", "rows"), [((0, 2, 3, 1), 3), ((0, 3, 1, 2), 12), ((2, 3, 0, 1), 6), ((1, 2, 3, 0), 2)]
)
def test_a_matrix_has_the_rows_of_all_axes_that_are_passed(order: tuple[int, ...], rows: int) -> None:
    """Adjacent axes that stay together are one side of the matrix."""
    shape = (2, 3, 4, 5)
    assert matrix_rows(order, shape) == rows
    tensor = np.arange(120).reshape(shape)
    batch = shape[0] if order[0] == 0 else 1
    as_matrices = tensor.reshape(batch, rows, -1).swapaxes(1, 2)
    assert (tensor.transpose(order).reshape(-1) == as_matrices.reshape(-1)).all()


def test_single_elements_in_any_order_are_expensive() -> None:
    """Copying single elements takes many times as long as copying runs."""
    assert transpose_flops((0, 3, 2, 1), (2, 3, 4, 5)) > 10 * transpose_flops((2, 1, 0, 3), (2, 3, 4, 5))
