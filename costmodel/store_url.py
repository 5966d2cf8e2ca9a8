"""The URL of a results store: reading it, and which database it leads to however it is spelt."""

import re
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from costmodel.errors import StoreError

__all__ = ["not_a_store", "parse_store_url", "place_of"]

_POSTGRESQL_PORT = 5432


def parse_store_url(url: str) -> URL:
    """The parts of a store's URL, PostgreSQL with the driver that costmodel uses.

    Raises:
        StoreError: It is no URL, or that of a database in memory.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise not_a_store(url) from error
    if parsed.drivername in ("postgres", "postgresql"):  # SQLAlchemy's own choice is an older driver
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise StoreError(f"{url} keeps nothing: give a file, such as sqlite:///results.db")
    return parsed


def place_of(url: str) -> str:
    """One text for every URL that leads to the same database: no driver, user, password or option changes it.

    A relative path and an absolute one of the same SQLite file give the same text, and so does a symbolic link to it.

    Raises:
        StoreError: It is no URL, or that of a database in memory.
    """
    parsed = parse_store_url(url)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return f"sqlite:{Path(str(parsed.database)).resolve()}"
    host, port = parsed.host or _option(parsed, "host"), str(parsed.port or _option(parsed, "port"))
    if backend == "postgresql":
        port = port or str(_POSTGRESQL_PORT)
    return f"{backend}://{host.lower()}:{port}/{parsed.database or ''}"


def not_a_store(url: str) -> StoreError:
    """The error for a text that is no URL of a database; it quotes the text without its password."""
    shown = re.sub(r"(?<=//)[^/@]*:[^/@]*(?=@)", "***", url)
    return StoreError(f"{shown!r} is not the URL of a store: give one such as sqlite:///results.db")


def _option(url: URL, name: str) -> str:
    """A part of the address that is written behind the question mark, as PostgreSQL allows: a socket's folder, say."""
    value = url.query.get(name, "")
    return value if isinstance(value, str) else ",".join(value)
