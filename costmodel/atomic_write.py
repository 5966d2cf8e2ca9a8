"""Writes files and folders atomically: a path never leads to a partly written file or folder, even after a crash."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_file", "atomic_folder"]


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write to; that file is moved to `path` if the `with` block ends without an error."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yields the path of an empty folder, which is renamed to `path` if the `with` block ends without an error.

    At `path` there must be nothing, or an empty folder. The parents of `path` are created if necessary; the unfinished
    folder of an earlier process that was killed is deleted.
    """
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
