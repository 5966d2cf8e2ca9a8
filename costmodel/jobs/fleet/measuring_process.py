"""The process in which a machine of a fleet measures one batch, free of what Dask does in its own processes.

A worker of Dask runs timers, holds a connection and may have been started with one thread for every library. So each
batch is measured in a new process with an environment of its own. It reads its task from standard input and writes the
result to standard output; it ends at once when the worker does, because its standard input is then closed.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO

from costmodel.errors import CostModelError
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.fleet.batches import Batch, BatchResult
from costmodel.jobs.process_error import failed_process
from costmodel.jobs.session_store import BatchStore
from costmodel.runtimes.base import Runtime, get_runtime
from costmodel.systems.system import System

__all__ = ["PROGRAM", "MeasuringProcess", "clean_environment", "measure"]

PROGRAM = (sys.executable, "-m", "costmodel.jobs.fleet.measuring_process")

_LIMITS = frozenset(
    f"{library}_NUM_THREADS" for library in ("OMP", "MKL", "OPENBLAS", "GOTO", "NUMEXPR", "VECLIB", "BLIS")
) | {"OMP_THREAD_LIMIT", "MALLOC_TRIM_THRESHOLD_"}
_FAILED, _DONE = b"failed ", b"done "


def clean_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns environment variables without Dask's settings and without limits on threads and memory.

    Args:
        environment: Variables to start from; by default those of this process.
    """
    found = os.environ if environment is None else environment
    return {name: value for name, value in found.items() if name not in _LIMITS and not name.startswith("DASK_")}


@dataclass
class MeasuringProcess:
    """Starts processes that measure, one at a time, and can end the one that is running.

    Attributes:
        program: Program that is started, with its arguments.
    """

    program: Sequence[str] = PROGRAM
    _running: "subprocess.Popen[bytes] | None" = None

    def run(self, system: System, machine: str, batch: Batch | None) -> BatchResult:
        """Measures a batch in a new process.

        Args:
            system: This host, described as a system.
            machine: Name of this machine, which is stored with each measurement.
            batch: Batch to measure; None to measure only the capabilities of the host.

        Raises:
            CostModelError: The process reports this error.
            MeasurementError: The process ended without a result.
        """
        head = json.dumps({"machine": machine, "system": system.to_dict()}).encode()
        content = b"" if batch is None else batch.to_bytes()
        with tempfile.TemporaryFile() as messages:
            process = subprocess.Popen(
                self.program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages, env=clean_environment()
            )
            self._running = process
            with process:
                assert process.stdin is not None
                assert process.stdout is not None
                try:
                    process.stdin.write(b"%d %d\n" % (len(head), len(content)) + head + content)
                    process.stdin.flush()
                except BrokenPipeError:
                    pass  # the process has ended; what it wrote says why
                answer = process.stdout.read()
            self._running = None
            if answer.startswith(_DONE):
                return BatchResult.from_bytes(answer.removeprefix(_DONE))
            if answer.startswith(_FAILED):
                raise CostModelError(answer.removeprefix(_FAILED).decode())
            what = "a batch" if batch is None else batch.label
            raise failed_process(f"the process that measured {what}", process.returncode, messages)

    def stop(self) -> None:
        """Ends the process that is running, if there is one."""
        process = self._running
        if process is not None:
            process.kill()


def measure(runtime: Runtime | None = None, bench: Callable[..., BenchmarkSession] = BenchmarkSession) -> None:
    """Measures what standard input describes, and writes the result to standard output; the body of the process.

    Args:
        runtime: Runtime that runs the layers; by default that of the system.
        bench: Function that makes a benchmark session from a store, a system and a runtime.
    """
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get into the result
    sizes = source.readline().split()
    head, content = (source.read(int(size)) for size in sizes)
    threading.Thread(target=_end_with_parent, args=(source,), daemon=True).start()
    try:
        answer = _DONE + _measured(head, content, runtime, bench).to_bytes()
    except CostModelError as error:
        answer = _FAILED + str(error).encode()
    target.write(answer)
    target.flush()
    os._exit(0)  # the thread is blocked in a read that only the parent ends


def _measured(
    head: bytes, content: bytes, runtime: Runtime | None, bench: Callable[..., BenchmarkSession]
) -> BatchResult:
    data = json.loads(head)
    machine, system = data["machine"], System.from_dict(data["system"])
    batch = Batch.from_bytes(content) if content else None
    context = () if batch is None else batch.sequences.keys() - batch.missing
    store = BatchStore(system if system.capabilities else None, dict.fromkeys(context, 0.0))
    # The worker holds the measuring lock as long as it is in the cluster.
    with bench(store, system, runtime or get_runtime(system.runtime), lock=nullcontext) as session:
        report = BenchReport() if batch is None else session.run(batch.groups)
    assert store.system is not None
    if batch is None:
        return BatchResult(machine, store.system)
    report.reused = 0
    marks = {"machine": machine, **({"common_set": True} if batch.common else {})}
    measurements = tuple(replace(m, environment={**m.environment, **marks}) for m in store.measurements)
    return BatchResult(machine, store.system, measurements, report)


def _end_with_parent(source: BinaryIO) -> None:
    source.read()
    os._exit(1)


if __name__ == "__main__":
    measure(bench=partial(BenchmarkSession))
