"""The command line: each command parses and validates its arguments, calls one job, and prints the result."""

import contextlib
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from costmodel.cli.context import Tools
from costmodel.cli.output import plain
from costmodel.errors import CostModelError
from costmodel.interruption import TERMINATED, signals_raised

__all__ = ["app", "main"]

_INTERRUPTED = 130

app = typer.Typer(
    name="costmodel",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"costmodel {version('costmodel')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Predict the latency of a neural network on a machine, without running it there."""


def main(arguments: Sequence[str] | None = None, *, tools: Tools | None = None) -> None:
    """Runs the command line; exits with 0 when done, 1 on a CostModelError, 2 on wrong usage, 130 on Ctrl-C.

    `serve` and `extender`, which Ctrl-C and SIGTERM are meant to end, then exit with 0.

    Args:
        arguments: Name of the command and its arguments; by default those that the process was started with.
        tools: Runtime, benchmark sessions and shipped data that the commands use; by default those of this host.
    """
    try:
        with signals_raised():
            app(arguments, prog_name=None if arguments is None else "costmodel", obj=tools or Tools())
    except CostModelError as error:
        sys.stderr.write(f"costmodel: {plain(str(error))}\n")
        raise SystemExit(1) from None
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # the reader of the pipe, such as `head`, has closed it
            raise SystemExit(0) from None
        if stop.code in (_INTERRUPTED, TERMINATED):  # typer exits with 130 on Ctrl-C and prints no explanation
            sys.stderr.write("costmodel: stopped; what was stored is kept, run the same command again\n")
        raise
    except OSError as error:
        with contextlib.suppress(OSError):
            sys.stdout.close()  # its buffer cannot be written either
        sys.stderr.write(f"costmodel: the output cannot be written ({error.strerror}): make room for it\n")
        raise SystemExit(1) from None


# Imported for their effect: each command registers itself on `app`.
from costmodel.cli import (  # noqa: E402
    adapt,
    bench,
    capacity,
    compare,
    compare_runtimes,
    corpus,
    decompose,
    drift,
    extender,
    fleet,
    interference,
    lower,
    predict,
    profile,
    rank,
    regressors,
    reproduce,
    run,
    serve,
    survey,
    systems,
    tour,
    train,
    transfer,
    tune,
)

assert all(
    (
        adapt, bench, capacity, compare, compare_runtimes, corpus, decompose, drift, extender, fleet, interference,
        lower, predict, profile, rank, regressors, reproduce, run, serve, survey, systems, tour, train, transfer, tune,
    )
)  # fmt: skip
