"""Schema migrations of the results store: detects the schema of a database and upgrades or downgrades it.

The migrations are Alembic's, one file each in `versions/` (docs/adr/0012). Alembic is imported only if a migration has
to be run: a store that is new or has the newest schema is opened without it.
"""

from sqlalchemy import insert, inspect, select, text
from sqlalchemy.engine import Connection

from costmodel.errors import StoreError
from costmodel.store.tables import meta, metadata, observations, schema_version

__all__ = ["REVISIONS", "is_newest", "migrate", "upgrade"]

# Schema revisions from the oldest that can still be read to that of `costmodel.store.tables`.
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006")
# Format version that releases from before the migrations read, and refuse.
FORMAT_VERSION = 3

# Key of the advisory lock: an arbitrary number that must never change ("costmodel" on a telephone keypad).
_LOCK = 267866335


def is_newest(connection: Connection, place: str) -> bool:
    """Returns whether a database has the newest schema.

    Args:
        connection: Connection to the database.
        place: Name of the database in error messages.

    Raises:
        StoreError: The database is not a store, cannot be upgraded, or was written by a newer costmodel.
    """
    return _revision_of(connection, place) == REVISIONS[-1]


def upgrade(connection: Connection, place: str) -> None:
    """Upgrades a database to the newest schema in the connection's transaction; an empty database becomes a store.

    Args:
        connection: Connection to the database.
        place: Name of the database in error messages.

    Raises:
        StoreError: The database is not a store, cannot be upgraded, or was written by a newer costmodel.
    """
    revision = _locked_revision(connection, place)
    if revision == REVISIONS[-1]:
        return
    if revision is None:
        metadata.create_all(connection)
        connection.execute(insert(meta).values(key="format_version", value=str(FORMAT_VERSION)))
        _stamp(connection, REVISIONS[-1])
        return
    if not inspect(connection).has_table(schema_version.name):
        _stamp(connection, revision)
    _take_steps(connection, revision, REVISIONS[-1])


def migrate(connection: Connection, place: str, revision: str) -> None:
    """Upgrades or downgrades a store to the schema `revision` in the connection's transaction.

    A downgrade deletes the data that the older schema cannot hold.

    Args:
        connection: Connection to the database.
        place: Name of the database in error messages.
        revision: Schema revision, one of `REVISIONS`.

    Raises:
        StoreError: There is no such revision, or the database cannot be upgraded.
    """
    if revision not in REVISIONS:
        raise StoreError(f"there is no schema {revision}: choose one of {', '.join(REVISIONS)}")
    upgrade(connection, place)
    _take_steps(connection, REVISIONS[-1], revision)


def _locked_revision(connection: Connection, place: str) -> str | None:
    """Returns the schema revision of a database, or None if the database is empty.

    Until the transaction ends, no other process can migrate the database.
    """
    if connection.dialect.name == "postgresql":  # in SQLite the transaction has already locked the file
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        connection.execute(text("SET LOCAL statement_timeout = 0"))  # migrating a large table takes long
    return _revision_of(connection, place)


def _take_steps(connection: Connection, current: str, revision: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "costmodel.store:migrations")
    config.attributes["connection"] = connection
    if current < revision:
        command.upgrade(config, revision)
    elif current > revision:
        command.downgrade(config, revision)


def _revision_of(connection: Connection, place: str) -> str | None:
    """Returns the schema revision of a database; None if the database is empty."""
    tables = set(inspect(connection).get_table_names())
    if not tables:
        return None
    if meta.name not in tables:
        raise StoreError(f"{place} is a database but not a costmodel store: give another with --store")
    if schema_version.name in tables:
        revision = str(connection.scalar(select(schema_version.c.version_num)))
        if revision not in REVISIONS:
            raise StoreError(
                f"{place} has schema {revision} and this costmodel knows schemas up to {REVISIONS[-1]}: upgrade "
                "costmodel, or give another store with --store"
            )
        return revision
    # The store is from before the migrations.
    stored_format = str(connection.scalar(select(meta.c.value).where(meta.c.key == "format_version")))
    if stored_format == "2":
        return REVISIONS[1 if observations.name in tables else 0]
    if stored_format == "1":
        raise StoreError(
            f"{place} has format 1, whose times of layers include the call overhead and cannot be compared with "
            "today's: give another store with --store and measure anew"
        )
    raise StoreError(f"{place} has no format that costmodel knows: give another store with --store")


def _stamp(connection: Connection, revision: str) -> None:
    schema_version.create(connection)
    connection.execute(insert(schema_version).values(version_num=revision))
