"""Random sizes with the distributions that they have in models."""

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
    """The drawn instance would take too long to measure; another one is drawn instead."""


class Draw:
    """One random draw of sizes; each property is drawn on first access and then stays the same.

    Attributes:
        seed: Seed of the draw; the same seed, with the same order of accesses, gives the same sizes.
    """

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self._random = Random(zlib.crc32(seed.encode()))  # noqa: S311  # not used for security

    def pick(self, *options: _T) -> _T:
        """Returns one of the options at random; an option that is given twice is twice as likely."""
        # `Random.random` is the only method documented to give the same numbers in every version of Python.
        return options[int(self._random.random() * len(options))]

    def size(self, low: int, high: int) -> int:
        """Returns a log-uniform integer between `low` and `high`, both included."""
        return min(high, int(low * ((high + 1) / low) ** self._random.random()))

    def rounded(self, low: int, high: int) -> int:
        """Returns a log-uniform integer between `low` and `high`, mostly a multiple of 8 or 16, as widths are."""
        size, unit = self.size(low, high), self.pick(1, 8, 16, 16)
        return max(low, round(size / unit) * unit) if size >= unit else size

    def flops(self, *factors: float) -> None:
        """Abandon this draw if the product of the factors, the number of operations, is too large.

        Raises:
            TooDearError: The instance has more than 2.5e9 operations.
        """
        if math.prod(factors) > _MOST_FLOPS:
            raise TooDearError

    @cached_property
    def n(self) -> int:
        """Batch size, mostly 1."""
        return self.pick(1, 1, 1, 1, 1, 2, 4, 8)

    @cached_property
    def c(self) -> int:
        """Number of channels."""
        return self.pick(self.rounded(3, 64), self.rounded(16, 2048), self.rounded(16, 2048))

    @cached_property
    def k(self) -> int:
        """Another number of channels, mostly that of the output."""
        return self.pick(self.rounded(3, 64), self.rounded(16, 2048), self.rounded(16, 2048))

    @cached_property
    def g(self) -> int:
        """Number of channels that is a multiple of 16."""
        return 16 * self.size(1, 64)

    @cached_property
    def i(self) -> int:
        """Height of an image, and mostly also its width."""
        return self.pick(7, 14, 28, 56, 56, 112, self.size(7, 224), self.size(14, 224))

    @cached_property
    def s(self) -> int:
        """Sequence length."""
        return self.pick(1, 64, 128, 256, self.size(2, 512), self.size(16, 512), self.size(16, 512))

    @cached_property
    def h(self) -> int:
        """Hidden size of a transformer."""
        return self.pick(256, 384, 512, 768, 1024, self.rounded(64, 4096), self.rounded(64, 4096))

    @cached_property
    def e(self) -> int:
        """Width of an attention head."""
        return self.pick(32, 64, 64, 128)

    @cached_property
    def a(self) -> int:
        """Number of attention heads."""
        return self.pick(2, 4, 8, 12, 16)

    @cached_property
    def rows(self) -> int:
        """Number of rows of a table."""
        return self.size(1, 1024)

    @cached_property
    def cols(self) -> int:
        """Number of columns of a table."""
        return self.rounded(4, 1024)

    @cached_property
    def length(self) -> int:
        """Length of a vector."""
        return self.size(8, 1 << 18)

    @cached_property
    def image(self) -> str:
        """Shape of a batch of feature maps: n, c, i, i."""
        return f"{self.n},{self.c},{self.i},{self.i}"

    @cached_property
    def tokens(self) -> str:
        """Shape of a batch of token sequences: n, s, h."""
        return f"{self.n},{self.s},{self.h}"

    @cached_property
    def scores(self) -> str:
        """Shape of the attention scores: n, a, s, s."""
        return f"{self.n},{self.a},{self.s},{self.s}"

    @cached_property
    def table(self) -> str:
        """Shape of a table: rows, cols."""
        return f"{self.rows},{self.cols}"

    @cached_property
    def shape(self) -> str:
        """One of the shapes `image`, `tokens`, `scores` and `table`."""
        return self.pick(self.image, self.image, self.image, self.tokens, self.tokens, self.scores, self.table)
