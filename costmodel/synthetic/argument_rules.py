"""Basis of the rules that choose values for arguments: their type, the seed of random values, the simplest rules."""

from collections.abc import Callable

import numpy as np

from costmodel.ir.layer_view import LayerView

__all__ = ["SEED", "Rule", "ones", "random_below", "row_of", "zeros"]

SEED = 2019  # the year of DLBricks; fixed so that runs are reproducible

# Returns the values of one argument of a layer, in a shape that broadcasts to the argument's; None if any would do.
Rule = Callable[[LayerView], np.ndarray | None]


def zeros(_: LayerView) -> np.ndarray:
    """Returns 0 as the value of every element of an argument."""
    return np.zeros(())


def ones(_: LayerView) -> np.ndarray:
    """Returns 1 as the value of every element of an argument."""
    return np.ones(())


def random_below(limit: int, shape: tuple[int, ...]) -> np.ndarray:
    """Returns an array of random integers from 0 to `limit` - 1, the same each time; zeros if `limit` is 0."""
    return np.random.default_rng(SEED).integers(0, max(1, limit), shape)


def row_of(table: int, slot: int) -> Rule:
    """Returns a rule that fills the argument at position `slot` with random row indices into the one at `table`."""
    return lambda view: random_below(view.input_shape(table)[0], view.input_shape(slot))
