"""Output of all commands: tables and progress bars on a terminal, one JSON document with --json.

Names of models and layers are untrusted input: they are printed as plain text, never interpreted as markup or
control codes.
"""

import json
import os
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

from costmodel.progress import Progress, Stages

__all__ = [
    "note",
    "plain",
    "print_compact_json",
    "print_json",
    "print_table",
    "progress_bars",
    "say",
    "terminal_columns",
]

_LONGEST_CELL = 40
_SHORTEST_CELL = 8
_SHORTEST_NAME = 20
_BETWEEN = 2  # spaces between columns
_UNBOUNDED = 200  # columns of a file or a pipe, which need not fit a screen


def plain(text: str) -> str:
    """Returns `text` with "?" for each character that would break the line, move the cursor or change the colours."""
    return "".join(c if c.isprintable() else "?" for c in text)


def say(text: str = "", *, style: str = "") -> None:
    """Prints `text` as one line on standard output, wrapped between words if it is wider than the terminal."""
    console, text = _console(), plain(text)
    lines = [text]
    if _is_bounded(sys.stdout) and len(text) > console.width:
        indent = text[: len(text) - len(text.lstrip())]
        # A path or a name that is longer than a line stays whole, so that it can be copied from the terminal.
        lines = textwrap.wrap(
            text.lstrip(), console.width, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
    for line in lines:
        console.print(line, style=style, soft_wrap=True)


def terminal_columns() -> int:
    """Returns the width of the terminal in characters; a fixed large width if standard output is a file or a pipe."""
    return _console().width


def note(text: str) -> None:
    """Prints a remark on standard error, so that standard output stays parseable.

    The remark is printed without line breaks, as error messages are, and only the terminal wraps it, so that a command
    in it can be copied as a whole.
    """
    _console(error=True).print(plain(f"note: {text}"), style="dim", soft_wrap=True)


def print_json(document: Any) -> None:
    """Prints an indented JSON document, which may contain dataclasses, on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False, default=asdict) + "\n")
    sys.stdout.flush()  # so that a closed pipe raises here, where it is handled, and not at exit


def print_compact_json(document: Any) -> None:
    """Prints a JSON document on one line of standard output, for large documents that only programs read."""
    sys.stdout.write(json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def print_table(headers: "Sequence[str]", rows: "Iterable[Sequence[str]]", *, left: int = 1) -> None:
    """Prints a table on standard output, one line for each row.

    The first columns hold words, the others numbers. If the table is wider than the terminal, cells are shortened with
    an ellipsis: first in the columns of words except the first column, then in the first column, which names the row,
    and last in the columns of numbers.

    Args:
        headers: Names of the columns.
        rows: Cells of each row; a row whose cells after the first are all "-" is dimmed.
        left: Number of columns that hold words and are left-aligned; the others hold numbers and are right-aligned.
    """
    from rich.cells import cell_len
    from rich.table import Table

    console = _console()
    lines = [tuple(map(plain, row)) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(headers, *lines, strict=True)]
    widths[1:] = [min(width, _LONGEST_CELL) for width in widths[1:]]
    _narrow(widths, console.width - _BETWEEN * (len(widths) - 1), left)
    table = Table(box=None, header_style="bold", padding=(0, _BETWEEN, 0, 0), pad_edge=False)
    for position, (header, width) in enumerate(zip(headers, widths, strict=True)):
        justify: Literal["left", "right"] = "left" if position < left else "right"
        table.add_column(header, justify=justify, no_wrap=True, overflow="ellipsis", width=width)
    for line in lines:
        table.add_row(*line, style="dim" if set(line[1:]) == {"-"} else "")
    console.print(table)


def _narrow(widths: list[int], available: int, left: int) -> None:
    """Shrinks column widths in place until their sum is at most `available`, or all columns have their least width.

    Columns of words shrink first, then the first column, then columns of numbers; in each kind, the widest first.

    Args:
        widths: Width of each column in characters.
        available: Number of characters that all columns together may take.
        left: Number of columns that hold words, including the first column.
    """
    words, name, numbers = range(1, left), range(1), range(left, len(widths))
    groups = (
        (words, _SHORTEST_CELL), (name, _SHORTEST_NAME), (numbers, _SHORTEST_CELL), (name, _SHORTEST_CELL),
    )  # fmt: skip
    for group, shortest in groups:
        while sum(widths) > available and (widest := max(group, key=widths.__getitem__, default=None)) is not None:
            if widths[widest] <= shortest:
                break
            widths[widest] -= 1


@contextmanager
def progress_bars() -> "Iterator[Stages]":
    """Shows progress bars with the time left on standard error.

    Yields:
        Function that takes the name of a stage of a job and returns a progress callback, which shows the stage's bar.
    """
    from rich import progress as bar

    console = _console(error=True)
    label_columns = max(10, console.width - 60)
    bars = bar.Progress(
        bar.TextColumn("{task.description:<17}", markup=False),
        bar.BarColumn(bar_width=20),
        bar.MofNCompleteColumn(),
        bar.TimeRemainingColumn(compact=True),
        bar.TextColumn("{task.fields[what]}", style="dim", markup=False),
        console=console,
    )

    def stage(name: str) -> Progress:
        tasks: list[bar.TaskID] = []

        def update(done: int, total: int, what: str) -> None:
            if not tasks:  # started at the first step: a stage that fails before it begins shows no bar
                bars.start()
                tasks.append(bars.add_task(name, what=""))
            bars.update(tasks[0], completed=done, total=total, what=plain(what)[:label_columns])

        return update

    try:
        yield stage
    finally:
        if bars.tasks:
            bars.stop()


def _console(*, error: bool = False) -> "Console":
    from rich.console import Console

    width = None if _is_bounded(sys.stderr if error else sys.stdout) else _UNBOUNDED
    return Console(stderr=error, width=width, highlight=False, markup=False, emoji=False)


def _is_bounded(stream: TextIO) -> bool:
    return stream.isatty() or "COLUMNS" in os.environ
