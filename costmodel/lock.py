"""One measuring process per host: two at once would measure each other."""

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from costmodel.errors import HostBusyError
from costmodel.measurement import now

__all__ = ["measuring_lock"]


@contextmanager
def measuring_lock(path: Path | None = None) -> Iterator[None]:
    """Hold the host for measuring; the lock goes with the process, however it ends.

    Args:
        path: Lock file; by default one for the whole host, in the folder of temporary files.

    Raises:
        HostBusyError: Another process holds it; the message says which, and since when. Or the lock file cannot
            be used, so that nobody knows.
    """
    path = path or Path(tempfile.gettempdir()) / "costmodel-measuring.lock"
    holder = path.with_suffix(".holder")
    lock = FileLock(path, mode=0o666)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise HostBusyError(
            f"{_describe(holder)} is measuring on this host: wait until it ends, or stop it, then run again"
        ) from error
    except OSError as error:
        raise HostBusyError(
            f"the lock {path} cannot be used ({error.strerror}), so another process may be measuring on this host: "
            "remove it, or set TMPDIR to a folder that can be written"
        ) from error
    try:
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
        with contextlib.suppress(OSError):  # who holds it is a courtesy; another user's note may lie there
            holder.write_text(json.dumps({"pid": os.getpid(), "command": command, "since": now()}))
        yield
    finally:
        with contextlib.suppress(OSError):
            holder.unlink()
        lock.release()


def _describe(holder: Path) -> str:
    try:
        who = json.loads(holder.read_text())
        return f"process {who['pid']} ({who['command']}, since {who['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
