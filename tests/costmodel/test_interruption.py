"""Ctrl-C and SIGTERM end a command even if the exception that a signal raises gets lost."""

import contextlib
import signal
import time
from collections.abc import Iterator

import pytest

from costmodel.interruption import TERMINATED, ended_by_signals, raise_if_interrupted, signals_raised

_MOMENTS_S = 0.2  # longer than until a signal is delivered once more


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_discarded_exception_is_raised_again(number: int, raised: type[BaseException]) -> None:
    """A loop ends at its next check if a library discarded what a signal had raised."""

    def loop() -> None:
        for _ in range(2):
            raise_if_interrupted()
            with contextlib.suppress(raised):
                signal.raise_signal(number)

    with pytest.raises(raised) as again, signals_raised():
        loop()
    if raised is SystemExit:
        assert again.value.code == TERMINATED


class _Destroyed:
    """Gets a signal in its destructor, whose exceptions Python ignores."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_an_ignored_exception_is_delivered_once_more(number: int, raised: type[BaseException]) -> None:
    """A command ends a moment later if Python ignored what a signal had raised in a destructor."""
    delivered = False
    try:
        with signals_raised():
            _Destroyed(number)
            time.sleep(_MOMENTS_S)
    except raised:
        delivered = True
    assert delivered


@pytest.mark.parametrize("noticed", [False, True])
def test_nothing_is_delivered_after_the_end(noticed: bool) -> None:
    """A command that ended in the meantime is not hit by the same Ctrl-C again, for instance while Python ends."""
    with contextlib.suppress(KeyboardInterrupt), signals_raised():
        for _ in range(2):
            _Destroyed(signal.SIGINT)
        if noticed:
            raise_if_interrupted()
    try:
        time.sleep(_MOMENTS_S)
    except KeyboardInterrupt:
        pytest.fail("the signal was delivered after the end")


def test_what_an_interrupted_command_cleans_up_is_not_interrupted() -> None:
    """Locks and files are not hit by a second delivery of the Ctrl-C that is being raised already."""
    cleaned = False
    with contextlib.suppress(KeyboardInterrupt), signals_raised():
        try:
            for _ in range(2):
                _Destroyed(signal.SIGINT)
            raise_if_interrupted()
        finally:
            time.sleep(_MOMENTS_S)
            cleaned = True
    assert cleaned


def test_the_handlers_are_restored_and_the_signals_forgotten() -> None:
    """Later code has the handlers that it had before, and is not ended by an earlier signal."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), signals_raised():
        signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    raise_if_interrupted()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_service_ends_in_peace(number: int) -> None:
    """Ctrl-C and SIGTERM end what is meant to be ended by them, and nothing is raised."""
    ended = True
    with signals_raised(), ended_by_signals():
        signal.raise_signal(number)
        ended = False
    assert ended


def test_other_ends_of_a_service_are_raised() -> None:
    """An exit with another code is none that a signal asked for."""
    with pytest.raises(SystemExit, match="3"), ended_by_signals():
        raise SystemExit(3)


def test_ctrl_c_stays_ignored() -> None:
    """A job that a shell started in the background goes on when the user ends another program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with signals_raised():
        signal.raise_signal(signal.SIGINT)
        raise_if_interrupted()
