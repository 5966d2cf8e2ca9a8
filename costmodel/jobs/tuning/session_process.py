"""A session in a process of its own, because a runtime fixes its threads once in a process.

`python -m costmodel.jobs.tuning.session_process` reads lines of JSON from standard input: first what to load, then
durations to run for. It answers each with a line of JSON on standard output, and ends when its input does.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from costmodel.errors import CostModelError, MeasurementError
from costmodel.jobs.process_error import failed_process
from costmodel.jobs.tuning.trial import SessionSource, slice_times_us
from costmodel.runtimes.base import RuntimeSettings, get_runtime

__all__ = ["ProcessSession"]

_PROGRAM = (sys.executable, "-m", "costmodel.jobs.tuning.session_process")


class ProcessSession:
    """A `costmodel.jobs.tuning.trial.Session` in a process of its own."""

    def __init__(self, source: SessionSource) -> None:
        """Starts the process, which begins to load the model.

        Raises:
            MeasurementError: The process cannot be started.
        """
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process
        try:
            self._process = subprocess.Popen(
                _PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._messages
            )
        except OSError as error:
            self._messages.close()
            raise MeasurementError(f"a process cannot be started ({error.strerror}): check the free memory") from error
        self._loaded = False
        self._send({**asdict(source), "path": str(source.path)})

    def wait(self) -> None:
        """Waits until the model is loaded and has run once."""
        if not self._loaded:
            self._receive()
            self._loaded = True

    def start(self, slice_s: float) -> None:
        """Lets the process run the model for a time in seconds."""
        self._send({"slice_s": slice_s})

    def times_us(self) -> list[float]:
        """Returns the times of the runs in microseconds when the process has finished them."""
        return [float(one) for one in self._receive()["times_us"]]

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        with suppress(OSError):
            self._process.communicate()
        self._messages.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the process has ended; `_receive` says why
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise failed_process("the process of the session", self._process.wait(), self._messages)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise MeasurementError(answer["error"])
        return answer


def main() -> None:
    """Answers the lines on standard input; the body of the process."""
    from costmodel.onnx_io.model import read_model

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get among the answers

    def answer(message: dict[str, Any]) -> None:
        target.write(json.dumps(message).encode() + b"\n")
        target.flush()

    asked = json.loads(source.readline())
    try:
        model = read_model(
            asked["path"],
            batch=asked["batch"],
            shapes={name: tuple(shape) for name, shape in asked["shapes"]},
            values=dict(asked["values"]),
        )
        runner = get_runtime(asked["runtime"]).open_model(model, RuntimeSettings(**asked["settings"]))
        runner.run()
        answer({"loaded": True})
        while line := source.readline():
            slice_s = json.loads(line)["slice_s"]
            answer({"times_us": slice_times_us(runner, slice_s, time.perf_counter_ns)})
    except CostModelError as error:
        answer({"error": str(error)})
    os._exit(0)  # threads of a runtime may not end by themselves


if __name__ == "__main__":
    main()
