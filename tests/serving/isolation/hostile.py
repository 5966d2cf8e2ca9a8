"""A compromised reader: performs the action that a test asks for instead of reading a model, and reports the result.

Everything else is the ordinary reader: `python hostile.py LIMITS FOLDERS`.
"""

import ctypes
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from costmodel.serving.isolation import reader

_LIBC = ctypes.CDLL(None, use_errno=True)


def _native(name: str, *arguments: object) -> None:
    """Calls the C library directly, as injected code would."""
    if getattr(_LIBC, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _write(path: str, size: int = 1) -> None:
    with open(path, "wb") as file:
        file.write(bytes(size))


def _wait_for_thread() -> None:
    done = []
    thread = threading.Thread(target=done.append, args=(1,))
    thread.start()
    thread.join()
    assert done


def _open_files(count: int) -> None:
    opened: list[int] = []
    try:
        opened.extend(os.dup(0) for _ in range(count))
    finally:
        for number in opened:
            os.close(number)


def _attach(pid: int) -> None:
    _native("ptrace", 16, pid, None, None)  # PTRACE_ATTACH


def _clone_process() -> None:
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    _native("syscall", number, signal.SIGCHLD, None, None, None, None)


ACTIONS: Mapping[str, Callable[..., object]] = {
    "read": lambda path: Path(path).read_bytes(),
    "list": os.listdir,
    "write": _write,
    "truncate": lambda path: os.truncate(path, 0),
    "remove": os.remove,
    "rename": os.rename,
    "link": os.link,
    "symlink": os.symlink,
    "chmod": lambda path: os.chmod(path, 0o777),
    "touch": os.utime,
    "connect": lambda port: socket.create_connection(("127.0.0.1", port)).close(),
    "socket": lambda family, kind: socket.socket(family, kind).close(),
    "fork": lambda: os.fork() or os._exit(0),
    "clone": _clone_process,
    "spawn": lambda path: os.posix_spawn(path, [path], {}),
    "exec": lambda path: os.execv(path, [path]),
    "run": lambda path: subprocess.run([path], check=False),
    "kill": lambda pid: os.kill(pid, signal.SIGKILL),
    "kill_group": lambda: os.kill(0, 0),  # signal 0 is refused like others, and is harmless if it is not
    "kill_all": lambda: os.kill(-1, 0),
    "signal": lambda pid: os.kill(pid, 0),
    "ptrace": _attach,
    "unshare": lambda: _native("unshare", 0x10000000),  # CLONE_NEWUSER
    "mount": lambda path: _native("mount", b"none", path.encode(), b"tmpfs", 0, None),
    "outlive": lambda: _native("prctl", 1, 0, 0, 0, 0),  # PR_SET_PDEATHSIG
    "memfd": lambda: os.close(os.memfd_create("code")),
    "limit": lambda pid: _native("prlimit", pid, 7, None, None),
    "thread": _wait_for_thread,
    "memory": lambda size: mmap.mmap(-1, size).close(),
    "open_files": _open_files,
}


def answer_task(task: Mapping[str, Any], *_: object) -> dict[str, Any]:
    """Returns the name of the error that an action met, or None."""
    try:
        found = ACTIONS[task["do"]](*task["with"])
    except (OSError, MemoryError) as error:
        return {"met": type(error).__name__, "errno": getattr(error, "errno", None)}
    return {"met": None, "found": repr(found)}


if __name__ == "__main__":
    reader.answer_task = answer_task
    reader.main()
    sys.exit()
