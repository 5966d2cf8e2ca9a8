"""A compromised reader that reads models as the ordinary one does, and then swaps the file that it leaves.

`python swapping.py KIND FILE LIMITS FOLDERS`: KIND says what takes the place of the file, FILE is a file of somebody
else. The reader is not confined, so that the pool alone has to notice.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from costmodel.runtimes.base import DEFAULT_RUNTIME, get_runtime
from costmodel.serving.isolation.child import receive, send
from costmodel.serving.isolation.limits import Limits
from costmodel.serving.isolation.reading import answer_task


def _too_large(kept: Path) -> None:
    with kept.open("wb") as file:
        file.truncate(Limits().stripped_bytes + 1)


def _main(kind: str, other: Path) -> None:
    swaps: Mapping[str, Callable[[Path], Any]] = {
        "symlink": lambda kept: kept.symlink_to(other),
        "hard link": lambda kept: kept.hardlink_to(other),
        "pipe": os.mkfifo,
        "folder": Path.mkdir,
        "too large": _too_large,
    }
    runtimes = {DEFAULT_RUNTIME: get_runtime(DEFAULT_RUNTIME)}
    send(sys.stdout.buffer, {"confinement": {}})
    while (message := receive(sys.stdin.buffer)) is not None:
        task = message[0]
        answer = answer_task(task, runtimes, Limits())
        if kind in swaps:
            kept = Path(task["keep"])
            kept.unlink()
            swaps[kind](kept)
        send(sys.stdout.buffer, answer)


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
