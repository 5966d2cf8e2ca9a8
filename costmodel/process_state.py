"""Changes settings of the whole process for the duration of a `with` block.

The settings are log levels, environment variables, and whether Python collects garbage.
"""

import gc
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["environment_variables", "garbage_collection_paused", "log_levels"]


@contextmanager
def log_levels(levels: Mapping[str, int]) -> Iterator[None]:
    """Sets the levels of loggers, by name ("" is the root logger), and restores them at the end of the `with` block."""
    before = {name: logging.getLogger(name).level for name in levels}
    try:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def environment_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables, and restores them at the end of the `with` block."""
    before = {name: os.environ.get(name) for name in values}
    try:
        os.environ.update(values)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Stops Python's search for cyclic garbage, and resumes it at the end of the `with` block if it ran before.

    The search interrupts what is being timed, and takes half of the time in which millions of objects are made.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
