"""Runs a `costmodel` command as from a shell."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Done", "Run"]


@dataclass(frozen=True)
class Done:
    """Result of a finished command.

    Attributes:
        code: Exit code.
        out: Standard output.
        err: Standard error.
    """

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Standard output with single spaces and no line breaks, so that line wrapping does not matter."""
        return " ".join(self.out.split())

    @property
    def document(self) -> Any:
        """The JSON document on standard output; fails if there is anything else."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """The one line of the error message; fails if there is anything else, or no error."""
        assert (self.code, self.out) == (1, "")
        (line,) = self.err.splitlines()
        assert line.startswith("costmodel: ")
        assert "Traceback" not in line
        return line


# Parameters: the home, then the command-line arguments.
Run = Callable[..., Done]
