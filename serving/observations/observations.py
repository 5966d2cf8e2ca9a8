"""Observations in a results store.

Each belongs to an owner, who may list and delete it, and may safely send it again under its idempotency key.
"""

from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, func, insert, select
from sqlalchemy.engine import Connection

from costmodel.errors import IdempotencyKeyError, ObservationError
from costmodel.measure.measurement import now
from costmodel.serving.observations.drift import COUNTED_PER_MODEL, Drift, Observation, StoredObservation, drift_of
from costmodel.serving.observations.limits import LARGEST_INTEGER, check_observation, check_text
from costmodel.store.database import WAIT_S, Database, add_if_new
from costmodel.store.tables import observations as table

__all__ = ["MOST_LISTED", "Observations"]

# Maximum number of observations in a page.
MOST_LISTED = 1000
# Limits on the time to compute a drift, whatever the store contains: the number of newest observations of an owner on a
# system that are read, and the number of owners, the first by name.
_MOST_READ_PER_OWNER = 500
_MOST_OWNERS = 200
# Number of rows that one statement deletes; other writers wait for each statement.
_ROWS_PER_DELETE = 5000


class Observations:
    """The observations in a results store; each `put` is one transaction. Threads may share an instance."""

    def __init__(self, url: str, *, create: bool = True, wait_s: float = WAIT_S, lazy: bool = False) -> None:
        """Opens the store at `url`; for the arguments see `costmodel.store.store.Store`.

        Raises:
            StoreError: The store cannot be opened.
        """
        self._database = Database(url, create=create, wait_s=wait_s, lazy=lazy)

    def put(self, observations: Iterable[Observation]) -> list[StoredObservation]:
        """Stores observations, all or none, and returns them as they are stored.

        An observation whose owner used its idempotency key before is not stored again; the stored one is returned. Two
        observations count as the same if the reported values are equal: system, model, digest, latency, runs, and the
        time if it was given. The prediction may have changed since.

        Raises:
            ObservationError: A value is out of range.
            IdempotencyKeyError: An idempotency key was used before by its owner for another observation.
            StoreError: The store cannot be written to.
        """
        requested = list(observations)
        for one in requested:
            check_observation(one)
        if not requested:
            return []
        # A fixed order prevents a deadlock of two writers that put the same keys in different orders.
        order = sorted(
            range(len(requested)), key=lambda place: (requested[place].owner, requested[place].idempotency_key or "")
        )
        with self._database.writing() as connection:
            stored_at = now()
            stored = {place: _put(connection, requested[place], stored_at) for place in order}
        return [stored[place] for place in range(len(requested))]

    def own(
        self, owner: str, *, system: str | None = None, limit: int = 100, before_id: int | None = None
    ) -> list[StoredObservation]:
        """Returns one page of the observations of an owner, newest first.

        Args:
            owner: Name of the owner.
            system: Name of a system, to return only its observations; None for all.
            limit: Maximum number of observations to return, up to `MOST_LISTED`.
            before_id: The `id` of the last observation of the previous page; None for the first page.

        Raises:
            ObservationError: An argument is out of range.
        """
        if not 1 <= limit <= MOST_LISTED:
            raise ObservationError(f"a page cannot have {limit} observations: ask for 1 to {MOST_LISTED}")
        query = select(table).where(*_conditions(owner, system)).order_by(table.c.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(table.c.id < _checked_id(before_id))
        return self._read(query)

    def delete(self, owner: str, number: int) -> bool:
        """Deletes one observation of an owner, and returns whether the owner had it.

        Args:
            owner: Name of the owner.
            number: The `id` of the observation.

        Raises:
            ObservationError: An argument is out of range.
        """
        with self._database.writing() as connection:
            chosen = (*_conditions(owner, None), table.c.id == _checked_id(number))
            return connection.execute(delete(table).where(*chosen)).rowcount > 0

    def delete_all(self, owner: str, system: str | None = None) -> int:
        """Deletes the observations of an owner, of one system or of all, and returns their number.

        Raises:
            ObservationError: An argument is out of range.
        """
        return self._delete(*_conditions(owner, system))

    def purge(self, older_than: timedelta) -> int:
        """Deletes all observations that were stored longer ago than `older_than`, and returns their number."""
        until = (datetime.now(UTC) - older_than).isoformat(timespec="milliseconds")
        return self._delete(table.c.stored_at < until)

    def _delete(self, *chosen: ColumnElement[bool]) -> int:
        deleted = 0
        while True:
            portion = select(table.c.id).where(*chosen).limit(_ROWS_PER_DELETE)
            with self._database.writing() as connection:
                found = connection.execute(delete(table).where(table.c.id.in_(portion))).rowcount
            deleted += found
            if found < _ROWS_PER_DELETE:
                return deleted

    def systems(self) -> list[str]:
        """Returns the names of the systems with observations, sorted."""
        with self._database.reading() as connection:
            return sorted(connection.scalars(_distinct(table.c.system)))

    def count(self, system: str | None = None, *, owner: str | None = None) -> int:
        """Returns the number of observations, of a system and of an owner if they are given."""
        query = select(func.count()).select_from(table).where(*_conditions(owner, system))
        with self._database.reading() as connection:
            return int(connection.scalar(query) or 0)

    def recent(self, system: str) -> list[StoredObservation]:
        """Returns the observations of a system that count for its drift, newest first.

        They are the newest of each owner and model, so that no owner can displace those of another.
        """
        check_text("system", system, 64)
        return self._read(_recent(system))

    def drift(self, system: str) -> Drift:
        """Summarises how far the observed latencies of a system are from the predicted ones; see `drift_of`."""
        return drift_of(system, self.recent(system))

    def close(self) -> None:
        """Closes the store."""
        self._database.close()

    def _read(self, query: Select[Any]) -> list[StoredObservation]:
        with self._database.reading() as connection:
            return [_stored(row) for row in connection.execute(query)]


def _put(connection: Connection, one: Observation, stored_at: str) -> StoredObservation:
    values = {field.name: getattr(one, field.name) for field in fields(Observation)}
    values |= {"observed_at": one.observed_at or stored_at, "stored_at": stored_at}
    values["low_us"], values["high_us"] = values.pop("interval_us")
    if one.idempotency_key is None:
        return _stored(connection.execute(insert(table).values(values).returning(table)).one())
    key = {name: values.pop(name) for name in ("owner", "idempotency_key")}
    add_if_new(connection, table, key, values)
    stored = _stored(connection.execute(select(table).filter_by(**key)).one())
    if _reported(one) != _reported(stored):
        raise IdempotencyKeyError(
            f"the idempotency key {one.idempotency_key!r} was used before for another observation: send each "
            "observation with a key of its own"
        )
    return stored


def _reported(one: Observation) -> Observation:
    """Returns an observation with its reported values only; all values that the service added are constant."""
    given_at = None if isinstance(one, StoredObservation) and one.observed_at == one.stored_at else one.observed_at
    reported = (one.system, one.model, one.digest, one.latency_us, one.runs)
    return Observation(*reported, predicted_us=1.0, interval_us=(0.0, 0.0), version="", observed_at=given_at)


def _stored(row: Any) -> StoredObservation:
    values = dict(row._mapping)
    return StoredObservation(interval_us=(values.pop("low_us"), values.pop("high_us")), **values)


def _conditions(owner: str | None, system: str | None) -> list[ColumnElement[bool]]:
    """Returns the conditions that an observation is of an owner and of a system, as far as they are given."""
    named = {"owner": owner, "system": system}
    for name, value in named.items():
        if value is not None:
            check_text(name, value, 64)
    return [table.c[name] == value for name, value in named.items() if value is not None]


def _checked_id(number: int) -> int:
    if not 0 < number <= LARGEST_INTEGER:
        raise ObservationError(f"no observation has the id {number}: ids are from 1 to {LARGEST_INTEGER}")
    return number


def _distinct(column: Any, *where: ColumnElement[bool]) -> Select[Any]:
    """Returns a query for the distinct values of an indexed column, with one index seek per value instead of a scan."""
    first = select(func.min(column).label("value")).where(*where)
    values = first.cte("different", recursive=True)
    following = select(func.min(column)).where(*where, column > values.c.value).scalar_subquery()
    values = values.union_all(select(following).where(values.c.value.is_not(None)))
    return select(values.c.value).where(values.c.value.is_not(None))


def _recent(system: str) -> Select[Any]:
    """Returns a query for the newest observations of each owner and model of a system, by index (system, owner, id)."""
    owners = _distinct(table.c.owner, table.c.system == system).limit(_MOST_OWNERS).subquery()
    other = table.alias()
    oldest = (
        select(other.c.id)
        .where(other.c.system == system, other.c.owner == owners.c.value)
        .order_by(other.c.id.desc())
        .offset(_MOST_READ_PER_OWNER - 1)
        .limit(1)
        .scalar_subquery()
    )
    place = func.row_number().over(partition_by=(table.c.owner, table.c.digest), order_by=table.c.id.desc())
    numbered = (
        select(table, place.label("place"))
        .join_from(owners, table, table.c.owner == owners.c.value)
        .where(table.c.system == system, table.c.id >= func.coalesce(oldest, 0))
        .subquery()
    )
    columns = [numbered.c[column.name] for column in table.c]
    return select(*columns).where(numbered.c.place <= COUNTED_PER_MODEL).order_by(numbered.c.id.desc())
