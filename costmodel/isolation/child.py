"""A child process that answers one message at a time, within a deadline, or is killed."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

__all__ = ["Child", "ChildDeathError", "ChildError", "receive", "send"]

# Lengths of a message's header and payload, which stand before them.
_LENGTH_BYTES = 8
_CHUNK_BYTES = 1 << 20


class ChildError(Exception):
    """A child did not answer: it took too long, or its answer is malformed or too large."""


class ChildDeathError(ChildError):
    """A child died before it answered.

    Attributes:
        code: Its exit status; negative for a signal, None where it is not known.
    """

    def __init__(self, message: str, code: int | None) -> None:
        """Keep the exit status."""
        super().__init__(message)
        self.code = code


class Child:
    """A running child process; one thread at a time may ask it.

    Attributes:
        greeting: The header of the message that the child sent when it was ready.
        asked: How many messages it was sent.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        start_s: float,
        answer_bytes: int,
        stderr: int | IO[bytes] | None = None,
    ) -> None:
        """Start the child and wait until it is ready.

        Args:
            command: The program and its arguments.
            folder: Its working folder.
            environment: All of its environment.
            start_s: Seconds that it may take to become ready.
            answer_bytes: The largest answer that is accepted from it.
            stderr: Where its standard error goes; by default where that of this process goes.

        Raises:
            ChildError: It did not become ready.
        """
        self.asked = 0
        self._answer_bytes = answer_bytes
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=dict(environment), cwd=folder,
            process_group=0, bufsize=0,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)  # a child that does not read must not hold whoever asks it
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
        """Send one message and wait for the answer to it.

        After an error the child is in no known state, and is to be killed.

        Args:
            header: JSON-able.
            payload: Bytes, in parts that are sent one after the other.
            within_s: Seconds that sending, working and answering may take together.

        Returns:
            The header and the payload of the answer.

        Raises:
            ChildDeathError: The child died.
            ChildError: It did not answer in time, or not in the agreed form.
        """
        self.asked += 1
        deadline = time.monotonic() + within_s
        encoded = json.dumps(header).encode()
        self._write(_lengths(len(encoded), sum(map(len, payload))) + encoded, deadline)
        for part in payload:
            self._write(part, deadline)
        return self._receive(deadline)

    def kill(self) -> None:
        """End the child and everything that it started in its process group."""
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
            self._wait(self._to, select.POLLOUT, deadline)
            try:
                left = left[os.write(self._to, left[:_CHUNK_BYTES]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._death() from error

    def _receive(self, deadline: float) -> tuple[dict[str, Any], bytes]:
        lengths = self._read(2 * _LENGTH_BYTES, deadline)
        header_bytes, payload_bytes = _split(lengths)
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
            self._wait(self._from, select.POLLIN, deadline)
            part = os.read(self._from, min(count - len(parts), _CHUNK_BYTES))
            if not part:
                raise self._death()
            parts += part
        return bytes(parts)

    @staticmethod
    def _wait(file: int, event: int, deadline: float) -> None:
        poll = select.poll()  # select() knows no more than 1024 files, and a service has many
        poll.register(file, event)
        left_ms = 1e3 * (deadline - time.monotonic())
        if left_ms <= 0 or not poll.poll(left_ms):
            raise ChildError("there was no answer in time")

    def _death(self) -> ChildError:
        try:
            code: int | None = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        return ChildDeathError("the process died", code)


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """The next message on a child's standard input; None when it has ended."""
    lengths = stream.read(2 * _LENGTH_BYTES)
    if len(lengths) < 2 * _LENGTH_BYTES:
        return None
    header_bytes, payload_bytes = _split(lengths)
    header: dict[str, Any] = json.loads(stream.read(header_bytes))
    return header, stream.read(payload_bytes)


def send(stream: IO[bytes], header: Mapping[str, Any], payload: bytes = b"") -> None:
    """Write a message to a child's standard output."""
    encoded = json.dumps(header).encode()
    stream.write(_lengths(len(encoded), len(payload)) + encoded)
    stream.write(payload)
    stream.flush()


def _lengths(header_bytes: int, payload_bytes: int) -> bytes:
    return header_bytes.to_bytes(_LENGTH_BYTES, "big") + payload_bytes.to_bytes(_LENGTH_BYTES, "big")


def _split(lengths: bytes) -> tuple[int, int]:
    return int.from_bytes(lengths[:_LENGTH_BYTES], "big"), int.from_bytes(lengths[_LENGTH_BYTES:], "big")
