"""Remembers the models at which a runtime crashed, because such a crash ends the whole process.

OpenVINO 2026.4.1, for example, ends with a segmentation fault while it compiles a DenseNet in int8 (docs/adr/0029).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from costmodel.errors import LoweringError

__all__ = ["refusing_after_crashes"]

# One process may have been killed for another reason, such as a lack of memory.
_MOST_CRASHES = 2


@contextmanager
def refusing_after_crashes(file: Path, what: str) -> Iterator[None]:
    """Guards a block of code that may end the process: after two such ends, the block is not entered any more.

    Each process that enters the block leaves its number in a file. When it leaves the block, by an exception or not, it
    keeps only the numbers of those that are still in it: that it came through shows that the others were ended for
    another reason.

    Args:
        file: File for the numbers. If it cannot be written, the block is entered without this protection.
        what: What happens in the block, such as "openvino 2026.4.1 lowered densenet121_int8".

    Raises:
        LoweringError: Two processes have ended in the block.
    """
    entered = _processes(file)
    crashed = [number for number in entered if number != os.getpid() and not psutil.pid_exists(number)]
    if len(crashed) >= _MOST_CRASHES:
        raise LoweringError(
            f"the process ended {len(crashed)} times while {what}, which is not tried again: remove {file} to try it"
        )
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as appended:
            appended.write(f"{os.getpid()}\n")
    try:
        yield
    finally:
        with suppress(OSError):
            inside = [number for number in _processes(file) if number != os.getpid() and psutil.pid_exists(number)]
            if inside:
                file.write_text("".join(f"{number}\n" for number in inside))
            else:
                file.unlink(missing_ok=True)


def _processes(file: Path) -> list[int]:
    try:
        return [int(line) for line in file.read_text().split()]
    except (OSError, ValueError):
        return []
