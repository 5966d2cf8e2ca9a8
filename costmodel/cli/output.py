"""What people and programs see: tables and bars on a terminal, one JSON document with --json.

The names of models and layers are not ours: they are printed as plain text, never read as markup or control codes.
"""

import json
import os
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import Console
    from rich.progress import TaskID

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
    """`text` on one line, without characters that would move a terminal's cursor or change its colours."""
    return "".join(c if c.isprintable() else "?" for c in text)


def say(text: str = "", *, style: str = "") -> None:
    """Print `text` as one line on standard output, or wrapped between words where it is wider than the terminal."""
    console, text = _console(), plain(text)
    lines = [text]
    if _is_bounded(sys.stdout) and len(text) > console.width:
        indent = text[: len(text) - len(text.lstrip())]
        # A path or a name that is longer than a line stays whole, so that it can be copied from the terminal.
        lines = textwrap.wrap(
            text, console.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    for line in lines:
        console.print(line, style=style, soft_wrap=True)


def terminal_columns() -> int:
    """How wide standard output is."""
    return _console().width


def note(text: str) -> None:
    """Print a remark on standard error, where it disturbs no program.

    It is one line, as error messages are, and the terminal wraps it: a command in it can be copied in one piece.
    """
    _console(error=True).print(plain(f"note: {text}"), style="dim", soft_wrap=True)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()  # here, where a closed pipe is still a closed pipe and not a failure at exit


def print_compact_json(document: Any) -> None:
    """The same on one line: for programs only, where it is large."""
    sys.stdout.write(json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def print_table(headers: "Sequence[str]", rows: "Iterable[Sequence[str]]", *, left: int = 1) -> None:
    """Print a table on standard output, one line for each row.

    Where it is wider than the terminal, cells end in an ellipsis: words beside the first column give way first, then
    the first column, which says what a row is about, and last what is long among the numbers.

    Args:
        headers: Names of the columns.
        rows: Cells; a row of dashes is dimmed.
        left: How many columns hold words and start on the left; the others hold numbers and end on the right.
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


def _narrow(widths: list[int], room: int, left: int) -> None:
    """Take from the widest columns, in the order in which columns give way, until all fit into `room`."""
    words, name, numbers = range(1, left), range(1), range(left, len(widths))
    groups = (
        (words, _SHORTEST_CELL), (name, _SHORTEST_NAME), (numbers, _SHORTEST_CELL), (name, _SHORTEST_CELL),
    )  # fmt: skip
    for group, shortest in groups:
        while sum(widths) > room and (widest := max(group, key=widths.__getitem__, default=None)) is not None:
            if widths[widest] <= shortest:
                break
            widths[widest] -= 1


@contextmanager
def progress_bars() -> "Iterator[Any]":
    """Bars with the time left, on standard error; gives what makes one for a named stage."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = _console(error=True)
    room = max(10, console.width - 60)
    bars = Progress(
        TextColumn("{task.description:<17}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[what]}", style="dim", markup=False),
        console=console,
    )

    def stage(name: str) -> "Callable[[int, int, str], None]":
        tasks: list[TaskID] = []

        def tell(done: int, total: int, what: str) -> None:
            if not tasks:  # only now: what fails before it begins needs no bar
                bars.start()
                tasks.append(bars.add_task(name, what=""))
            bars.update(tasks[0], completed=done, total=total, what=plain(what)[:room])

        return tell

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
