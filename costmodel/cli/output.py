"""What people and programs see: tables and bars on a terminal, one JSON document with --json."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

__all__ = ["console", "note", "print_json", "progress_bars"]


def console(*, error: bool = False) -> "Console":
    """Standard output, or standard error for progress and notes."""
    from rich.console import Console

    return Console(stderr=error, highlight=False)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    import sys

    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def note(text: str) -> None:
    """A remark on standard error, where it disturbs no program."""
    console(error=True).print(f"[dim]note:[/dim] {_escaped(text)}")


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


@contextmanager
def progress_bars() -> "Iterator[Any]":
    """Bars with the time left, on standard error; gives what makes one for a named stage."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description:<18}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("[dim]{task.fields[what]}"),
        console=console(error=True),
    ) as bars:

        def stage(name: str) -> "Callable[[int, int, str], None]":
            task = bars.add_task(name, total=None, what="")

            def tell(done: int, total: int, what: str) -> None:
                bars.update(task, completed=done, total=total, what=_escaped(what)[:40])

            return tell

        yield stage
