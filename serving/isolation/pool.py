"""A pool of reader processes, which read untrusted models; each performs one task at a time."""

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, LifoQueue
from types import TracebackType
from typing import Any, Self

from costmodel import errors
from costmodel.errors import BusyError, ModelError
from costmodel.partition.decomposition import Decomposition
from costmodel.runtimes.base import DEFAULT_RUNTIME
from costmodel.serving.isolation.child import Child, ChildDeathError, ChildError, ChildTimeoutError
from costmodel.serving.isolation.digest import DIGEST
from costmodel.serving.isolation.limits import Limits
from costmodel.serving.isolation.reader_folder import IN, KEPT, WORK, kept_file, prepared_task
from costmodel.serving.isolation.task import Task
from costmodel.serving.isolation.wire import decomposition_from_dict

__all__ = ["ReaderPool"]

_START_S = 60.0
_HEADER_BYTES = 1 << 10
# Environment variables that a reader gets: those needed to find programs and libraries, and no secrets of the service.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "HOME")
# Settings of glibc: keep up to 256 MiB of freed memory, and allocate blocks of up to 32 MiB (its maximum) from it.
# Optimisers copy weights repeatedly, and half of the time of lowering ResNet-50 went into page faults of new memory.
_HEAP = {"MALLOC_TRIM_THRESHOLD_": str(256 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}


@dataclass(frozen=True, slots=True)
class _Reader:
    """What the pool knows about a running reader.

    Attributes:
        folder: Folder of the reader.
        runtimes: Names of the runtimes that the reader was started with, besides the default one.
    """

    folder: Path
    runtimes: tuple[str, ...]


class ReaderPool:
    """A pool of reader processes, started on demand and replaced when they die; threads may share it.

    A confined reader cannot load a runtime, so readers load before that all runtimes that tasks have asked for so far.

    Attributes:
        limits: Resource limits of a reader and of one task.
        busy_s: Time in seconds that readers have spent on tasks so far, added up over all tasks.
        confinement: Protections by the operating system that confine readers, as the reader that was started last
            reported them.
    """

    def __init__(
        self,
        size: int,
        limits: Limits | None = None,
        scratch: Path | None = None,
        program: Sequence[str] = ("-m", "costmodel.serving.isolation.reader"),
    ) -> None:
        """Prepares the pool without starting any reader.

        Args:
            size: Maximum number of readers that run at the same time.
            limits: Resource limits of a reader and of one task; None for the defaults.
            scratch: Folder in which each reader gets a folder of its own, preferably on the file system of the model
                files, so that these need not be copied; None for the default folder of temporary files.
            program: Program that a reader runs, as arguments of the Python interpreter.
        """
        self.limits = limits or Limits()
        self._program = program
        self._folder = Path(tempfile.mkdtemp(prefix="costmodel-readers-", dir=scratch))
        # Last in, first out: the reader that worked last has warm caches, and the others may never be needed.
        self._free: LifoQueue[Child | None] = LifoQueue()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._alive: dict[Child, _Reader] = {}
        self.busy_s = 0.0
        self.confinement: Mapping[str, Any] = {}
        self._started = 0
        self._runtimes: tuple[str, ...] = ()
        for _ in range(size):
            self._free.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Process identifiers of the running readers, in the order in which they were started."""
        with self._lock:
            return [reader.pid for reader in self._alive]

    def start(self) -> None:
        """Starts one reader, so that the first task does not wait for it.

        Raises:
            BusyError: The reader cannot be started.
        """
        reader = self._free.get()
        try:
            reader = reader or self._start_reader()
        finally:
            self._free.put(reader)

    def lower(self, task: Task) -> tuple[Decomposition, tuple[str, ...]]:
        """Returns the decomposition of a model into layer sequences, and warnings about the model.

        Waits at most `limits.wait_s` for a free reader, and then at most `limits.wall_s` for its answer.

        Raises:
            ModelError: The model cannot be read or lowered, or exceeds the limits.
            BusyError: No reader was free in time, or none can be started.
        """
        answer, _ = self._ask(task.name, task.to_dict())
        try:
            return decomposition_from_dict(answer), tuple(map(str, answer.get("warnings", ())))
        except ValueError as error:
            raise ModelError(f"{task.name} cannot be read: its layers are not valid") from error

    def read_without_weights(self, path: Path) -> tuple[bytes, str]:
        """Reads an ONNX file, and returns the serialised model without its weights, and the digest of the model.

        The digest is a hash of all that determines the layers of the model. It depends neither on the names of values,
        nor on whether the file has weights and documentation.

        Raises:
            ModelError: The model cannot be read, or exceeds the limits.
            BusyError: No reader was free in time, or none can be started.
        """
        answer, kept = self._ask("the model", {"name": "the model", "path": str(path), "keep": KEPT})
        digest = f"sha256:{answer.get('digest')}"
        if not DIGEST.fullmatch(digest):
            raise ModelError("the model cannot be read: it has no digest")
        return kept, digest

    def close(self) -> None:
        """Ends all readers and deletes their folders."""
        self._closed.set()
        with self._lock:
            for reader in list(self._alive):
                reader.kill()
            self._alive.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start_reader(self) -> Child:
        if self._closed.is_set():
            raise BusyError("the service is shutting down: ask again")
        with self._lock:
            self._started += 1
            folder = self._folder / str(self._started)
            runtimes = self._runtimes
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        try:
            for part in (IN, WORK):
                (folder / part).mkdir(parents=True)
            reader = Child(
                [
                    sys.executable,
                    "-P",
                    *self._program,
                    json.dumps(asdict(self.limits)),
                    json.dumps({"read": [str(folder / IN)], "write": [str(folder / WORK)]}),
                    json.dumps(runtimes),
                ],
                folder=folder / WORK,
                environment=environment | _HEAP | {"TMPDIR": str(folder / WORK), "OMP_NUM_THREADS": "1"},
                start_s=_START_S,
                answer_bytes=self.limits.answer_bytes + _HEADER_BYTES,
            )
        except (ChildError, OSError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise BusyError(
                f"a reader process does not start ({error}): see the log of the service, and check the free memory and "
                "the folder for temporary files"
            ) from error
        self.confinement = reader.greeting.get("confinement") or {}
        with self._lock:
            self._alive[reader] = _Reader(folder, runtimes)
        if self._closed.is_set():
            reader.kill()
            raise BusyError("the service is shutting down: ask again")
        return reader

    def _ask(self, name: str, task: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Has a reader perform a task, and returns its answer and the content of the file that it stored, if any.

        If the reader dies, except by exceeding the limit of its processor time, a second reader gets the task, because
        another process may have killed the first.

        Args:
            name: Name of the model, for messages.
            task: The task in the form in which it is sent to a reader.

        Raises:
            ModelError: The reader reports an error, or gives no valid answer.
            BusyError: No reader was free in time, or none can be started.
        """
        try:
            answer, kept = self._answer(task)
        except ChildDeathError as first:
            if first.code == -signal.SIGXCPU:
                raise self._refusal(name, first) from first
            try:
                answer, kept = self._answer(task)
            except ChildError as error:
                raise self._refusal(name, error) from error
        except ChildError as error:
            raise self._refusal(name, error) from error
        if "error" in answer:
            kind = getattr(errors, str(answer["error"]), ModelError)
            raise (kind if isinstance(kind, type) and issubclass(kind, ModelError) else ModelError)(
                str(answer.get("message"))
            )
        return answer, kept

    def _refusal(self, name: str, error: ChildError) -> ModelError:
        limits = self.limits
        if isinstance(error, ChildDeathError):
            if error.code == -signal.SIGXCPU:
                return ModelError(f"{name} takes more than {limits.cpu_s} s of processor time to read")
            return ModelError(
                f"{name} crashes the reader process: it is damaged, or takes more memory than a model may"
            )
        if isinstance(error, ChildTimeoutError):
            return ModelError(f"{name} was not read within {limits.wall_s:g} s")
        return ModelError(f"{name} was not read: {error}")

    def _answer(self, task: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        try:
            reader = self._free.get(timeout=self.limits.wait_s)
        except Empty:
            raise BusyError("all reader processes are busy: ask again") from None
        began = time.monotonic()
        alive = False
        try:
            reader = self._with_runtime_of(task, reader)
            reader = reader or self._start_reader()
            folder = self._alive[reader].folder
            with prepared_task(task, folder) as prepared:
                answer, _ = reader.ask(prepared, within_s=self.limits.wall_s)
                kept = (
                    kept_file(folder, self.limits.stripped_bytes) if "keep" in task and "error" not in answer else b""
                )
            alive = reader.asked < self.limits.tasks
            return answer, kept
        finally:
            self.busy_s += time.monotonic() - began
            if reader is not None and not alive:
                self._end(reader)
                reader = None
            self._free.put(reader)

    def _with_runtime_of(self, task: Mapping[str, Any], reader: Child | None) -> Child | None:
        """Returns a free reader if it was started with the runtime that the task needs; otherwise ends it."""
        runtime = task.get("runtime", DEFAULT_RUNTIME) if "graph" not in task else DEFAULT_RUNTIME
        if runtime == DEFAULT_RUNTIME:
            return reader
        with self._lock:
            if runtime not in self._runtimes:
                self._runtimes += (runtime,)
        if reader is None or runtime in self._alive[reader].runtimes:
            return reader
        self._end(reader)
        return None

    def _end(self, reader: Child) -> None:
        """Ends a reader and deletes its folder."""
        reader.kill()
        with self._lock:
            ended = self._alive.pop(reader, None)
        if ended is not None:
            shutil.rmtree(ended.folder, ignore_errors=True)
