"""Contractions: what matrix products, convolutions and attention have in common."""

from dataclasses import dataclass

__all__ = ["Contraction"]


@dataclass(frozen=True, slots=True)
class Contraction:
    """A layer expressed as `batch` matrix products of (rows x depth) by (depth x columns).

    For a convolution there is one product for each image and group: rows are output positions, columns are the output
    channels of the group, and depth is the input channels of the group times the number of elements in the window.
    """

    batch: int
    rows: int
    columns: int
    depth: int

    @property
    def flops(self) -> float:
        """Number of floating-point operations, of which a multiply-add counts as two."""
        return 2.0 * self.batch * self.rows * self.columns * self.depth
