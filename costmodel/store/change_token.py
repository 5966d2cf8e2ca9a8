"""Detects whether any process has written to an SQLite database since the last check."""

import itertools
import os
import sqlite3
import weakref
from pathlib import Path
from threading import Lock

__all__ = ["ChangeToken"]

_numbers = itertools.count()


class _Watching:
    """A connection that detects changes of the SQLite file.

    Its `PRAGMA data_version` changes whenever another connection commits; as this one never writes, it changes with
    every commit.
    """

    def __init__(self, file: Path, identity: tuple[int, int, int]) -> None:
        self.identity = identity
        self.number = next(_numbers)  # versions can be compared only if they are from the same connection
        self.lock = Lock()
        self._connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self._finalizer = weakref.finalize(self, self._connection.close)
        self._finalizer.atexit = False

    def version(self) -> int:
        with self.lock:
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        with self.lock:
            self._finalizer()

    def abandon(self) -> None:
        """Leaves a parent process's connection open but unused: SQLite forbids a child process to use or close it."""
        self._finalizer.detach()
        _inherited.append(self._connection)


_inherited: list[sqlite3.Connection] = []


class ChangeToken:
    """The state of an SQLite file as a value that differs after every commit; threads may share an instance."""

    def __init__(self, file: Path) -> None:
        """Prepares to watch `file`, which is opened at the first `read`."""
        self._file = file
        self._watching: _Watching | None = None

    def read(self) -> tuple[int, ...] | None:
        """Returns a value to be compared with an earlier one; None if the file does not exist or cannot be read."""
        try:
            status = os.stat(self._file)
            identity = (os.getpid(), status.st_dev, status.st_ino)
            watching = self._watching
            if watching is None or watching.identity != identity:  # the file may have been replaced
                watching = self._watch_anew(identity)
            return watching.number, watching.version()
        except (OSError, sqlite3.Error):
            return None

    def _watch_anew(self, identity: tuple[int, int, int]) -> _Watching:
        former = self._watching
        if former is not None and former.identity[0] != identity[0]:
            former.abandon()
        self._watching = _Watching(self._file, identity)
        return self._watching

    def close(self) -> None:
        """Closes the file; the next `read` opens it again."""
        watching, self._watching = self._watching, None
        if watching is not None and watching.identity[0] == os.getpid():
            watching.close()
