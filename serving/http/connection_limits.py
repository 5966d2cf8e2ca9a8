"""Limits on the number of open connections."""

from collections import Counter
from itertools import cycle

__all__ = ["ConnectionLimits"]

_STEPS = 97


class ConnectionLimits:
    """Limits on open connections, and the numbers of open ones, shared by all connections of one process.

    Attributes:
        connections: Maximum number of connections that are open at the same time.
        per_address: Maximum number of open connections of one client address.
        header_s: Seconds that the head of a request may take to arrive: the request line and the headers.
        open: Number of open connections by client address.
        held: Number of refused connections that are not closed yet. They are not closed at once, because the client
            would reconnect at once.
    """

    def __init__(self, connections: int, per_address: int, header_s: float) -> None:
        """Starts with no connection open.

        Args:
            connections: Maximum number of connections that are open at the same time.
            per_address: Maximum number of open connections of one client address.
            header_s: Seconds that the head of a request may take to arrive: the request line and the headers.
        """
        self.connections = connections
        self.per_address = per_address
        self.header_s = header_s
        self.open: Counter[str] = Counter()
        self.held = 0
        self._steps = cycle(range(_STEPS))

    def admit(self, address: str) -> bool:
        """Counts a new connection of a client address if the limits allow it, and returns whether they do."""
        if self.open.total() >= self.connections or self.open[address] >= self.per_address:
            return False
        self.open[address] += 1
        return True

    def spread_s(self, least: float, most: float) -> float:
        """Returns the seconds until a connection is to be closed: `header_s` times a factor that varies between calls.

        Spreading the times keeps connections that were opened together from being closed together: their clients would
        reconnect at the same moment and delay all other clients.

        Args:
            least: Smallest factor.
            most: Upper bound of the factor, which the factor never reaches.
        """
        return self.header_s * (least + (most - least) * next(self._steps) / _STEPS)

    def leave(self, address: str) -> None:
        """Counts a connection of a client address as closed."""
        self.open[address] -= 1
        if not self.open[address]:
            del self.open[address]
