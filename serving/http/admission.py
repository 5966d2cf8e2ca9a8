"""Admission: how much work runs, waits and is held at a time, in fair shares for each owner of a token."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager

from aiolimiter import AsyncLimiter
from cachetools import LRUCache

from costmodel.serving.wire.problems import Problem

__all__ = ["BYTE_BURST_S", "REQUEST_BURST_S", "AdmissionController", "ByteBudget", "Pacer"]

# How much one owner may use at once: some 20 ms of the server's time.
REQUEST_BURST_S = 0.1
BYTE_BURST_S = 0.02


class AdmissionController:
    """Hands out places to work in.

    Requests that wait are served in turn by owner, so that one who asks for a lot delays himself. A request that cannot
    begin soon is told to come back: how long it waits does not grow with the load.

    Attributes:
        waiting: How many requests wait for a place.
    """

    def __init__(self, places: int, share: int, queue: int, queue_s: float) -> None:
        """All places are free.

        Args:
            places: Requests that are worked on at the same time.
            share: The most of them for one owner.
            queue: The most requests that wait; one owner may have half of them.
            queue_s: Seconds that each waits at the most.
        """
        self.waiting = 0
        self._free = places
        self._share = share
        self._queue = queue
        self._queue_s = queue_s
        self._working: Counter[str] = Counter()
        # Owners in the order in which they are served next.
        self._waiters: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def acquire(self, owner: str) -> None:
        """Take a place, now or when it is the owner's turn; `release` gives it back.

        Raises:
            Problem: 503, because none is free in time.
        """
        if self._free and self._working[owner] < self._share and not self._waiters.get(owner):
            self._take(owner)
            return
        mine = self._waiters.setdefault(owner, deque())
        if self.waiting >= self._queue or len(mine) >= max(1, self._queue // 2):
            if not mine:
                del self._waiters[owner]
            raise busy(self._queue_s)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        mine.append(turn)
        self.waiting += 1
        try:
            await asyncio.wait_for(asyncio.shield(turn), self._queue_s)
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.done():  # the place came at the same moment
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
        """Give a place back; whoever's turn it is gets it."""
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
        mine = self._waiters[owner]
        mine.remove(turn)
        if not mine:
            del self._waiters[owner]


class ByteBudget:
    """Bytes that may be held at a time: all together, and for one owner half of that."""

    def __init__(self, most_bytes: int) -> None:
        """All of it is free.

        Args:
            most_bytes: Bytes of all owners together.
        """
        self._most_bytes = most_bytes
        self._held: Counter[str] = Counter()

    @contextmanager
    def reserved(self, owner: str, nbytes: int, share: float) -> Iterator[None]:
        """Keep so many bytes for an owner until the end of the block.

        Args:
            owner: Whose bytes they are.
            nbytes: As many as were declared; all of them are kept, whether they come or not.
            share: The part of the budget that the owner may have.

        Raises:
            Problem: 503, because they are not free.
        """
        # One body that fits the limit on bodies is always accepted where nothing else is held.
        over = self._held[owner] and self._held[owner] + nbytes > share * self._most_bytes
        if over or (self._held.total() and self._held.total() + nbytes > self._most_bytes):
            raise busy(2.0)
        self._held[owner] += nbytes
        try:
            yield
        finally:
            self._held[owner] -= nbytes
            if not self._held[owner]:
                del self._held[owner]


class Pacer:
    """Lets each owner go on at a bounded rate; who is faster waits, and nobody else does."""

    _MOST_OWNERS = 10_000

    def __init__(self, per_second: float, burst_s: float) -> None:
        """Nobody has used anything.

        Args:
            per_second: Units for each owner.
            burst_s: So many seconds' worth may come at once; while they come, everybody else waits.
        """
        self._burst = per_second * burst_s
        self._burst_s = burst_s
        self._limiters: LRUCache[str, AsyncLimiter] = LRUCache(self._MOST_OWNERS)

    async def spend(self, owner: str, units: float = 1.0) -> None:
        """Wait until the owner may use so many units."""
        limiter = self._limiters.get(owner)
        if limiter is None:
            limiter = self._limiters[owner] = AsyncLimiter(self._burst, self._burst_s)
        while units > 0:
            portion = min(units, self._burst)
            await limiter.acquire(portion)
            units -= portion


def busy(wait_s: float) -> Problem:
    """The answer to a request that finds no room."""
    seconds = max(1, round(wait_s))
    return Problem(
        503, "overloaded", f"more is asked than can be answered now: ask again in {seconds} s",
        headers={"Retry-After": str(seconds)},
    )  # fmt: skip
