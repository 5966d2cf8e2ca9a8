"""Whether an SQLite database was written to, told without opening it."""

import time
from pathlib import Path

__all__ = ["stamp_of"]

# File systems keep times in steps of up to two seconds.
_SETTLED_NS = 2_000_000_000


def stamp_of(file: Path) -> tuple[int, ...] | None:
    """Time and size of a database's file and of the log beside it: they differ after every write, whoever wrote.

    None where that cannot be told: there is no file, or it was written to just now, and a second write might get the
    same time.
    """
    try:
        kept = file.stat()
        log = _log_of(file)
    except OSError:
        return None
    if time.time_ns() - max(kept.st_mtime_ns, log[0]) < _SETTLED_NS:
        return None
    return kept.st_dev, kept.st_ino, kept.st_mtime_ns, kept.st_size, *log


def _log_of(file: Path) -> tuple[int, int]:
    """Time and size of the log that SQLite writes ahead; none and an empty one, which readers leave, are the same."""
    try:
        log = Path(f"{file}-wal").stat()
    except FileNotFoundError:
        return 0, 0
    return (log.st_mtime_ns, log.st_size) if log.st_size else (0, 0)
