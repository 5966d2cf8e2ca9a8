"""Confines a reader process by means of the operating system, so that a model that takes it over gains nothing.

A reader process parses untrusted models with C++ code that was not written for untrusted input. After its warm-up it
gives up for good: access to all files except the libraries of Python, the model and its own folder; the network; new
processes and programs; signals to other processes; and all capabilities. Landlock and seccomp, two mechanisms of Linux,
enforce this; the service needs no privileges to use them. If a host lacks one of them, the other still applies, and the
reader reports what is missing (docs/adr/0013).
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.serving.isolation import files, system_calls

__all__ = ["Confinement", "confine"]

_CAPABILITY_VERSION = 0x20080522


@dataclass(frozen=True, slots=True)
class Confinement:
    """The protections that are in force for a reader process.

    Attributes:
        landlock: Version of the kernel's Landlock interface that is in force; None if Landlock is not in force.
        seccomp: Whether a seccomp filter refuses dangerous system calls.
        missing: One sentence for each protection that this host does not have.
    """

    landlock: int | None = None
    seccomp: bool = False
    missing: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the protections as JSON-serialisable data, in which a reader reports them to the service."""
        return {"landlock": self.landlock, "seccomp": self.seccomp, "missing": list(self.missing)}


def confine(read: Sequence[Path], write: Sequence[Path]) -> Confinement:
    """Confines this process, which must be single-threaded, for the rest of its life.

    Args:
        read: Folders whose files the process may read, in addition to those of Python and its libraries.
        write: Folders in which the process may read and write; no folder of `read` may be inside one of them.

    Returns:
        The protections that are now in force, and those that this host lacks.
    """
    missing = []
    threads = _threads()
    if threads > 1:
        missing.append(f"{threads - 1} threads were started before the reader was confined: they may be unconfined.")
    if not _drop_capabilities():
        missing.append("The reader keeps the capabilities of the service: run the service without any.")
    rules: system_calls.Filter | None = None
    try:
        rules = system_calls.prepared()  # opens files, so it runs before Landlock; loaded last
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
    """Returns the number of threads of this process; 1 if the system does not report it."""
    with suppress(OSError):
        return len(os.listdir("/proc/self/task"))
    return 1


def _drop_capabilities() -> bool:
    """Drops all Linux capabilities of this process, which has some only if root runs the service.

    Returns:
        Whether the process now has none.
    """
    if sys.platform != "linux":
        return True
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    with suppress(AttributeError, OSError):
        return int(ctypes.CDLL(None).capset(header, nothing)) == 0
    return False
