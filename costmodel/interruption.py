"""Makes sure that Ctrl-C and SIGTERM end a command, wherever Python is when the signal arrives.

A signal handler raises an exception at that place, where it may get lost: Python ignores what is raised in destructors
and in callbacks of weak references, and extension modules discard exceptions. So a lost exception is raised again.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

__all__ = ["TERMINATED", "ended_by_signals", "raise_if_interrupted", "signals_raised"]

# Exit code of a command that SIGTERM ended.
TERMINATED = 143
_MOMENT_S = 0.01
_MAIN_THREAD = threading.main_thread().ident or threading.get_ident()

# The signals that arrived within `signals_raised`, the newest last.
_arrived: list[int] = []
# Those whose exception Python ignored and that are still to be delivered once more, each by a timer.
_lost: list[int] = []
_delivering = threading.Lock()


@contextmanager
def signals_raised() -> Iterator[None]:
    """Raises KeyboardInterrupt on Ctrl-C and SystemExit(TERMINATED) on SIGTERM within the `with` block.

    Locks are thus released on SIGTERM too, and half-written files are removed. Ctrl-C stays ignored if it was, as in
    background jobs of shells.
    """
    hook = sys.unraisablehook
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, _raise)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, _raise)
    sys.unraisablehook = partial(_raise_again, hook)
    _arrived.clear()
    try:
        yield
    finally:
        try:
            _forget_lost()  # what comes after the block is not to be hit
        finally:
            _arrived.clear()
            sys.unraisablehook = hook
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)  # None: a handler that is not Python's


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM end the `with` block without an error: they are how a service is meant to end."""
    try:
        yield
    except KeyboardInterrupt:
        pass
    except SystemExit as stop:
        if stop.code != TERMINATED:
            raise


def raise_if_interrupted() -> None:
    """Raises what a signal raised before if the command still runs; long loops call it in each iteration.

    Raises:
        KeyboardInterrupt: Ctrl-C arrived within `signals_raised`.
        SystemExit: SIGTERM arrived within `signals_raised`.
    """
    if _arrived:
        _forget_lost()  # it is raised now
        _raise(_arrived[-1], None)


def _raise(number: int, _: FrameType | None) -> None:
    _arrived.append(number)
    if number == signal.SIGTERM:
        raise SystemExit(TERMINATED)
    raise KeyboardInterrupt


def _raise_again(hook: "Callable[[sys.UnraisableHookArgs], object]", unraisable: "sys.UnraisableHookArgs") -> None:
    """Delivers a signal once more if Python ignored the exception; other ignored exceptions are passed to `hook`."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        number = signal.SIGINT
    elif issubclass(unraisable.exc_type, SystemExit) and getattr(unraisable.exc_value, "code", None) == TERMINATED:
        number = signal.SIGTERM
    else:
        hook(unraisable)
        return
    _lost.append(number)
    # A moment later, so that it does not end up in the same destructor.
    timer = threading.Timer(_MOMENT_S, _deliver, (number,))
    timer.daemon = True
    timer.start()


def _deliver(number: int) -> None:
    """Delivers a lost signal to the main thread, unless it has been forgotten."""
    with _delivering:
        if number in _lost:
            _lost.remove(number)
            signal.pthread_kill(_MAIN_THREAD, number)


def _forget_lost() -> None:
    """Forgets signals that are still to be delivered; one that is being delivered is raised here."""
    with _delivering:
        _lost.clear()
