"""The command line: parse, validate with a plain sentence, one call, an exit code."""

import sys

import typer

from costmodel.cli.output import plain
from costmodel.errors import CostModelError

__all__ = ["app", "main"]

_INTERRUPTED = 130

app = typer.Typer(
    name="costmodel",
    help="What will this neural network cost on that machine, without running it there?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line; exit 0 when done, 1 on an error of costmodel's, 2 on wrong usage, 130 on Ctrl-C."""
    try:
        app()
    except CostModelError as error:
        sys.stderr.write(f"costmodel: {plain(str(error))}\n")
        raise SystemExit(1) from None
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # `| head` has seen enough: no error of ours, nor of anyone
            raise SystemExit(0) from None
        if stop.code == _INTERRUPTED:  # typer's word for Ctrl-C, which it does not explain
            sys.stderr.write("costmodel: stopped; what was measured is kept, run the same command to go on\n")
        raise


# Each command registers itself on `app`.
from costmodel.cli import bench, decompose, predict, systems, tour, train, transfer  # noqa: E402

assert all((bench, decompose, predict, systems, tour, train, transfer))
