"""Sizes as they occur in models, drawn at random."""

import math
import zlib
from functools import cached_property
from random import Random
from typing import TypeVar

__all__ = ["Draw", "TooDearError"]

_T = TypeVar("_T")

# About 50 ms at 50 GFLOP/s.
_MOST_FLOPS = 2.5e9


class TooDearError(Exception):
    """What was drawn takes too long to be worth it: another is drawn in its place."""


class Draw:
    """One draw of sizes; each property is drawn when it is first read, and the same from then on.

    Attributes:
        seed: The same seed, read in the same order, gives the same sizes.
    """

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self._random = Random(zlib.crc32(seed.encode()))  # noqa: S311  # no secret hangs on it

    def pick(self, *options: _T) -> _T:
        """One of the options; one that is named twice is twice as likely."""
        # The one method of Random that is promised to give the same numbers in every version of Python.
        return options[int(self._random.random() * len(options))]

    def size(self, low: int, high: int) -> int:
        """Log-uniform between the two, both included."""
        return min(high, int(low * ((high + 1) / low) ** self._random.random()))

    def rounded(self, low: int, high: int) -> int:
        """The same, and more often than not a multiple of 8 or 16, as widths are."""
        size, unit = self.size(low, high), self.pick(1, 8, 16, 16)
        return max(low, round(size / unit) * unit) if size >= unit else size

    def flops(self, *factors: float) -> None:
        """Give up this draw if that many operations, a product, are too many.

        Raises:
            TooDearError: They are.
        """
        if math.prod(factors) > _MOST_FLOPS:
            raise TooDearError

    @cached_property
    def n(self) -> int:
        """A batch, mostly 1."""
        return self.pick(1, 1, 1, 1, 1, 2, 4, 8)

    @cached_property
    def c(self) -> int:
        """Channels."""
        return self.pick(self.rounded(3, 64), self.rounded(16, 2048), self.rounded(16, 2048))

    @cached_property
    def k(self) -> int:
        """Channels of something else: of what comes out, mostly."""
        return self.pick(self.rounded(3, 64), self.rounded(16, 2048), self.rounded(16, 2048))

    @cached_property
    def g(self) -> int:
        """Channels that fill blocks of 16."""
        return 16 * self.size(1, 64)

    @cached_property
    def i(self) -> int:
        """Height of an image, which mostly is its width."""
        return self.pick(7, 14, 28, 56, 56, 112, self.size(7, 224), self.size(14, 224))

    @cached_property
    def s(self) -> int:
        """Length of a sequence."""
        return self.pick(1, 64, 128, 256, self.size(2, 512), self.size(16, 512), self.size(16, 512))

    @cached_property
    def h(self) -> int:
        """Hidden size of a transformer."""
        return self.pick(256, 384, 512, 768, 1024, self.rounded(64, 4096), self.rounded(64, 4096))

    @cached_property
    def e(self) -> int:
        """Elements in a head."""
        return self.pick(32, 64, 64, 128)

    @cached_property
    def a(self) -> int:
        """Heads."""
        return self.pick(2, 4, 8, 12, 16)

    @cached_property
    def rows(self) -> int:
        """Rows of a table."""
        return self.size(1, 1024)

    @cached_property
    def cols(self) -> int:
        """Columns of a table."""
        return self.rounded(4, 1024)

    @cached_property
    def length(self) -> int:
        """Of a vector."""
        return self.size(8, 1 << 18)

    @cached_property
    def image(self) -> str:
        """Shape of a batch of feature maps."""
        return f"{self.n},{self.c},{self.i},{self.i}"

    @cached_property
    def tokens(self) -> str:
        """Shape of a batch of sequences of vectors."""
        return f"{self.n},{self.s},{self.h}"

    @cached_property
    def scores(self) -> str:
        """Shape of the attention of each token to each."""
        return f"{self.n},{self.a},{self.s},{self.s}"

    @cached_property
    def table(self) -> str:
        """Shape of rows and columns."""
        return f"{self.rows},{self.cols}"

    @cached_property
    def shape(self) -> str:
        """Any of these shapes, or a vector's."""
        return self.pick(self.image, self.image, self.image, self.tokens, self.tokens, self.scores, self.table)
