"""What the operating system forbids a reader, so that a file that takes it over gets nothing by it.

A reader parses what strangers send with C++ that was not written for that. Once it is warm it gives up, for good:
every file but the libraries, the model and its own folder; the network; new processes and programs; signals to others;
and whatever rights it had. Landlock and seccomp do that without rights of the service's own. Where a system has one of
them not, the other holds, and the report says what is missing (docs/adr/0013).
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.isolation import files, system_calls

__all__ = ["Confinement", "confine"]

_CAPABILITY_VERSION = 0x20080522


@dataclass(frozen=True, slots=True)
class Confinement:
    """What holds a reader.

    Attributes:
        landlock: Version of Landlock's interface that is in force; None without it.
        seccomp: Whether system calls are filtered.
        missing: One sentence for each protection that this host does not have.
    """

    landlock: int | None = None
    seccomp: bool = False
    missing: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The form in which a reader reports it."""
        return {"landlock": self.landlock, "seccomp": self.seccomp, "missing": list(self.missing)}


def confine(read: Sequence[Path], write: Sequence[Path]) -> Confinement:
    """Confine this process, which must have one thread, for the rest of its life.

    Args:
        read: Folders that it may read besides those of Python and its libraries.
        write: Folders that it may read and write; none of them may lie above one of `read`.
    """
    missing = []
    threads = _threads()
    if threads > 1:
        missing.append(f"{threads - 1} threads were started before the reader was confined: they may not be.")
    if not _drop_capabilities():
        missing.append("The reader keeps the capabilities of the service: run the service without any.")
    rules: system_calls.Filter | None = None
    try:
        rules = system_calls.prepared()  # it opens files, so it comes first; it is put in force last
        if rules.unknown:
            names = ", ".join(rules.unknown)
            missing.append(f"libseccomp is too old to know {names}: these system calls are not refused.")
    except system_calls.UnavailableError as error:
        missing.append(f"System calls are not confined: {error}.")
    landlock = None
    try:
        landlock = files.restrict(read, write)
    except files.UnavailableError as error:
        missing.append(f"Files and folders are not confined: {error}.")
    seccomp = False
    if rules is not None:
        try:
            rules.load()
            seccomp = True
        except system_calls.UnavailableError as error:
            missing.append(f"System calls are not confined: {error}.")
    missing += files.left_open(landlock, sockets_refused=seccomp)
    return Confinement(landlock, seccomp, tuple(missing))


def _threads() -> int:
    """Number of threads of this process; 1 where the system does not say."""
    with suppress(OSError):
        return len(os.listdir("/proc/self/task"))
    return 1


def _drop_capabilities() -> bool:
    """Give up every capability, which only a service run by root has."""
    if sys.platform != "linux":
        return True
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    with suppress(AttributeError, OSError):
        return int(ctypes.CDLL(None).capset(header, nothing)) == 0
    return False
