"""Parses the URL of a results store and identifies the database it leads to, however the URL is spelt."""

import re
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from costmodel.errors import StoreError

__all__ = ["not_a_store", "parse_store_url", "store_identity"]

_POSTGRESQL_PORT = 5432


def parse_store_url(url: str) -> URL:
    """Parses the URL of a results store; for a PostgreSQL database, sets the driver that costmodel uses.

    Raises:
        StoreError: `url` is not a URL, or is that of a database in memory.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise not_a_store(url) from error
    if parsed.drivername in ("postgres", "postgresql"):  # SQLAlchemy's default would be an older driver
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise StoreError(f"{url} keeps nothing: give a file, such as sqlite:///results.db")
    return parsed


def store_identity(url: str) -> str:
    """Returns an identifier of the database that a URL leads to, independent of driver, user, password and options.

    Relative and absolute paths of the same SQLite file give the same identifier, and so does a symbolic link to it.

    Raises:
        StoreError: `url` is not a URL, or is that of a database in memory.
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
    """Returns the error for a text that is not the URL of a database; its message quotes the text without password."""
    shown = re.sub(r"(?<=//)[^/@]*:[^/@]*(?=@)", "***", url)
    return StoreError(f"{shown!r} is not the URL of a store: give one such as sqlite:///results.db")


def _option(url: URL, name: str) -> str:
    """Returns an option from the query string of a URL; "" if it is absent.

    PostgreSQL allows host, port or socket folder there.
    """
    value = url.query.get(name, "")
    return value if isinstance(value, str) else ",".join(value)
