"""How many connections there may be."""

from collections import Counter
from itertools import cycle

__all__ = ["ConnectionLimits"]

_STEPS = 97


class ConnectionLimits:
    """What all connections of one process share.

    Attributes:
        refused: How many connections were closed because there were too many.
        held: How many are refused and not closed yet: who is refused at once asks again at once.
    """

    def __init__(self, connections: int, per_address: int, header_s: float) -> None:
        """No connection is open.

        Args:
            connections: The most that are open at the same time.
            per_address: The most of one address.
            header_s: Seconds that the head of a request may take to arrive.
        """
        self.connections = connections
        self.per_address = per_address
        self.header_s = header_s
        self.open: Counter[str] = Counter()
        self.refused = 0
        self.held = 0
        self._steps = cycle(range(_STEPS))

    def admit(self, address: str) -> bool:
        """Whether one more connection of an address may be opened; it is counted then."""
        if self.open.total() >= self.connections or self.open[address] >= self.per_address:
            self.refused += 1
            return False
        self.open[address] += 1
        return True

    def spread_s(self, least: float, most: float) -> float:
        """Seconds until a connection is closed: another share of `header_s` each time.

        Connections that were opened together are not closed together, or they would come back together, and whoever
        else is answered would wait for all of them.
        """
        return self.header_s * (least + (most - least) * next(self._steps) / _STEPS)

    def leave(self, address: str) -> None:
        """A connection of an address was closed."""
        self.open[address] -= 1
        if not self.open[address]:
            del self.open[address]
