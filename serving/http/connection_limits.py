"""Limits on the number of open connections."""

from collections import Counter
from itertools import cycle

__all__ = ["ConnectionLimits"]

_STEPS = 97


class ConnectionLimits:
    """Connection limits and counts, shared by all connections of one process.

    Attributes:
        connections: Maximum number of connections that are open at the same time.
        per_address: Maximum number of open connections of one client address.
        header_s: Seconds that the head of a request may take to arrive.
        open: Number of open connections by client address.
        refused: Number of connections that were refused because there were too many.
        held: Number of connections that are refused but not closed yet: a client whose connection is closed at once
            reconnects at once.
    """

    def __init__(self, connections: int, per_address: int, header_s: float) -> None:
        """Starts with no connection open.

        Args:
            connections: Maximum number of connections that are open at the same time.
            per_address: Maximum number of open connections of one client address.
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
        """Counts one more connection of an address if the limits allow it, and returns whether they do."""
        if self.open.total() >= self.connections or self.open[address] >= self.per_address:
            self.refused += 1
            return False
        self.open[address] += 1
        return True

    def spread_s(self, least: float, most: float) -> float:
        """Returns the seconds until a connection is closed: a fraction of `header_s` that differs from call to call.

        Spreading the times keeps connections that were opened together from being closed together: the clients would
        reconnect at the same moment and delay all other clients.

        Args:
            least: Smallest fraction.
            most: Largest fraction, not reached.
        """
        return self.header_s * (least + (most - least) * next(self._steps) / _STEPS)

    def leave(self, address: str) -> None:
        """Counts a connection of an address as closed."""
        self.open[address] -= 1
        if not self.open[address]:
            del self.open[address]
