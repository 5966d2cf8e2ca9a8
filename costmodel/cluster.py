"""A Dask cluster as costmodel uses it; the only module that imports `distributed`.

Every task is pinned to one worker. If that worker dies, the scheduler keeps the task and waits for it, so the caller
looks at `Cluster.workers` from time to time, discards the tasks of workers that are gone, and submits them elsewhere.
"""

import asyncio
import contextlib
import logging
import queue
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from costmodel.errors import ClusterError, CostModelError, MissingExtraError

try:
    import dask
    from distributed import Client, Future, KilledWorker, Worker
except ImportError as error:
    raise MissingExtraError("a Dask cluster", "dask") from error

__all__ = ["Cluster", "ClusterWorker", "Finished", "LostTaskError", "join_cluster", "name_taken"]

_Answer = TypeVar("_Answer")

# A worker of ours has nothing to sample: benchmarks run in processes of their own, which these timers would disturb.
_QUIET_WORKER = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}

# How often, and for how many seconds, to wait for a result before looking whether it still exists.
_FETCHES, _FETCH_S = 60, 1.0


class LostTaskError(Exception):
    """A task ended without a result, because its worker or the scheduler died; it may be submitted again."""


@dataclass(frozen=True, slots=True)
class ClusterWorker:
    """A worker of a cluster.

    Attributes:
        address: Address of the worker, unique in the cluster.
        name: Name of the worker.
        resources: Amount of each resource that the worker offers, by name.
    """

    address: str
    name: str
    resources: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finished:
    """A task that has ended.

    Attributes:
        key: Key of the task.
        result: What the task returned; None if it failed.
        error: Why the task failed: `LostTaskError` if it may be submitted again as it is.
    """

    key: str
    result: Any = None
    error: Exception | None = None


class Cluster:
    """A connection to the scheduler of a Dask cluster; use it as a context manager."""

    def __init__(self, client: Client, address: str) -> None:
        """Wraps a connected client; use `connect` to make one.

        Args:
            client: Connected client.
            address: Address of the scheduler, for error messages.
        """
        self.address = address
        self._client = client
        self._futures: dict[str, Future[Any]] = {}
        self._ended: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()

    @classmethod
    def connect(cls, address: str, *, timeout_s: float = 10.0) -> Self:
        """Connects to the scheduler at `address`, such as "tcp://head:8786".

        Raises:
            ClusterError: The address is malformed, or no Dask scheduler answers there in time.
        """
        _check_address(address)
        # The reason is in the error that is raised here; distributed would log it too, with a traceback.
        for name in ("distributed.client", "distributed.core", "distributed.comm", "distributed.comm.tcp"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            client = Client(address, timeout=timeout_s, set_as_default=False)
        except (OSError, ValueError, TypeError, RuntimeError, ImportError) as error:
            raise _unreachable(address) from error
        return cls(client, address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Discards all tasks and closes the connection; the cluster goes on."""
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self._client.close(timeout=2)

    def workers(self) -> dict[str, ClusterWorker]:
        """Returns the workers that are in the cluster now, by address.

        Raises:
            ClusterError: The scheduler does not answer any more.
        """
        try:
            info = self._client.scheduler_info(n_workers=-1)
        except (OSError, TimeoutError, RuntimeError) as error:
            raise ClusterError(
                f"the connection to the scheduler at {self.address} was lost: what was measured is stored; start the "
                "scheduler and the workers again, and run the same command"
            ) from error
        return {
            address: ClusterWorker(address, str(worker["name"]), dict(worker["resources"]))
            for address, worker in info["workers"].items()
        }

    def ask(self, function: Callable[[], _Answer], workers: Sequence[str]) -> dict[str, _Answer]:
        """Returns what `function` returns on each worker, by address; a worker that dies meanwhile is left out."""
        try:
            answers = self._client.run(function, workers=list(workers), on_error="return") if workers else {}
        except (OSError, TimeoutError):
            return {}
        return {address: answer for address, answer in answers.items() if not isinstance(answer, BaseException)}

    def submit(
        self,
        key: str,
        function: Callable[..., Any],
        *arguments: Any,
        worker: str | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        """Submits a task, which `next_finished` returns when it has ended.

        Args:
            key: Key of the task; the cluster runs one key at a time, whoever submits it.
            function: Function of a module that is installed on the workers.
            arguments: Arguments of the function.
            worker: Address of the worker that is to run the task; None for any.
            resources: Amount of each resource that the task needs, by name.
        """
        future = self._client.submit(
            function,
            *arguments,
            key=key,
            workers=None if worker is None else [worker],
            resources=dict(resources or {}) or None,
            retries=0,
        )
        self._futures[key] = future
        future.add_done_callback(self._ended.put)

    def share(self, value: object) -> Any:
        """Sends a value to every worker; the result may be an argument of `submit`, which receives the value."""
        return self._client.scatter(value, broadcast=True, hash=False)

    def next_finished(self, timeout_s: float) -> Finished | None:
        """Returns the next task that has ended; None if there is none within `timeout_s` seconds."""
        try:
            future = self._ended.get(timeout=timeout_s)
        except queue.Empty:
            return None
        key = str(future.key)
        if self._futures.get(key) is not future:
            return None  # discarded meanwhile
        try:
            return Finished(key, result=_result(future))
        except (CostModelError, LostTaskError) as error:
            return Finished(key, error=error)
        except (KilledWorker, OSError, TimeoutError, CancelledError, asyncio.CancelledError) as error:
            return Finished(key, error=LostTaskError(str(error)))
        except Exception as error:  # noqa: BLE001  whatever the task raised
            return Finished(key, error=error)
        finally:
            del self._futures[key]
            future.release()

    def discard(self, key: str) -> None:
        """Cancels a task, unless another client waits for it too."""
        future = self._futures.pop(key, None)
        if future is not None:
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                future.cancel(msg="discarded")
            future.release()


def join_cluster(
    address: str,
    name: str,
    resources: Mapping[str, float],
    *,
    joined: Callable[[], None],
    stop: Callable[[], None],
    timeout_s: float = 10.0,
) -> None:
    """Joins a cluster as one worker with one thread, and returns when the worker has left it.

    It leaves when the scheduler ends or retires it, on Ctrl-C and on SIGTERM.

    Args:
        address: Address of the scheduler.
        name: Name of the worker, unique in the cluster.
        resources: Amount of each resource that the worker offers, by name.
        joined: Function that is called once the worker is in the cluster.
        stop: Function that ends the task that is running, called when a signal arrives.
        timeout_s: Longest time in seconds to try to reach the scheduler.

    Raises:
        ClusterError: No Dask scheduler answers at that address, or it has a worker of that name.
    """
    _check_address(address)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with dask.config.set(_QUIET_WORKER), tempfile.TemporaryDirectory(prefix="costmodel-worker-") as folder:
        asyncio.run(_work(address, name, resources, joined, stop, timeout_s, folder))


async def _work(
    address: str,
    name: str,
    resources: Mapping[str, float],
    joined: Callable[[], None],
    stop: Callable[[], None],
    timeout_s: float,
    folder: str,
) -> None:
    try:
        worker = Worker(
            address, name=name, nthreads=1, memory_limit=0, resources=dict(resources), local_directory=folder,
            dashboard=False, death_timeout=timeout_s,
        )  # fmt: skip
        # `death_timeout` alone does not bound the handshake with a server that is no Dask scheduler.
        await asyncio.wait_for(_started(worker), timeout_s + 5)
    except (OSError, ValueError, RuntimeError, TimeoutError) as error:
        if "name taken" in _reasons(error):
            raise name_taken(address, name) from error
        raise _unreachable(address) from error
    loop, leaving = asyncio.get_running_loop(), asyncio.Event()

    def leave() -> None:
        stop()
        leaving.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leave)
    joined()
    waits = [asyncio.ensure_future(worker.finished()), asyncio.ensure_future(leaving.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    stop()
    await worker.close(timeout=5, executor_wait=False)
    for wait in waits:
        wait.cancel()


async def _started(worker: Worker) -> None:
    await worker


def _reasons(error: BaseException | None) -> str:
    """Returns the messages of an error and of those that caused it."""
    reasons = []
    while error is not None:
        reasons.append(str(error))
        error = error.__cause__ or error.__context__
    return "; ".join(reasons)


def _check_address(address: str) -> None:
    scheme, _, rest = address.partition("://")
    if scheme not in ("tcp", "tls", "ws", "wss") or not rest:
        raise ClusterError(
            f"{address!r} is not the address of a Dask scheduler: give one such as tcp://head:8786, as `dask "
            "scheduler` prints it"
        )


def _result(future: "Future[Any]") -> Any:
    """Returns the result of a task that has ended.

    Raises:
        LostTaskError: The worker that had the result died before it was fetched. Dask would compute it again, but the
            task is pinned to that worker.
        Exception: Whatever the task raised.
    """
    for _ in range(_FETCHES):
        try:
            return future.result(timeout=_FETCH_S)
        except TimeoutError as error:
            if future.status != "finished":
                raise LostTaskError(f"the result of {future.key} was lost") from error
    raise LostTaskError(f"the result of {future.key} does not arrive")


def name_taken(address: str, name: str) -> ClusterError:
    """Returns the error that a worker of that name is in the cluster already."""
    return ClusterError(
        f"the cluster at {address} has a machine called {name} already: stop the other one, or choose another name "
        "with --name"
    )


def _unreachable(address: str) -> ClusterError:
    return ClusterError(
        f"no Dask scheduler answers at {address}: start one with `dask scheduler`, and give the address that it prints"
    )
