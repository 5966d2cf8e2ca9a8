"""Calls a function in a process of its own, because onnxruntime fixes its number of threads once in a process."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import typer

from costmodel.errors import CostModelError

__all__ = ["call_in_child_process"]

_Result = TypeVar("_Result")

_INTERRUPTED = 130


def call_in_child_process(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Returns what a function returns in a new process, which ends before this process goes on, even on Ctrl-C.

    Args:
        function: Function of a module; its arguments and its result must be such that they can be pickled.
        arguments: Arguments of the function.

    Raises:
        CostModelError: The function raised it.
        typer.Exit: The process ended without a result; what was wrong is on standard error.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send_result, args=(sender, function, arguments))
    child.start()
    sender.close()  # so that `recv` ends when the child does
    try:
        with receiver:
            error, result = receiver.recv()
        child.join()
    except EOFError:
        child.join()
        raise typer.Exit(max(1, child.exitcode or 0)) from None
    except BaseException:
        child.terminate()
        child.join()
        raise
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _send_result(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    outcome: tuple[CostModelError | None, Any]
    try:
        outcome = None, function(*arguments)
    except CostModelError as error:
        outcome = error, None
    except KeyboardInterrupt:  # the parent, which gets it too, says so
        raise SystemExit(_INTERRUPTED) from None
    sender.send(outcome)
