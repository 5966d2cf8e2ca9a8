"""A lock that allows one measuring process per host, because two at once would disturb each other's times."""

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
from costmodel.measure.measurement import now

__all__ = ["measuring_lock"]


@contextmanager
def measuring_lock(path: Path | None = None) -> Iterator[None]:
    """Holds the measuring lock of the host while the context is open; if the process dies, the system releases it.

    Args:
        path: Lock file; by default one for the whole host, in the folder of temporary files.

    Raises:
        HostBusyError: Another process holds the lock; the message names the process and the time at which it started to
            measure. Also raised if the lock file cannot be used, since another process may then be measuring.
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
        with contextlib.suppress(OSError):  # the holder file only serves the message; another user may own an old one
            holder.write_text(json.dumps({"pid": os.getpid(), "command": command, "since": now()}))
        yield
    finally:
        with contextlib.suppress(OSError):
            holder.unlink()
        lock.release()


def _describe(holder: Path) -> str:
    try:
        process = json.loads(holder.read_text())
        return f"process {process['pid']} ({process['command']}, since {process['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
