"""Restricts which files a reader process may open, by Landlock, a mechanism of Linux (package landlockpy)."""

import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from costmodel.errors import MissingExtraError

__all__ = ["UnavailableError", "left_open", "python_files", "restrict"]


class UnavailableError(Exception):
    """This host lacks what a protection of reader processes needs: a feature of the kernel, or a library."""


def restrict(read: Sequence[Path], write: Sequence[Path]) -> int:
    """Restricts this thread, and those that it starts, to the files in given folders and those that Python needs.

    TCP, signals to other processes, and connections to abstract Unix sockets of other processes are refused too, as far
    as the kernel supports that.

    Args:
        read: Folders whose files may be read, in addition to those of Python.
        write: Folders in which files may be read, written, created and deleted.

    Returns:
        Version of the kernel's Landlock interface that is in force.

    Raises:
        UnavailableError: landlockpy is not installed, or the kernel has no Landlock.
    """
    try:
        from landlockpy import AccessFS, LandlockError, RestrictFlag, Ruleset, Scope
    except ImportError as error:
        raise UnavailableError(f"landlockpy is not installed, {MissingExtraError.installation_of('serve')}") from error
    reading = AccessFS.READ_FILE | AccessFS.READ_DIR
    writing = (
        reading
        | AccessFS.WRITE_FILE
        | AccessFS.TRUNCATE
        | AccessFS.MAKE_REG
        | AccessFS.MAKE_DIR
        | AccessFS.REMOVE_FILE
        | AccessFS.REMOVE_DIR
    )
    try:
        with Ruleset(scoped=Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL) as rules:
            for path in python_files():
                rules.allow_path(path, reading if path.is_dir() else AccessFS.READ_FILE)
            for path in read:
                rules.allow_path(path, AccessFS.READ_FILE)
            for path in write:
                rules.allow_path(path, writing)
            rules.restrict(RestrictFlag.TSYNC)
            return rules.abi_version
    except LandlockError as error:
        raise UnavailableError(f"this kernel has no Landlock ({error.strerror})") from error


def python_files() -> list[Path]:
    """Returns the folders and files that Python may need to read: its libraries, and modules loaded from elsewhere.

    Entries of `sys.path` are not included, because an entry may be a checkout of costmodel in which a service keeps its
    data.
    """
    found = {Path(path).resolve() for name in _LIBRARIES if (path := sysconfig.get_path(name))}
    found |= {path.resolve() for path in _package_files()}
    return sorted(path for path in found if path.exists() and not any(above in found for above in path.parents))


_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")


def _package_files() -> Iterator[Path]:
    """Yields the folder of each loaded package, and the file of each loaded module outside packages."""
    for name, module in list(sys.modules.items()):
        # Some modules create any attribute on access, such as torch's namespaces; hence `__dict__`.
        known = getattr(module, "__dict__", {})
        specification = known.get("__spec__")
        paths = list(getattr(specification, "submodule_search_locations", None) or ())
        file = known.get("__file__")
        if paths:
            yield from map(Path, paths)
        elif file and "." not in name:
            yield Path(file)


def left_open(landlock: int | None, *, sockets_refused: bool) -> list[str]:
    """Returns a sentence, with a remedy, for each kind of access that a reader process has in spite of Landlock.

    Args:
        landlock: Version of the kernel's Landlock interface that is in force. None if Landlock is not in force: the
            list is then empty, because `costmodel.serving.isolation.confinement.confine` reports that.
        sockets_refused: Whether a seccomp filter is in force, which refuses sockets and signals.
    """
    if landlock is None:
        return []
    found = []
    if landlock < 3:
        found.append("Landlock refuses no truncation before Linux 6.2: run the service as a user that owns no files.")
    if landlock < 4 and not sockets_refused:
        found.append("Landlock refuses no TCP before Linux 6.7: run the service without a network beyond its own.")
    if not sockets_refused:
        found.append("UDP and sockets of the file system are not refused: run the service in a network of its own.")
    if landlock < 6 and not sockets_refused:
        found.append(
            "Landlock refuses no signals before Linux 6.12: run the service in a process namespace of its own."
        )
    return found
