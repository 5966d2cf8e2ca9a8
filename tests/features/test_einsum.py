"""Tests for the steps of an Einsum."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.errors import ModelError
from costmodel.features.einsum import EinsumSteps
from costmodel.ir.equation import expand_equation

Shape = tuple[int, ...]


@pytest.mark.parametrize(
    ("equation", "shapes", "transposed"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)], []),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)], []),
        # The second operand is brought into the order of the first occurrences, then into that of the product.
        ("bhqd,bhkd->bhqk", [(2, 4, 5, 8), (2, 4, 6, 8)], [((0, 1, 3, 2), (2, 4, 6, 8))]),
        # Heads before tokens in both operands: one axis is moved in each.
        (
            "bqhd,bkhd->bhqk",
            [(2, 5, 4, 8), (2, 6, 4, 8)],
            [((0, 2, 3, 1), (2, 6, 4, 8)), ((0, 2, 1, 3), (2, 5, 4, 8))],
        ),
        ("ij->ji", [(3, 4)], [((1, 0), (3, 4))]),
    ],
)
def test_transpositions_that_move_elements(
    equation: str, shapes: list[Shape], transposed: list[tuple[Shape, Shape]]
) -> None:
    """Operands that a batched product can read as they are, are not moved; axes of size 1 do not count."""
    steps = EinsumSteps.of(equation, shapes)
    found = [([axis for axis in order if shape[axis] > 1], shape) for order, shape in steps.transposed]
    moved = [(order, tuple(s for s in shape if s > 1)) for order, shape in found if order != sorted(order)]
    ranked = [(tuple(sorted(order).index(axis) for axis in order), shape) for order, shape in moved]
    assert ranked == transposed


def test_a_sum_over_an_axis_of_one_operand_comes_first() -> None:
    """An axis that only one operand has, and the result lacks, is summed before the product."""
    steps = EinsumSteps.of("ij,jk->k", [(3, 4), (4, 5)])
    assert steps.summed == 12
    assert [(c.rows * c.columns, c.depth) for c in steps.products] == [(5, 4)]


@given(st.data())
def test_products_do_all_the_work(data: st.DataObject) -> None:
    """A product has a multiplication for each combination of the letters that are not summed before."""
    letters = "abcde"
    sizes = {letter: data.draw(st.integers(1, 3)) for letter in letters}
    one, other = (data.draw(st.lists(st.sampled_from(letters), unique=True, max_size=4)) for _ in range(2))
    union = [letter for letter in letters if letter in {*one, *other}]
    result = data.draw(st.permutations([letter for letter in union if data.draw(st.booleans())]))
    equation = f"{''.join(one)},{''.join(other)}->{''.join(result)}"
    shapes = [tuple(sizes[letter] for letter in term) for term in (one, other)]
    steps = EinsumSteps.of(equation, shapes)
    alone = {letter for letter in {*one} ^ {*other} if letter not in result}
    product = steps.products[-1]
    assert product.flops == 2 * math.prod(sizes[letter] for letter in union if letter not in alone)
    made = np.einsum(equation, *map(np.ones, shapes))
    assert product.batch * product.rows * product.columns == made.size
    assert steps.copied == made.size
    assert steps.copy_flops >= steps.copied + steps.summed


@given(st.integers(0, 3), st.integers(0, 3))
def test_an_ellipsis_stands_for_axes(hidden: int, more: int) -> None:
    """The axes of an ellipsis become letters, aligned at the last one, and an implicit result has them first."""
    terms, result = expand_equation("...ij,...jk", [hidden + 2, hidden + more + 2])
    assert [len(term) for term in terms] == [hidden + 2, hidden + more + 2]
    assert terms[0][:-2] == terms[1][more:-2]
    assert result == terms[1][:-2] + "ik"


@pytest.mark.parametrize(
    ("equation", "ranks", "message"),
    [
        ("ij->i", [2, 2], "1 terms for 2 inputs"),
        ("ijk", [2], "not fit the 2 dimensions of its input 0"),
        ("i...j...", [4], "not fit the 4 dimensions"),
        ("i-", [2], "not fit"),
        ("...ijk", [2], "not fit"),
    ],
)
def test_equations_that_do_not_fit(equation: str, ranks: list[int], message: str) -> None:
    """An equation that does not fit its inputs is refused with the reason."""
    with pytest.raises(ModelError, match=message):
        expand_equation(equation, ranks)
