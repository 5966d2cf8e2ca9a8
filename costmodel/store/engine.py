"""Creates database engines for stores in SQLite and PostgreSQL, with limits on how long statements wait."""

import math
import sqlite3
import time
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from costmodel.errors import MissingExtraError, StoreError
from costmodel.store_url import not_a_store

__all__ = ["open_engine"]


def open_engine(url: URL, wait_s: float) -> Engine:
    """Returns an engine for the database at `url`, without connecting to it.

    Args:
        url: URL of the database, as `costmodel.store_url.parse_store_url` returns it.
        wait_s: Longest time in seconds that a statement may wait for a lock or a connection before it fails; in
            PostgreSQL also the longest time that it may run.

    Raises:
        StoreError: The kind of database is unknown, its driver is not installed, or an option in the URL is invalid.
        MissingExtraError: The driver for PostgreSQL is not installed.
    """
    try:
        if url.get_backend_name() == "sqlite":
            return _sqlite(url, wait_s)
        if url.get_backend_name() == "postgresql":
            return _postgresql(url, wait_s)
        return create_engine(url, pool_pre_ping=True, pool_timeout=wait_s)
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise not_a_store(url.render_as_string(hide_password=True)) from error
    except ImportError as error:  # psycopg also raises this if it does not find libpq
        if url.drivername == "postgresql+psycopg":
            raise MissingExtraError("a store in PostgreSQL", "postgres") from error
        raise StoreError(f"a store at {url.drivername} needs the package {error.name}: install it") from error


def _postgresql(url: URL, wait_s: float) -> Engine:
    seconds, milliseconds = max(1, math.ceil(wait_s)), max(1, math.ceil(wait_s * 1000))
    # Keepalives and the TCP timeout detect a server that disappears without closing the connection.
    arguments = {
        "connect_timeout": seconds,
        "tcp_user_timeout": milliseconds,
        "keepalives_idle": seconds,
        "keepalives_interval": seconds,
    }
    defaults = {name: value for name, value in arguments.items() if name not in url.query}
    engine = create_engine(url, pool_pre_ping=True, pool_timeout=wait_s, connect_args=defaults)

    def limit(connection: Any, _: Any) -> None:
        # Set by statements, because some connection poolers refuse these settings as connection options.
        connection.autocommit = True
        for name in ("lock_timeout", "statement_timeout"):
            connection.execute(f"SET {name} = {milliseconds}")
        connection.autocommit = False

    event.listen(engine, "connect", limit)
    return engine


def _sqlite(url: URL, wait_s: float) -> Engine:
    # No pool: opening the file is cheap, and a connection must not be shared between threads or kept across a fork.
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": wait_s})

    def set_up(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin in `_begin`, not implicitly in the driver
        try:
            connection.execute(f"PRAGMA busy_timeout = {math.ceil(wait_s * 1000)}")
            _write_ahead(connection, wait_s)
            connection.execute("PRAGMA synchronous = FULL")  # a completed measurement survives a power cut
            connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error:
            connection.close()
            raise

    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", _begin)
    return engine


def _write_ahead(connection: Any, wait_s: float) -> None:
    """Switches a new SQLite database to write-ahead logging.

    While another process holds the lock that this needs, it is tried again for up to `wait_s` seconds, because SQLite
    itself does not wait for this lock.
    """
    deadline = time.monotonic() + wait_s
    while connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return  # without effect where it is not supported, such as on a network file system
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin(connection: Connection) -> None:
    """Begins a transaction in SQLite, taking the write lock at once if it is going to write.

    A transaction that asks for the write lock later may be refused it without waiting.
    """
    writing = connection.get_execution_options().get("writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
