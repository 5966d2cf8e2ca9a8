"""The database of the results store: opening, upgrading, transactions and error messages."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Table, func, insert, select, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from costmodel.errors import StoreError
from costmodel.store import migrations
from costmodel.store.change_token import ChangeToken
from costmodel.store.engine import open_engine
from costmodel.store_url import parse_store_url

__all__ = ["WAIT_S", "Database", "add_if_new", "lock", "select_in"]

# Default for interactive use, where waiting for a lock is better than repeating a benchmark; services set less.
WAIT_S = 60.0

# If Ctrl-C interrupts the closing of a connection, SQLAlchemy logs a traceback before it raises the exception again.
logging.getLogger("sqlalchemy.pool").addHandler(logging.NullHandler())


class Database:
    """An open database, which reports its errors as `StoreError`s of one sentence."""

    def __init__(self, url: str, *, create: bool = True, wait_s: float = WAIT_S, lazy: bool = False) -> None:
        """Opens the database at `url` and upgrades its schema if necessary; `Store` describes the arguments."""
        parsed = parse_store_url(url)
        self._engine = open_engine(parsed, wait_s)
        self._place = parsed.render_as_string(hide_password=True)
        self._file = Path(str(parsed.database)) if parsed.get_backend_name() == "sqlite" else None
        self._create = create
        self._token = None if self._file is None else ChangeToken(self._file)
        self._prepared = False
        if not lazy:
            try:
                self._prepare()
            except StoreError:
                self.close()
                raise

    def _prepare(self) -> None:
        """Upgrades the schema unless it is the newest; several threads and processes may call this at the same time."""
        if self._prepared:
            return
        if self._file is not None and not self._create and not self._file.exists():
            raise StoreError(
                f"there is no store at {self._file}: check --store, or make one with `costmodel bench` or "
                "`costmodel import`"
            )
        with self._transaction(writing=False) as connection:
            newest = migrations.is_newest(connection, self._place)
        if not newest:
            with self._transaction(writing=True) as connection:
                migrations.upgrade(connection, self._place)
        self._prepared = True

    @contextmanager
    def _transaction(self, *, writing: bool) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                connection.execution_options(writing=writing)
                with connection.begin():
                    yield connection
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise StoreError(f"the store {self._place} cannot be used ({reason}): {_advice(reason)}") from error

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yields a connection in a transaction, which is committed at the end and rolled back on an error.

        Raises:
            StoreError: The database reports an error.
        """
        self._prepare()
        with self._transaction(writing=True) as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yields a connection for reading, in one transaction.

        Raises:
            StoreError: The database reports an error.
        """
        self._prepare()
        with self._transaction(writing=False) as connection:
            yield connection

    def version(self) -> tuple[int, ...] | None:
        """Returns a value that changes with every commit of any process; None unless the database is in SQLite."""
        return None if self._token is None else self._token.read()

    def close(self) -> None:
        """Closes all connections to the database."""
        if self._token is not None:
            self._token.close()
        self._engine.dispose()


def _advice(reason: str) -> str:
    """Returns what the user can do about a database error, given the first line of its message."""
    checks: Mapping[str, Callable[[str], bool]] = {
        "free some space and run again, what was stored before is safe": lambda r: "full" in r or "disk I/O" in r,
        "another process keeps it busy; wait until that ends and run again": (
            lambda r: any(word in r for word in ("locked", "lock timeout", "statement timeout", "QueuePool limit"))
        ),
        "it is not a database; give another file with --store": lambda r: "not a database" in r or "malformed" in r,
        "store the system and the sequence that it refers to first": lambda r: "foreign key" in r.lower(),
        "check that its folder exists and can be written": lambda r: "unable to open" in r or "readonly" in r,
        "check that its server runs and can be reached": lambda r: "connect" in r,
    }
    return next((advice for advice, applies in checks.items() if applies(reason)), "check the URL given with --store")


def add_if_new(connection: Connection, table: Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Inserts a row unless the table has one with its key, even if other processes write; returns whether it was added.

    Raises:
        sqlalchemy.exc.IntegrityError: The row violates another constraint, such as a foreign key.
    """
    # In most databases a refused row aborts the transaction unless it follows a savepoint. SQLite needs no savepoint,
    # and on a full disk the savepoint's own error would hide the reason.
    savepoint = nullcontext() if connection.dialect.name == "sqlite" else connection.begin_nested()
    try:
        with savepoint:
            connection.execute(insert(table).values(**key, **values))
    except IntegrityError:
        if connection.scalar(select(func.count()).select_from(table).filter_by(**key)) == 0:
            raise  # another constraint was violated, such as a foreign key
        return False
    return True


def lock(connection: Connection, *tables: Table) -> None:
    """Keeps other processes from writing to `tables` until the transaction ends; they may read.

    In SQLite there is nothing to do, because a transaction that writes has locked the whole file already.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"LOCK TABLE {', '.join(table.name for table in tables)} IN SHARE ROW EXCLUSIVE MODE"))


def select_in(connection: Connection, query: Any, column: Column[str], wanted: Iterable[str] | None) -> Sequence[Any]:
    """Returns the rows of `query` whose `column` is in `wanted`, or all rows if `wanted` is None.

    The database is asked for 500 of the wanted values at a time, because databases limit the number of parameters of a
    query.
    """
    if wanted is None:
        return connection.execute(query).all()
    values = sorted(set(wanted))  # sorted, so that the order of the query holds across portions
    rows: list[Any] = []
    for start in range(0, len(values), 500):
        rows.extend(connection.execute(query.where(column.in_(values[start : start + 500]))).all())
    return rows
