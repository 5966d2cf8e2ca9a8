"""A pool of workers, each with one task at a time."""

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, LifoQueue
from stat import S_ISREG
from types import TracebackType
from typing import Any, Self

from costmodel import errors
from costmodel.decomposition import Decomposition
from costmodel.errors import BusyError, ModelError, ModelReadError
from costmodel.isolation.child import Child, ChildDeathError, ChildError
from costmodel.isolation.digest import DIGEST
from costmodel.isolation.limits import Limits
from costmodel.isolation.wire import decomposition_from_dict

__all__ = ["Pool", "Task"]

_START_S = 60.0
# A reader's folder: what it may read, what it may write, and the file in there that it leaves a model in.
_IN, _WORK, _KEPT = "in", "work", "kept.onnx"
_HEADER_BYTES = 1 << 10
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

    def to_dict(self) -> dict[str, Any]:
        """The task as a reader is sent it."""
        told: dict[str, Any] = {
            "name": self.name, "runtime": self.runtime, "level": self.level, "granularity": self.granularity,
            "batch": self.batch, "shapes": dict(self.shapes),
        }  # fmt: skip
        if self.graph is not None:
            told["graph"] = self.graph
        else:
            told["path"] = str(self.path)
        return told


class Pool:
    """Readers that are started when they are needed, and again when one dies; threads may share it.

    Attributes:
        limits: What one task may cost a reader.
        size: The most readers that run at the same time.
        busy_s: Seconds that all tasks together have taken.
        confinement: What the last reader that was started said of its confinement by the operating system.
    """

    def __init__(self, size: int, limits: Limits | None = None, scratch: Path | None = None) -> None:
        """Start nothing yet.

        Args:
            size: The most readers that run at the same time.
            limits: What one task may cost a reader.
            scratch: Folder in which readers have theirs, best on the file system of the models; by default that of
                temporary files.
        """
        self.limits = limits or Limits()
        self._folder = Path(tempfile.mkdtemp(prefix="costmodel-readers-", dir=scratch))
        # The last one back is the first to go: it is warm, and the others may never be needed.
        self._free: LifoQueue[Child | None] = LifoQueue()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._alive: dict[Child, Path] = {}
        self.busy_s = 0.0
        self.confinement: Mapping[str, Any] = {}
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
            BusyError: No worker was free in time.
        """
        answer, _ = self._ask(task.name, task.to_dict())
        try:
            return decomposition_from_dict(answer), tuple(map(str, answer.get("warnings", ())))
        except ValueError as error:
            raise ModelError(f"{task.name} cannot be understood: its layers are not sound") from error

    def without_weights(self, path: Path, name: str = "the model") -> tuple[bytes, str]:
        """The model in a file, without its weights, and its digest.

        The digest is the hash of what shapes the work: it is the same whatever the model's values are called, and
        whether its weights and documentation were sent or not.

        Raises:
            ModelError: It cannot be read, or not within the limits.
            BusyError: No reader was free in time.
        """
        answer, kept = self._ask(name, {"name": name, "path": str(path), "keep": _KEPT})
        digest = f"sha256:{answer.get('digest')}"
        if not DIGEST.fullmatch(digest):
            raise ModelError(f"{name} cannot be understood: it has no digest")
        return kept, digest

    def close(self) -> None:
        """End all workers."""
        self._closed.set()
        with self._lock:
            for worker in list(self._alive):
                worker.kill()
            self._alive.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _taken(self, folder: Path) -> bytes:
        """The file that a reader left in its folder, which may be anything.

        Raises:
            ChildError: It is no file of a size that is accepted.
        """
        path = folder / _WORK / _KEPT
        try:
            # A link would lead whoever follows it to files that the reader itself cannot open.
            number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(number, "rb") as file:
                stat = os.fstat(number)
                if not S_ISREG(stat.st_mode) or stat.st_nlink != 1 or stat.st_size > self.limits.kept_bytes:
                    raise ChildError("the answer is malformed")
                return file.read(self.limits.kept_bytes)
        except OSError as error:
            raise ChildError("the answer is malformed") from error
        finally:
            with suppress(OSError):
                path.unlink()

    def _new(self) -> Child:
        if self._closed.is_set():
            raise BusyError("the service is shutting down: ask again")
        with self._lock:
            self._started += 1
            folder = self._folder / str(self._started)
        for part in (_IN, _WORK):
            (folder / part).mkdir(parents=True)
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        try:
            reader = Child(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "costmodel.isolation.worker",
                    json.dumps(asdict(self.limits)),
                    json.dumps({"read": [str(folder / _IN)], "write": [str(folder / _WORK)]}),
                ],
                folder=folder / _WORK,
                environment=environment | _HEAP | {"TMPDIR": str(folder / _WORK), "OMP_NUM_THREADS": "1"},
                start_s=_START_S,
                answer_bytes=self.limits.answer_bytes + _HEADER_BYTES,
            )
        except ChildError as error:
            raise BusyError(
                "a process to read models in does not start: see the log of the service, and the memory that is free"
            ) from error
        self.confinement = reader.greeting.get("confinement") or {}
        with self._lock:
            self._alive[reader] = folder
        if self._closed.is_set():
            reader.kill()
            raise BusyError("the service is shutting down: ask again")
        return reader

    def _ask(self, name: str, task: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """The answer to a task, and the file that it left.

        A task whose reader dies is given to a second one, because somebody else may have killed the first.
        """
        try:
            answer, kept = self._answer(task)
        except ChildDeathError as first:
            if first.code == -signal.SIGXCPU:
                raise self._refused(name, first) from first
            try:
                answer, kept = self._answer(task)
            except ChildError as error:
                raise self._refused(name, error) from error
        except ChildError as error:
            raise self._refused(name, error) from error
        if "error" in answer:
            kind = getattr(errors, str(answer["error"]), ModelError)
            raise (kind if isinstance(kind, type) and issubclass(kind, ModelError) else ModelError)(
                str(answer.get("message"))
            )
        return answer, kept

    def _refused(self, name: str, error: ChildError) -> ModelError:
        limits = self.limits
        if isinstance(error, ChildDeathError):
            if error.code == -signal.SIGXCPU:
                return ModelError(f"{name} takes more than {limits.cpu_s} s of processor time to understand")
            return ModelError(f"{name} brings down what reads it: it is damaged, or takes more memory than a model may")
        return ModelError(f"{name} was not understood: {error}; {limits.wall_s:g} s are allowed")

    def _answer(self, task: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        try:
            reader = self._free.get(timeout=self.limits.wait_s)
        except Empty:
            raise BusyError("more models are to be read than can be now: ask again") from None
        began = time.monotonic()
        alive = False
        try:
            reader = reader or self._new()
            with _handed_over(task, self._alive[reader]) as told:
                answer, _ = reader.ask(told, within_s=self.limits.wall_s)
                kept = self._taken(self._alive[reader]) if "keep" in task and "error" not in answer else b""
            alive = reader.asked < self.limits.tasks
            return answer, kept
        finally:
            self.busy_s += time.monotonic() - began
            if reader is not None and not alive:
                reader.kill()
                with self._lock:
                    folder = self._alive.pop(reader, None)
                if folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                reader = None
            self._free.put(reader)


@contextmanager
def _handed_over(task: Mapping[str, Any], folder: Path) -> Iterator[Mapping[str, Any]]:
    """A task whose file lies in the reader's own folder, where nothing else is, until the end of the block."""
    if "path" not in task:
        yield task
        return
    mine = folder / _IN / "model.onnx"
    try:
        try:
            os.link(task["path"], mine)
        except OSError:  # on another file system
            shutil.copyfile(task["path"], mine)
        told = {**task, "path": str(mine)}
        if "keep" in task:
            told["keep"] = str(folder / _WORK / _KEPT)
        yield told
    except FileNotFoundError as error:
        raise ModelReadError(f"{task['name']} does not exist: send its file again") from error
    finally:
        with suppress(OSError):
            mine.unlink()
