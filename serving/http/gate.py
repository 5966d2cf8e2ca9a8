"""Admission: so much work at a time, so many requests waiting, and all others turned away at once."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from costmodel.serving.http.problems import Problem

__all__ = ["Gate"]

_Found = TypeVar("_Found")


class Gate:
    """Runs work in threads, a bounded number of them.

    A request that cannot begin soon is told to come back: how long it waits does not grow with the load.
    """

    def __init__(self, threads: int, queue: int, queue_s: float) -> None:
        """Start no thread yet.

        Args:
            threads: That work at the same time.
            queue: Requests that wait, at most.
            queue_s: That each waits, at most.
        """
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="costmodel-work")
        self._free = asyncio.Semaphore(threads)
        self._queue = queue
        self._queue_s = queue_s
        self.waiting = 0

    async def run(self, work: Callable[[], _Found]) -> _Found:
        """The result of `work`, done in a thread.

        Raises:
            Problem: 503, where it could not begin.
        """
        if self._free.locked():
            if self.waiting >= self._queue:
                raise self._busy()
            self.waiting += 1
            try:
                await asyncio.wait_for(self._free.acquire(), self._queue_s)
            except TimeoutError:
                raise self._busy() from None
            finally:
                self.waiting -= 1
        else:
            await self._free.acquire()
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        # Whoever asked may have gone; the work goes on, and keeps its place until it is done.
        future.add_done_callback(lambda _: self._free.release())
        return await asyncio.shield(future)

    def close(self) -> None:
        """Wait for nothing."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _busy(self) -> Problem:
        wait_s = max(1, round(self._queue_s))
        return Problem(
            503, "overloaded", f"more is asked than can be answered now: ask again in {wait_s} s",
            headers={"Retry-After": str(wait_s)},
        )  # fmt: skip
