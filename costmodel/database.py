"""The database under the results store: tables, engine and transactions, whichever SQL database it is.

Format history (`FORMAT_VERSION`):
    1   first format: a sequence was run over and over, with the call in its time.
    2   what of a time is the call: `measurements.overhead_us`.
"""

import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from costmodel.errors import MissingExtraError, StoreError
from costmodel.stamp import stamp_of

__all__ = [
    "FORMAT_VERSION", "Database", "add_if_new", "measurements", "models", "observations", "pieces", "samples",
    "select_in", "sequences", "systems",
]  # fmt: skip

FORMAT_VERSION = 2

# Where Ctrl-C falls into the closing of a connection, SQLAlchemy would print a traceback before it passes that on.
logging.getLogger("sqlalchemy.pool").addHandler(logging.NullHandler())
_BUSY_SECONDS = 60

_metadata = MetaData()
meta = Table("costmodel_meta", _metadata, Column("key", String(64), primary_key=True), Column("value", Text))
systems = Table(
    "systems", _metadata, Column("name", String(64), primary_key=True), Column("record", JSON, nullable=False)
)
sequences = Table(
    "sequences",
    _metadata,
    Column("signature", String(64), primary_key=True),
    Column("text", Text, nullable=False),
    Column("layers", Integer, nullable=False),
)
measurements = Table(
    "measurements",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("system", ForeignKey("systems.name"), nullable=False),
    Column("signature", ForeignKey("sequences.signature"), nullable=False),
    # 0 is the measurement that counts; later ones show how well it repeats.
    Column("repeat", Integer, nullable=False),
    Column("latency_us", Double, nullable=False),
    Column("rounds_us", JSON, nullable=False),
    Column("reference_us", JSON, nullable=False),
    Column("overhead_us", Double, nullable=False),
    Column("stable", Boolean, nullable=False),
    Column("data_dependent", Boolean, nullable=False),
    Column("circumstances", JSON, nullable=False),
    Column("measured_at", String(32), nullable=False),
    UniqueConstraint("system", "signature", "repeat"),
)
models = Table(
    "models",
    _metadata,
    Column("name", String(256), primary_key=True),
    Column("lowering", String(128), primary_key=True),
    Column("family", String(128), nullable=False),
    Column("digest", String(64), nullable=False),
    # The whole model as one sequence: what its end-to-end latency is stored under.
    Column("whole", ForeignKey("sequences.signature"), nullable=False),
)
pieces = Table(
    "pieces",
    _metadata,
    Column("model", String(256), primary_key=True),
    Column("lowering", String(128), primary_key=True),
    Column("granularity", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("signature", ForeignKey("sequences.signature"), nullable=False),
    Column("layers", JSON, nullable=False),
    Column("needs", JSON, nullable=False),
)

samples = Table(
    "samples",
    _metadata,
    Column("signature", ForeignKey("sequences.signature"), primary_key=True),
    # The sequence of a model that it was made from: where that is held out, so is the sample.
    Column("origin", ForeignKey("sequences.signature"), nullable=False),
)

# Latencies that users saw, beside what was predicted of them: they tell of drift, and train nothing.
observations = Table(
    "observations",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("system", String(64), nullable=False, index=True),
    Column("model", String(256), nullable=False),
    Column("digest", String(80), nullable=False),
    Column("latency_us", Double, nullable=False),
    Column("runs", Integer),
    Column("predicted_us", Double, nullable=False),
    Column("low_us", Double, nullable=False),
    Column("high_us", Double, nullable=False),
    Column("version", String(128), nullable=False),
    Column("observed_at", String(32), nullable=False),
)


class Database:
    """An opened database; every write is its own transaction, and its complaints become one sentence."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        """Open the database at `url`, making the tables if it is empty; see `costmodel.store.Store`."""
        self._engine = _connect(url, create=create)
        self._place = make_url(url).render_as_string(hide_password=True)
        # Elsewhere the times of an open file may lag behind what is in it.
        local = self._engine.dialect.name == "sqlite" and os.name == "posix"
        self._file = Path(str(self._engine.url.database)) if local else None
        try:
            self._prepare()
        except StoreError:
            self.close()
            raise

    def _prepare(self) -> None:
        with self.writing() as connection:  # one transaction: no other process sees half a store, or makes it too
            existing = set(inspect(connection).get_table_names())
            if not existing:
                _metadata.create_all(connection)
                connection.execute(insert(meta).values(key="format_version", value=str(FORMAT_VERSION)))
            elif meta.name not in existing:
                raise StoreError(f"{self._place} is a database but not a costmodel store: give another with --store")
            self._check_format(connection)
            if observations.name not in existing:  # a store that has seen no service
                observations.create(connection, checkfirst=True)

    def _check_format(self, connection: Connection) -> None:
        found = str(connection.scalar(select(meta.c.value).where(meta.c.key == "format_version")))
        if not found.isdecimal():
            raise StoreError(f"{self._place} has no format that costmodel knows: give another store with --store")
        if int(found) < FORMAT_VERSION:
            raise StoreError(
                f"{self._place} has format {found}, whose times cannot be compared with those of format "
                f"{FORMAT_VERSION}: give another store with --store and measure anew"
            )
        if int(found) > FORMAT_VERSION:
            raise StoreError(
                f"{self._place} has format {found} and this costmodel knows formats up to {FORMAT_VERSION}: "
                "upgrade costmodel, or give another store with --store"
            )

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise StoreError(f"the store {self._place} cannot be used ({reason}): {_advice(reason)}") from error

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection in a transaction that is committed at the end, or rolled back by an error.

        Raises:
            StoreError: The database refuses.
        """
        with self._reporting(), self._engine.connect() as connection:
            connection.execution_options(writing=True)
            with connection.begin():
                yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read from.

        Raises:
            StoreError: The database refuses.
        """
        with self._reporting(), self._engine.connect() as connection:
            yield connection

    def version(self) -> tuple[int, ...] | None:
        """What differs after every write of whoever it was; None where only the database itself could tell."""
        return None if self._file is None else stamp_of(self._file)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()


def _connect(url: str, *, create: bool) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):  # SQLAlchemy's own choice is an older driver
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() == "sqlite":
            if parsed.database in (None, "", ":memory:"):
                raise StoreError(f"{url} keeps nothing: give a file, such as sqlite:///results.db")
            if not create and not Path(parsed.database).exists():
                raise StoreError(
                    f"there is no store at {parsed.database}: check --store, or make one with `costmodel bench` or "
                    "`costmodel import`"
                )
            # A file is cheap to open and must not be shared between threads or kept across a fork.
            engine = create_engine(parsed, poolclass=NullPool, connect_args={"timeout": _BUSY_SECONDS})
            event.listen(engine, "connect", _set_up_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        else:
            engine = create_engine(parsed, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        shown = re.sub(r"(?<=//)[^/@]*:[^/@]*(?=@)", "***", url)  # no password
        raise StoreError(f"{shown!r} is not the URL of a store: give one such as sqlite:///results.db") from error
    except ImportError as error:  # of psycopg too, where it finds no libpq
        if parsed.drivername == "postgresql+psycopg":
            raise MissingExtraError("a store in PostgreSQL", "postgres") from error
        raise StoreError(f"a store at {parsed.drivername} needs the package {error.name}: install it") from error
    return engine


def _set_up_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says, not where the driver guesses
    try:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")  # a completed measurement survives a power cut
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        connection.close()
        raise


def _write_ahead(connection: Any) -> None:
    """Switch a new database to write-ahead logging; SQLite does not wait for the lock that this takes, so we do."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return  # a folder that cannot have it, on a network say, keeps what it has
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock at once when writing: a lock asked for half-way can be refused without waiting."""
    writing = connection.get_execution_options().get("writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _advice(reason: str) -> str:
    """What to do about a database's complaint."""
    checks: Mapping[str, Callable[[str], bool]] = {
        "free some space and run again, what was stored before is safe": lambda r: "full" in r or "disk I/O" in r,
        "another process keeps it busy; wait until that ends and run again": lambda r: "locked" in r,
        "it is not a database; give another file with --store": lambda r: "not a database" in r or "malformed" in r,
        "store the system and the sequence that it refers to first": lambda r: "foreign key" in r.lower(),
        "check that its folder exists and can be written": lambda r: "unable to open" in r or "readonly" in r,
    }
    return next((advice for advice, fits in checks.items() if fits(reason)), "check the URL given with --store")


def add_if_new(connection: Connection, table: Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Insert a row unless its key is there, whoever else is inserting; whether it was added."""
    # In most databases a refused row ends the transaction, unless a savepoint stands before it. In SQLite it does not,
    # and on a full disk the savepoint's own complaint would hide the reason.
    savepoint = nullcontext() if connection.dialect.name == "sqlite" else connection.begin_nested()
    try:
        with savepoint:
            connection.execute(insert(table).values(**key, **values))
    except IntegrityError:
        if connection.scalar(select(func.count()).select_from(table).filter_by(**key)) == 0:
            raise  # it is not the key: what the row refers to is not there, say
        return False
    return True


def select_in(connection: Connection, query: Any, column: Column[str], wanted: Iterable[str] | None) -> Sequence[Any]:
    """Rows of `query`, restricted to some values of `column` in portions that every database takes."""
    if wanted is None:
        return connection.execute(query).all()
    values = sorted(set(wanted))  # in order, so that a query's own order holds over all portions
    rows: list[Any] = []
    for start in range(0, len(values), 500):
        rows.extend(connection.execute(query.where(column.in_(values[start : start + 500]))).all())
    return rows
