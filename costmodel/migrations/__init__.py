"""The schema of a results store over time: telling which one a database has, and bringing it to another.

The steps are Alembic's, one file each in `versions/` (docs/adr/0012). Alembic itself is imported only where a step is
taken: a store that is new, or new enough, is opened without it.
"""

from sqlalchemy import insert, inspect, select, text
from sqlalchemy.engine import Connection

from costmodel.errors import StoreError
from costmodel.tables import meta, metadata, observations, schema_version

__all__ = ["REVISIONS", "is_newest", "migrate", "upgrade"]

# From the oldest schema that can still be read to the one of `costmodel.tables`.
REVISIONS = ("0001", "0002", "0003")
# What releases from before the migrations read, and refuse.
FORMAT_VERSION = 3

# Any number will do, as long as it is always this one: "costmodel" on a telephone's keys.
_LOCK = 267866335


def is_newest(connection: Connection, place: str) -> bool:
    """Whether a database has the newest schema.

    Args:
        connection: To the database.
        place: What to call the database in messages.

    Raises:
        StoreError: It is no store, or one that cannot be upgraded, or of a newer costmodel.
    """
    return _revision_of(connection, place) == REVISIONS[-1]


def upgrade(connection: Connection, place: str) -> None:
    """Bring a database to the newest schema within the connection's transaction; an empty one becomes a store.

    Raises:
        StoreError: It is no store, or one that cannot be upgraded, or of a newer costmodel.
    """
    found = _locked_revision(connection, place)
    if found == REVISIONS[-1]:
        return
    if found is None:
        metadata.create_all(connection)
        connection.execute(insert(meta).values(key="format_version", value=str(FORMAT_VERSION)))
        _stamp(connection, REVISIONS[-1])
        return
    if not inspect(connection).has_table(schema_version.name):
        _stamp(connection, found)
    _take_steps(connection, found, REVISIONS[-1])


def migrate(connection: Connection, place: str, revision: str) -> None:
    """Bring a store to the schema of `revision`, up or down, within the connection's transaction.

    Going down drops what the older schema has no place for.

    Args:
        connection: To the database.
        place: What to call the database in messages.
        revision: One of `REVISIONS`.

    Raises:
        StoreError: There is no such revision, or the database cannot be upgraded.
    """
    if revision not in REVISIONS:
        raise StoreError(f"there is no schema {revision}: choose one of {', '.join(REVISIONS)}")
    upgrade(connection, place)
    _take_steps(connection, REVISIONS[-1], revision)


def _locked_revision(connection: Connection, place: str) -> str | None:
    """The revision, which no other process changes until the transaction ends."""
    if connection.dialect.name == "postgresql":  # SQLite has locked its file by now
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        connection.execute(text("SET LOCAL statement_timeout = 0"))  # a large table takes its time
    return _revision_of(connection, place)


def _take_steps(connection: Connection, current: str, revision: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "costmodel:migrations")
    config.attributes["connection"] = connection
    if current < revision:
        command.upgrade(config, revision)
    elif current > revision:
        command.downgrade(config, revision)


def _revision_of(connection: Connection, place: str) -> str | None:
    """The revision of a database's schema; None if there is nothing in it."""
    tables = set(inspect(connection).get_table_names())
    if not tables:
        return None
    if meta.name not in tables:
        raise StoreError(f"{place} is a database but not a costmodel store: give another with --store")
    if schema_version.name in tables:
        found = str(connection.scalar(select(schema_version.c.version_num)))
        if found not in REVISIONS:
            raise StoreError(
                f"{place} has schema {found} and this costmodel knows schemas up to {REVISIONS[-1]}: upgrade "
                "costmodel, or give another store with --store"
            )
        return found
    # A store from before the migrations.
    said = str(connection.scalar(select(meta.c.value).where(meta.c.key == "format_version")))
    if said == "2":
        return REVISIONS[1 if observations.name in tables else 0]
    if said == "1":
        raise StoreError(
            f"{place} has format 1, whose times hold the call of each layer and cannot be compared with today's: give "
            "another store with --store and measure anew"
        )
    raise StoreError(f"{place} has no format that costmodel knows: give another store with --store")


def _stamp(connection: Connection, revision: str) -> None:
    schema_version.create(connection)
    connection.execute(insert(schema_version).values(version_num=revision))
