"""Random sizes of operator instances, with the distributions that sizes have in real models."""

import math
import zlib
from functools import cached_property
from random import Random
from typing import TypeVar

__all__ = ["Draw", "TooExpensiveError"]

_T = TypeVar("_T")

# About 50 ms at 50 GFLOP/s.
_MOST_FLOPS = 2.5e9


class TooExpensiveError(Exception):
    """The drawn operator instance would take too long to measure; another one is drawn instead."""


class Draw:
    """Random sizes of one operator instance; each property is drawn on first access and then stays the same.

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
        """Returns a random integer between `low` and `high`, inclusive, whose logarithm is uniformly distributed."""
        return min(high, int(low * ((high + 1) / low) ** self._random.random()))

    def rounded(self, low: int, high: int) -> int:
        """Returns a log-uniform random integer from `low` to `high`, mostly a multiple of 8 or 16, as widths are."""
        size, unit = self.size(low, high), self.pick(1, 8, 16, 16)
        return max(low, round(size / unit) * unit) if size >= unit else size

    def flops(self, *factors: float) -> None:
        """Checks that the instance has few enough arithmetic operations; their number is the product of `factors`.

        Raises:
            TooExpensiveError: The instance has more than 2.5e9 operations.
        """
        if math.prod(factors) > _MOST_FLOPS:
            raise TooExpensiveError

    @cached_property
    def n(self) -> int:
        """A random batch size, mostly 1."""
        return self.pick(1, 1, 1, 1, 1, 2, 4, 8)

    @cached_property
    def c(self) -> int:
        """A random number of channels."""
        return self.pick(self.rounded(3, 64), self.rounded(16, 2048), self.rounded(16, 2048))

    @cached_property
    def k(self) -> int:
        """A random number of channels, drawn independently of `c` and mostly used for the output."""
        return self.pick(self.rounded(3, 64), self.rounded(16, 2048), self.rounded(16, 2048))

    @cached_property
    def g(self) -> int:
        """A random number of channels that is a multiple of 16."""
        return 16 * self.size(1, 64)

    @cached_property
    def i(self) -> int:
        """A random image height in pixels, which mostly also serves as the width."""
        return self.pick(7, 14, 28, 56, 56, 112, self.size(7, 224), self.size(14, 224))

    @cached_property
    def s(self) -> int:
        """A random length of a token sequence."""
        return self.pick(1, 64, 128, 256, self.size(2, 512), self.size(16, 512), self.size(16, 512))

    @cached_property
    def h(self) -> int:
        """A random hidden size of a transformer."""
        return self.pick(256, 384, 512, 768, 1024, self.rounded(64, 4096), self.rounded(64, 4096))

    @cached_property
    def e(self) -> int:
        """A random width of an attention head."""
        return self.pick(32, 64, 64, 128)

    @cached_property
    def a(self) -> int:
        """A random number of attention heads."""
        return self.pick(2, 4, 8, 12, 16)

    @cached_property
    def rows(self) -> int:
        """A random number of rows of a table, that is, of a two-dimensional tensor."""
        return self.size(1, 1024)

    @cached_property
    def cols(self) -> int:
        """A random number of columns of a table, that is, of a two-dimensional tensor."""
        return self.rounded(4, 1024)

    @cached_property
    def length(self) -> int:
        """A random number of elements of a vector."""
        return self.size(8, 1 << 18)

    @cached_property
    def image(self) -> str:
        """Random shape of a batch of square feature maps, as text: "batch,channels,height,width"."""
        return f"{self.n},{self.c},{self.i},{self.i}"

    @cached_property
    def tokens(self) -> str:
        """Random shape of a batch of token sequences, as text: "batch,tokens,hidden size"."""
        return f"{self.n},{self.s},{self.h}"

    @cached_property
    def scores(self) -> str:
        """Random shape of a batch of attention scores, as text: "batch,heads,tokens,tokens"."""
        return f"{self.n},{self.a},{self.s},{self.s}"

    @cached_property
    def table(self) -> str:
        """Random shape of a table (a two-dimensional tensor), as text: "rows,columns"."""
        return f"{self.rows},{self.cols}"

    @cached_property
    def shape(self) -> str:
        """One of the shapes `image`, `tokens`, `scores` and `table`, chosen at random, as text."""
        return self.pick(self.image, self.image, self.image, self.tokens, self.tokens, self.scores, self.table)
