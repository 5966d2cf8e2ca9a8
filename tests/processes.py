"""Waits for processes that tests kill."""

import time

import psutil

__all__ = ["await_end"]


def await_end(pid: int) -> None:
    """Waits until a process has ended, even if its parent has not collected its exit status yet."""
    try:
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
    except psutil.NoSuchProcess:
        pass
