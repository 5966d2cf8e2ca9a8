"""A pool of workers, each with one task at a time."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, LifoQueue
from types import TracebackType
from typing import Any, Self

from costmodel import errors
from costmodel.decomposition import Decomposition
from costmodel.errors import CostModelError, ModelError
from costmodel.isolation.limits import Limits
from costmodel.isolation.wire import decomposition_from_dict

__all__ = ["Pool", "PoolBusyError", "Task"]

_START_S = 60.0
# What a worker sees of the environment: what finds programs and libraries, and no secret of the service's.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "HOME")
# To glibc: keep up to 256 MiB, and take blocks of up to 32 MiB (its most) from there. Optimisers copy weights to and
# fro, and half of the time of lowering ResNet-50 went into asking the kernel for fresh pages.
_HEAP = {"MALLOC_TRIM_THRESHOLD_": str(256 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}


@dataclass(frozen=True, slots=True)
class Task:
    """A model to be lowered and cut.

    Attributes:
        name: What to call it.
        path: Its file, in a folder where nothing else is; None if `graph` is given.
        graph: Its layers, as `LayerGraph.to_dict` gives them.
        runtime: What lowers it.
        level: Optimisation level.
        granularity: The most layers in a sequence.
        batch: As in `read_model`.
        shapes: As in `read_model`.
    """

    name: str
    path: Path | None = None
    graph: Mapping[str, Any] | None = None
    runtime: str = "onnxruntime"
    level: str = "all"
    granularity: int = 1
    batch: int | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def to_line(self) -> bytes:
        """As a worker reads it."""
        told: dict[str, Any] = {
            "name": self.name, "runtime": self.runtime, "level": self.level, "granularity": self.granularity,
            "batch": self.batch, "shapes": dict(self.shapes),
        }  # fmt: skip
        if self.graph is not None:
            told["graph"] = self.graph
        else:
            told["path"] = str(self.path)
        return json.dumps(told).encode() + b"\n"


class WorkerError(Exception):
    """A task was not answered: it took too long, or the answer is none."""


class WorkerDeathError(WorkerError):
    """A worker died, of its task or of something else."""


class PoolBusyError(CostModelError):
    """All workers have been at work for as long as a task may wait."""


class Pool:
    """Workers that are started when they are needed, and again when one dies; threads may share it."""

    def __init__(self, size: int, limits: Limits | None = None) -> None:
        """Start nothing yet.

        Args:
            size: Workers at most.
            limits: Of each task.
        """
        self.limits = limits or Limits()
        self._folder = Path(tempfile.mkdtemp(prefix="costmodel-pool-"))
        # The last one back is the first to go: it is warm, and the others may never be needed.
        self._free: LifoQueue[_Worker | None] = LifoQueue()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._alive: set[_Worker] = set()
        self._started = 0
        self.size = size
        for _ in range(size):
            self._free.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Start one worker, so that the first task does not wait for it."""
        worker = self._free.get()
        try:
            worker = worker or self._new()
        finally:
            self._free.put(worker)

    def lower(self, task: Task) -> tuple[Decomposition, tuple[str, ...]]:
        """A model as the sequences that a system would execute, and what the reader should know.

        Waits for a free worker, and then for it, each as long as the limits say.

        Raises:
            ModelError: It cannot be read or lowered, or not within the limits.
            PoolBusyError: No worker was free in time.
        """
        answer = self._ask(task.name, task.to_line())
        try:
            return decomposition_from_dict(answer), tuple(map(str, answer.get("warnings", ())))
        except ValueError as error:
            raise ModelError(f"{task.name} cannot be understood: its layers are not sound") from error

    def keep(self, path: Path, kept: Path, name: str = "the model") -> None:
        """Leave a model without its weights in the file `kept`.

        Raises:
            ModelError: It cannot be read, or not within the limits.
            PoolBusyError: No worker was free in time.
        """
        self._ask(name, json.dumps({"name": name, "path": str(path), "keep": str(kept)}).encode() + b"\n")

    def close(self) -> None:
        """End all workers."""
        self._closed.set()
        with self._lock:
            for worker in list(self._alive):
                worker.kill()
            self._alive.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _new(self) -> "_Worker":
        if self._closed.is_set():
            raise CostModelError("the service is shutting down: ask again")
        with self._lock:
            self._started += 1
            folder = self._folder / str(self._started)
        folder.mkdir()
        worker = _Worker(self.limits, folder)
        with self._lock:
            self._alive.add(worker)
        if self._closed.is_set():
            worker.kill()
            raise CostModelError("the service is shutting down: ask again")
        return worker

    def _ask(self, name: str, line: bytes) -> dict[str, Any]:
        try:
            answer = self._answer(line)
        except WorkerDeathError:
            # Somebody may have killed it: only a file that brings down a second one has done so itself.
            answer = self._again(name, line)
        except WorkerError as error:
            raise ModelError(f"{name} {error}") from error
        if "error" in answer:
            kind = getattr(errors, str(answer["error"]), ModelError)
            raise (kind if isinstance(kind, type) and issubclass(kind, ModelError) else ModelError)(
                str(answer.get("message"))
            )
        return answer

    def _again(self, name: str, line: bytes) -> dict[str, Any]:
        try:
            return self._answer(line)
        except WorkerError as error:
            raise ModelError(f"{name} {error}") from error

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            worker = self._free.get(timeout=self.limits.wait_s)
        except Empty:
            raise PoolBusyError("more models are to be read than can be now: ask again") from None
        alive = False
        try:
            worker = worker or self._new()
            answer = worker.ask(line)
            alive = worker.tasks < self.limits.tasks
            return answer
        finally:
            if worker is not None and not alive:
                worker.kill()
                with self._lock:
                    self._alive.discard(worker)
                worker = None
            self._free.put(worker)


class _Worker:
    """One process."""

    def __init__(self, limits: Limits, folder: Path) -> None:
        self._limits = limits
        self._folder = folder
        self.tasks = 0
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "costmodel.isolation.worker", json.dumps(asdict(limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment | _HEAP | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"},
            cwd=folder,
            start_new_session=True,
        )
        try:
            self._read(time.monotonic() + _START_S)
        except WorkerError as error:
            self.kill()
            raise CostModelError("a process to read models in does not start: see the log, and the memory") from error

    def ask(self, line: bytes) -> dict[str, Any]:
        self.tasks += 1
        assert self._process.stdin is not None
        deadline = time.monotonic() + self._limits.wall_s
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError as error:
            raise self._death() from error
        try:
            found = json.loads(self._read(deadline))
        except ValueError as error:
            raise WorkerError("cannot be understood") from error
        if not isinstance(found, dict):
            raise WorkerError("cannot be understood")
        return found

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self, deadline: float) -> bytes:
        length = int.from_bytes(self._exactly(8, deadline), "big")
        if length > self._limits.answer_bytes:
            raise WorkerError("has more layers than are accepted")
        return self._exactly(length, deadline)

    def _exactly(self, count: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        poll = select.poll()  # select() knows no more than 1024 files, and a service has many
        poll.register(pipe, select.POLLIN)
        parts = bytearray()
        while len(parts) < count:
            left_ms = 1e3 * (deadline - time.monotonic())
            if left_ms <= 0 or not poll.poll(left_ms):
                raise WorkerError(f"was not understood within {self._limits.wall_s:g} s")
            part = os.read(pipe, min(count - len(parts), 1 << 20))
            if not part:
                raise self._death()
            parts += part
        return bytes(parts)

    def _death(self) -> WorkerError:
        """What it died of, in words for whoever sent the model."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return WorkerError("cannot be understood")
        if code == -signal.SIGXCPU:
            return WorkerError(f"takes more than {self._limits.cpu_s} s of processor time to understand")
        return WorkerDeathError("brings down what reads it: it is damaged, or takes more memory than a model may")
