"""Changes settings of the whole process for the duration of a `with` block: log levels and environment variables."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["environment_variables", "log_levels"]


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
