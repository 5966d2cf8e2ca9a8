"""Equations of Einsum, such as `bij,bjk->bik`: a term for each input and one for the result, a letter for each axis."""

from collections import Counter
from collections.abc import Sequence

from costmodel.errors import ModelError

__all__ = ["expand_equation"]

_ELLIPSIS = "..."
# The axes that an ellipsis stands for become letters of their own, from an area that Unicode leaves to private use.
_FIRST_HIDDEN = 0xE000


def expand_equation(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Returns the terms of an equation: those of the inputs and that of the result, with one letter for each axis.

    An equation without a result has the axes of the ellipsis and the letters that occur once, in alphabetical order.

    Args:
        equation: The equation; spaces do not count.
        ranks: Number of axes of each input.

    Raises:
        ModelError: The equation does not fit the inputs.
    """
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ModelError(f"an equation of {len(terms)} terms for {len(ranks)} inputs")
    axes_of = []
    for slot, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        letters = term.replace(_ELLIPSIS, "", 1)
        axes = rank - len(letters)
        if not (letters.isalpha() or not letters) or axes < 0 or (axes and letters == term):
            raise ModelError(f"an equation that does not fit the {rank} dimensions of its input {slot}")
        axes_of.append(axes)
    most = max(axes_of, default=0)
    hidden = "".join(chr(_FIRST_HIDDEN + axis) for axis in range(most))
    terms = [term.replace(_ELLIPSIS, hidden[most - axes :]) for term, axes in zip(terms, axes_of, strict=True)]
    if not arrow:
        counts = Counter(left)
        result = _ELLIPSIS + "".join(sorted(letter for letter in counts if letter.isalpha() and counts[letter] == 1))
    return terms, result.replace(_ELLIPSIS, hidden)
