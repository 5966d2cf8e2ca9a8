"""Reader processes for tests, started as the service starts them, each in its own folder."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from costmodel.serving.isolation.child import Child
from costmodel.serving.isolation.limits import Limits

__all__ = ["Reader", "started"]

HOSTILE = Path(__file__).with_name("hostile.py")


class Reader:
    """One process that answers tasks.

    Attributes:
        confinement: Confinement that it reported before the first task.
        models: Folder that it may read.
        scratch: Folder that it may write.
        pid: Process id.
    """

    def __init__(
        self, folder: Path, limits: Limits, program: list[str], *, confined: bool = True, runtimes: Sequence[str] = ()
    ) -> None:
        self.models, self.scratch = folder / "models", folder / "scratch"
        self.models.mkdir(parents=True)
        self.scratch.mkdir()
        folders = {"read": [str(self.models)], "write": [str(self.scratch)]}
        confinement = [json.dumps(folders), json.dumps(runtimes)] if confined else []
        self._child = Child(
            [sys.executable, "-P", *program, json.dumps(asdict(limits)), *confinement],
            folder=self.scratch,
            environment=os.environ | {"TMPDIR": str(self.scratch), "OMP_NUM_THREADS": "1"},
            start_s=60.0,
            answer_bytes=64 << 20,
        )
        self.pid = self._child.pid
        self.confinement: dict[str, Any] = self._child.greeting["confinement"]

    def ask(self, **task: object) -> dict[str, Any]:
        """Returns the answer to a task."""
        answer, _ = self._child.ask(task, within_s=60.0)
        json.dumps(answer, allow_nan=False)
        return answer

    def lower(self, path: Path, **given: object) -> dict[str, Any]:
        """Returns the answer to a task that lowers a model."""
        return self.ask(**{"name": "mine", "path": str(path), "runtime": "onnxruntime", "level": "all",
                           "granularity": 1} | given)  # fmt: skip

    def do(self, action: str, *arguments: object) -> dict[str, Any]:
        """Returns the result of an action of a hostile reader."""
        return self.ask(**{"do": action, "with": arguments})

    def end(self) -> None:
        """Kill the process."""
        self._child.kill()


@contextmanager
def started(
    folder: Path, limits: Limits, *, hostile: bool = False, confined: bool = True, runtimes: Sequence[str] = ()
) -> Iterator[Reader]:
    """Yields a running reader."""
    program = [str(HOSTILE)] if hostile else ["-m", "costmodel.serving.isolation.reader"]
    reader = Reader(folder, limits, program, confined=confined, runtimes=runtimes)
    try:
        yield reader
    finally:
        reader.end()
