"""Child processes that answer one message at a time within a deadline, and the format of the messages.

A message, in either direction, consists of a header, which is a JSON object, and a payload of any bytes.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

__all__ = ["Child", "ChildDeathError", "ChildError", "ChildTimeoutError", "open_answers", "receive", "send"]

# A message begins with the lengths of its header and its payload, of this many bytes each.
_LENGTH_BYTES = 8
_CHUNK_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1


class ChildError(Exception):
    """A child process gave no valid answer: it died, took too long, or sent one that is malformed or too large."""


class ChildTimeoutError(ChildError):
    """A child process did not answer in time."""


class ChildDeathError(ChildError):
    """A child process died before it answered.

    Attributes:
        code: Exit status of the child, or minus the number of the signal that ended it; None if unknown.
    """

    def __init__(self, message: str, code: int | None) -> None:
        """Creates the error with a message and the exit status of the child."""
        super().__init__(message)
        self.code = code


@cache
def _starting_thread() -> ThreadPoolExecutor:
    """Returns the thread that starts all children, which lives as long as this process.

    Linux kills a child (see `open_answers`) as soon as the thread ends that started it, not only with the process.
    """
    return ThreadPoolExecutor(1, "child-starter")


os.register_at_fork(after_in_child=_starting_thread.cache_clear)


class Child:
    """A running child process; only one thread at a time may use it.

    Attributes:
        greeting: Header of the first message of the child, which it sends when it is ready.
        asked: Number of messages sent to the child.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        start_s: float,
        answer_bytes: int,
    ) -> None:
        """Starts the child process and waits until it is ready.

        Args:
            command: Program that the child runs, and its arguments.
            folder: Working folder of the child.
            environment: All environment variables of the child; it inherits none.
            start_s: Maximum time in seconds until the child is ready.
            answer_bytes: Maximum size in bytes of an answer of the child, header and payload together.

        Raises:
            ChildError: The child did not become ready.
        """
        self.asked = 0
        self._answer_bytes = answer_bytes
        start = _starting_thread().submit(
            subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(environment), cwd=folder,
            process_group=0, bufsize=0,
        )  # fmt: skip
        self._process: subprocess.Popen[bytes] = start.result()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._stdin, False)  # a child that does not read must not block its caller
        try:
            self.greeting, _ = self._receive(time.monotonic() + start_s)
        except ChildError:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """Process identifier of the child."""
        return self._process.pid

    def ask(
        self, header: Mapping[str, Any], payload: Sequence[bytes] = (), *, within_s: float
    ) -> tuple[dict[str, Any], bytes]:
        """Sends the child one message and waits for the answer.

        After an error the state of the child is undefined, and the caller has to kill it.

        Args:
            header: Header of the message; JSON-serialisable.
            payload: Payload of the message, in parts that are sent one after the other.
            within_s: Maximum time in seconds for sending, processing and answering together.

        Returns:
            The header and the payload of the answer.

        Raises:
            ChildDeathError: The child died before it answered.
            ChildTimeoutError: The child did not answer in time.
            ChildError: The answer is malformed or too large.
        """
        self.asked += 1
        deadline = time.monotonic() + within_s
        encoded = json.dumps(header).encode()
        self._write(_pack_lengths(len(encoded), sum(map(len, payload))) + encoded, deadline)
        for part in payload:
            self._write(part, deadline)
        return self._receive(deadline)

    def kill(self) -> None:
        """Kills the child and all processes in its process group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()

    def _write(self, data: bytes, deadline: float) -> None:
        left = memoryview(data)
        while left:
            self._wait_for(self._stdin, select.POLLOUT, deadline)
            try:
                left = left[os.write(self._stdin, left[:_CHUNK_BYTES]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._death_error() from error

    def _receive(self, deadline: float) -> tuple[dict[str, Any], bytes]:
        lengths = self._read(2 * _LENGTH_BYTES, deadline)
        header_bytes, payload_bytes = _unpack_lengths(lengths)
        if header_bytes + payload_bytes > self._answer_bytes:
            raise ChildError("the answer is too large")
        try:
            header = json.loads(self._read(header_bytes, deadline))
        except ValueError as error:
            raise ChildError("the answer is malformed") from error
        if not isinstance(header, dict):
            raise ChildError("the answer is malformed")
        return header, self._read(payload_bytes, deadline)

    def _read(self, count: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            self._wait_for(self._stdout, select.POLLIN, deadline)
            part = os.read(self._stdout, min(count - len(parts), _CHUNK_BYTES))
            if not part:
                raise self._death_error()
            parts += part
        return bytes(parts)

    @staticmethod
    def _wait_for(file: int, event: int, deadline: float) -> None:
        poll = select.poll()  # select() is limited to file descriptors below 1024, and a service has more
        poll.register(file, event)
        left_ms = 1e3 * (deadline - time.monotonic())
        if left_ms <= 0 or not poll.poll(left_ms):
            raise ChildTimeoutError("there was no answer in time")

    def _death_error(self) -> ChildError:
        try:
            code: int | None = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        return ChildDeathError("the process died", code)


def open_answers() -> IO[bytes]:
    """Returns the stream on which this process, a child, sends its answers, and redirects standard output.

    What libraries print to standard output goes to standard error from now on, so that it does not end up between
    answers. On Linux the process also dies with its parent from now on.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return answers


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """Returns header and payload of the next message on `stream`, the standard input of a child; None at the end."""
    lengths = stream.read(2 * _LENGTH_BYTES)
    if len(lengths) < 2 * _LENGTH_BYTES:
        return None
    header_bytes, payload_bytes = _unpack_lengths(lengths)
    header: dict[str, Any] = json.loads(stream.read(header_bytes))
    return header, stream.read(payload_bytes)


def send(stream: IO[bytes], header: Mapping[str, Any], payload: bytes = b"") -> None:
    """Writes a message to `stream`, the one that `open_answers` returned."""
    encoded = json.dumps(header).encode()
    stream.write(_pack_lengths(len(encoded), len(payload)) + encoded)
    stream.write(payload)
    stream.flush()


def _pack_lengths(header_bytes: int, payload_bytes: int) -> bytes:
    return header_bytes.to_bytes(_LENGTH_BYTES, "big") + payload_bytes.to_bytes(_LENGTH_BYTES, "big")


def _unpack_lengths(lengths: bytes) -> tuple[int, int]:
    return int.from_bytes(lengths[:_LENGTH_BYTES], "big"), int.from_bytes(lengths[_LENGTH_BYTES:], "big")
