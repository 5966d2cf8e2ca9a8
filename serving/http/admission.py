"""Admission control: limits the work that runs, waits or is held in memory, in fair shares per token owner."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager

from aiolimiter import AsyncLimiter
from cachetools import LRUCache

from costmodel.serving.wire.problems import Problem

__all__ = ["BYTE_BURST_S", "REQUEST_BURST_S", "AdmissionController", "ByteBudget", "Pacer"]

# Seconds' worth of its rate that one owner may use in one burst: some 20 ms of the server's time.
REQUEST_BURST_S = 0.1
BYTE_BURST_S = 0.02


class AdmissionController:
    """A limit on concurrent requests, with a queue that is fair to the owners of tokens.

    Waiting requests are served in turn by owner (round robin), so that an owner with many requests delays only its own.
    A request that cannot begin soon is refused with 503, so that the waiting time does not grow with the load.

    Attributes:
        waiting: Number of requests that wait for a slot.
    """

    def __init__(self, places: int, share: int, queue: int, queue_s: float) -> None:
        """Starts with all slots free.

        Args:
            places: Number of slots: requests that are processed at the same time.
            share: Maximum number of slots for one owner.
            queue: Maximum number of waiting requests; one owner may have half of them.
            queue_s: Maximum time in seconds that a request waits.
        """
        self.waiting = 0
        self._free = places
        self._share = share
        self._queue = queue
        self._queue_s = queue_s
        self._working: Counter[str] = Counter()
        # Waiting requests by owner, in the order in which the owners are served next.
        self._waiters: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def acquire(self, owner: str) -> None:
        """Takes a slot for a request of an owner, waiting until it is the owner's turn; `release` frees the slot.

        Raises:
            Problem: 503, because the queue is full or no slot became free in time.
        """
        if self._free and self._working[owner] < self._share and not self._waiters.get(owner):
            self._take(owner)
            return
        turns = self._waiters.setdefault(owner, deque())
        if self.waiting >= self._queue or len(turns) >= max(1, self._queue // 2):
            if not turns:
                del self._waiters[owner]
            raise busy(self._queue_s)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turns.append(turn)
        self.waiting += 1
        try:
            await asyncio.wait_for(asyncio.shield(turn), self._queue_s)
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.done():  # the slot was assigned at the same moment
                self.release(owner)
            else:
                turn.cancel()
                self._forget(owner, turn)
            if isinstance(error, TimeoutError):
                raise busy(self._queue_s) from None
            raise
        finally:
            self.waiting -= 1

    def release(self, owner: str) -> None:
        """Frees a slot of an owner and gives it to the waiting owner whose turn it is."""
        self._free += 1
        self._working[owner] -= 1
        if not self._working[owner]:
            del self._working[owner]
        for waiting in list(self._waiters):
            if not self._free:
                break
            if self._working[waiting] < self._share:
                turn = self._waiters[waiting].popleft()
                self._waiters.move_to_end(waiting)
                if not self._waiters[waiting]:
                    del self._waiters[waiting]
                self._take(waiting)
                turn.set_result(None)

    def _take(self, owner: str) -> None:
        self._free -= 1
        self._working[owner] += 1

    def _forget(self, owner: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiters[owner]
        turns.remove(turn)
        if not turns:
            del self._waiters[owner]


class ByteBudget:
    """A limit on the bytes of request bodies that are held at the same time, in total and for each owner of a token."""

    def __init__(self, most_bytes: int) -> None:
        """Starts with no bytes reserved.

        Args:
            most_bytes: Maximum number of bytes of all owners together.
        """
        self._most_bytes = most_bytes
        self._held: Counter[str] = Counter()

    @contextmanager
    def reserved(self, owner: str, nbytes: int, share: float) -> Iterator[None]:
        """Reserves bytes for an owner until the end of the `with` block.

        Args:
            owner: Owner of the bytes.
            nbytes: Declared number of bytes; all of them are reserved, whether they arrive or not.
            share: Fraction of the budget that one owner may hold.

        Raises:
            Problem: 503, because the budget, or the owner's share of it, does not have that many free bytes.
        """
        # A single body within the size limit is always accepted if nothing else is held.
        exceeds_share = self._held[owner] and self._held[owner] + nbytes > share * self._most_bytes
        if exceeds_share or (self._held.total() and self._held.total() + nbytes > self._most_bytes):
            raise busy(2.0)
        self._held[owner] += nbytes
        try:
            yield
        finally:
            self._held[owner] -= nbytes
            if not self._held[owner]:
                del self._held[owner]


class Pacer:
    """A rate limit for each owner of a token: requests beyond it wait, without delaying those of other owners."""

    _MOST_OWNERS = 10_000

    def __init__(self, per_second: float, burst_s: float) -> None:
        """Starts with no units used; the units are whatever is limited, such as requests or MiB.

        Args:
            per_second: Units that each owner may use per second.
            burst_s: Seconds' worth of units that an owner may use at once; while the service processes such a burst,
                all other owners wait.
        """
        self._burst = per_second * burst_s
        self._burst_s = burst_s
        self._limiters: LRUCache[str, AsyncLimiter] = LRUCache(self._MOST_OWNERS)

    async def acquire(self, owner: str, units: float = 1.0) -> None:
        """Waits until an owner may use a number of units, and counts them as used."""
        limiter = self._limiters.get(owner)
        if limiter is None:
            limiter = self._limiters[owner] = AsyncLimiter(self._burst, self._burst_s)
        while units > 0:
            portion = min(units, self._burst)
            await limiter.acquire(portion)
            units -= portion


def busy(wait_s: float) -> Problem:
    """Returns the problem (503) for a request that exceeds the current capacity.

    Args:
        wait_s: Seconds after which the client may repeat the request.
    """
    seconds = max(1, round(wait_s))
    return Problem(
        503, "overloaded", f"the service is busy: ask again in {seconds} s",
        headers={"Retry-After": str(seconds)},
    )  # fmt: skip
