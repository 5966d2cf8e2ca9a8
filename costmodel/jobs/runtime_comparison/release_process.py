"""The processes in which releases lower and measure, each with its own release of the runtime.

A process reads requests from standard input and writes answers to standard output, one after another. It ends at once
when the process that started it does, because its standard input is then closed.
"""

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from costmodel.errors import CostModelError, LoweringError, MeasurementError
from costmodel.ir.graph import LayerGraph
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.fleet.batches import Batch, BatchResult
from costmodel.jobs.fleet.measuring_process import clean_environment
from costmodel.jobs.process_error import failed_process
from costmodel.jobs.runtime_comparison.release import LocalRelease, TurnResult
from costmodel.measure.groups import Group
from costmodel.onnx_io.model import Model, read_model
from costmodel.runtimes.base import Runner, Runtime, get_runtime
from costmodel.systems.system import System

__all__ = ["ReleaseProcess", "serve"]

_DONE, _FAILED, _REFUSED = b"done", b"failed", b"refused"


class ReleaseProcess:
    """A release of a runtime in a process of its own.

    Attributes:
        name: Name of the runtime.
        version: Full version of the runtime, as the process reports it.
    """

    def __init__(self, program: Sequence[str], runtime: str, accepts: Callable[[str], bool] = lambda _: True) -> None:
        """Starts the process.

        Args:
            program: Program that serves the release, with its arguments.
            runtime: Name of the runtime.
            accepts: Function that returns whether a version is the one that is wanted.

        Raises:
            CostModelError: The runtime does not load in the process, or its version is not accepted.
            MeasurementError: The process does not start, or ends without an answer.
        """
        self.name = runtime
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            # In a session of its own, so that Ctrl-C reaches this process only, which then ends the other one.
            self._process = subprocess.Popen(
                program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._messages,
                env=clean_environment(), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._messages.close()
            raise MeasurementError(
                f"the process of {runtime} cannot be started ({error.strerror}): remove {program[0]}, and run the "
                "same command again"
            ) from error
        try:
            facts = json.loads(self._ask({"do": "describe", "runtime": runtime}))
            self.version: str = facts["version"]
            self._fingerprint: str = facts["fingerprint"]
            if not accepts(self.version):
                raise CostModelError(
                    f"the environment of {program[0]} runs {runtime} {self.version}, which is another release than the "
                    "one that was asked for: remove the environment, and run the same command again"
                )
        except BaseException:
            self.__exit__()
            raise

    def lower(self, model: Model, level: str) -> LayerGraph:
        """Returns the layers that the release executes for a model that is in a file.

        Raises:
            LoweringError: The release cannot build the model.
        """
        request = {"do": "lower", "path": str(model.path), "name": model.name, "level": level}
        return LayerGraph.from_dict(json.loads(self._ask(request)))

    def open_sequence(self, *arguments: object) -> Runner:
        """Is not possible: layers run in the other process only."""
        raise NotImplementedError

    open_model = open_sequence

    def fingerprint(self) -> str:
        """Returns what lowering depends on besides model, level and version."""
        return self._fingerprint

    def open(self, system: System) -> System:
        """Prepares for measuring; returns the system with its capabilities."""
        return System.from_dict(json.loads(self._ask({"do": "open", "system": system.to_dict()})))

    def measure(self, group: Group, path: Path | None) -> TurnResult:
        """Measures a group and returns the measurements."""
        batch = Batch("", (replace(group, model=None),), frozenset())
        request = {"do": "measure", "path": None if path is None else str(path)}
        result = BatchResult.from_bytes(self._ask(request, batch.to_bytes()))
        return TurnResult(result.measurements, result.report.failed)

    def close(self) -> System | None:
        """Ends measuring; returns the system with what was learnt of it."""
        record = json.loads(self._ask({"do": "close"}))
        return None if record is None else System.from_dict(record)

    def __enter__(self) -> "ReleaseProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._messages):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _ask(self, request: Mapping[str, Any], content: bytes = b"") -> bytes:
        """Sends a request to the process and returns its answer.

        Raises:
            CostModelError: The process reports this error.
            MeasurementError: The process ended without an answer.
        """
        source, target = self._process.stdout, self._process.stdin
        assert source is not None
        assert target is not None
        head = json.dumps(request).encode()
        try:
            target.write(b"%d %d\n" % (len(head), len(content)) + head + content)
            target.flush()
            status, _, size = source.readline().partition(b" ")
            answer = source.read(int(size or 0))
        except BrokenPipeError:
            status = b""
        if status == _DONE:
            return answer
        if status in (_FAILED, _REFUSED):
            raise (LoweringError if status == _REFUSED else CostModelError)(answer.decode())
        raise failed_process(f"the process of {self.name}", self._process.wait(), self._messages)


def serve(runtime: Runtime | None = None, bench: Callable[..., BenchmarkSession] = BenchmarkSession) -> None:
    """Answers the requests on standard input, until it is closed; the body of the process.

    Args:
        runtime: Runtime to serve; by default the one that the first request names.
        bench: Function that makes a benchmark session from a store, a system and a runtime.
    """
    # Copies of both streams: Python closes its own at exit, and waits for the thread that reads one of them.
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get into the answers
    requests: queue.Queue[tuple[dict[str, Any], bytes]] = queue.Queue()
    threading.Thread(target=_read, args=(source, requests), daemon=True).start()
    release: LocalRelease | None = None
    while True:
        request, content = requests.get()
        try:
            if release is None:
                release = LocalRelease(runtime or _loaded(request["runtime"]), bench)
            status, answer = _DONE, _answer(release, request, content)
        except LoweringError as error:
            status, answer = _REFUSED, str(error).encode()
        except CostModelError as error:
            status, answer = _FAILED, str(error).encode()
        target.write(b"%s %d\n" % (status, len(answer)) + answer)
        target.flush()


def _loaded(name: str) -> Runtime:
    try:
        return get_runtime(name)
    except ImportError as error:
        raise CostModelError(
            f"this release of {name} does not load beside the other packages of this interpreter ({error}): choose "
            "another release"
        ) from error


def _answer(release: LocalRelease, request: Mapping[str, Any], content: bytes) -> bytes:
    do = request["do"]
    if do == "describe":
        return _json({"version": release.version, "fingerprint": release.fingerprint()})
    if do == "lower":
        model = read_model(Path(request["path"]), name=request["name"])
        return _json(release.lower(model, request["level"]).to_dict())
    if do == "open":
        return _json(release.open(System.from_dict(request["system"])).to_dict())
    if do == "measure":
        (group,) = Batch.from_bytes(content).groups
        result = release.measure(group, None if request["path"] is None else Path(request["path"]))
        system = release.system
        assert system is not None
        return BatchResult("", system, result.measurements, BenchReport(failed=dict(result.failed))).to_bytes()
    assert do == "close"
    system = release.close()
    return _json(None if system is None else system.to_dict())


def _json(data: Any) -> bytes:
    return json.dumps(data, allow_nan=False).encode()


def _read(source: BinaryIO, requests: "queue.Queue[tuple[dict[str, Any], bytes]]") -> None:
    """Reads requests, and ends the process when there are no more, even while it is measuring."""
    while line := source.readline():
        head, content = (source.read(int(size)) for size in line.split())
        requests.put((json.loads(head), content))
    os._exit(1)
