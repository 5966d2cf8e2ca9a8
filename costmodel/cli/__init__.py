"""The command line: parse, validate with a plain sentence, one call, an exit code."""

import contextlib
import signal
import sys
from types import FrameType

import typer

from costmodel.cli.output import plain
from costmodel.errors import CostModelError

__all__ = ["app", "main"]

_INTERRUPTED = 130
_TERMINATED = 143

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
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except CostModelError as error:
        sys.stderr.write(f"costmodel: {plain(str(error))}\n")
        raise SystemExit(1) from None
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # `| head` has seen enough: no error of ours, nor of anyone
            raise SystemExit(0) from None
        if stop.code in (_INTERRUPTED, _TERMINATED):  # the first is typer's word for Ctrl-C, which it does not explain
            sys.stderr.write("costmodel: stopped; what was stored is kept, run the same command again\n")
        raise
    except OSError as error:
        with contextlib.suppress(OSError):
            sys.stdout.close()  # what it still holds cannot be written either
        sys.stderr.write(f"costmodel: the output cannot be written ({error.strerror}): make room for it\n")
        raise SystemExit(1) from None


def _terminate(_: int, __: FrameType | None) -> None:
    """End as on Ctrl-C: locks are let go, half-written files are removed."""
    raise SystemExit(_TERMINATED)


# Each command registers itself on `app`.
from costmodel.cli import (  # noqa: E402
    adapt,
    bench,
    compare,
    corpus,
    decompose,
    drift,
    lower,
    predict,
    rank,
    regressors,
    reproduce,
    serve,
    systems,
    tour,
    train,
    transfer,
)

assert all(
    (
        adapt, bench, compare, corpus, decompose, drift, lower, predict, rank, regressors, reproduce, serve, systems,
        tour, train, transfer,
    )
)  # fmt: skip
