"""Access to the observations (latencies that users observed) in a results store.

Each observation belongs to an owner, who may list and delete it, and who may safely send it again under its idempotency
key.
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


class Observations:
    """The observations in a results store; each `put` is one transaction, and threads may share an instance."""

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        wait_s: float = WAIT_S,
        lazy: bool = False,
        most_read_per_owner: int = 500,
        most_owners: int = 200,
        rows_per_delete: int = 5000,
    ) -> None:
        """Opens the results store at `url`.

        `most_read_per_owner` and `most_owners` limit the time that it takes to compute the drift of a system, however
        many observations the store contains. For more on `url`, `create`, `wait_s` and `lazy`, see
        `costmodel.store.store.Store`.

        Args:
            url: URL of the store.
            create: Whether to create the store if it does not exist.
            wait_s: Maximum time in seconds that a statement waits for other writers.
            lazy: Whether to open the store only when it is used for the first time.
            most_read_per_owner: Number of an owner's newest observations on a system that are read for the drift of the
                system.
            most_owners: Number of owners whose observations are read for the drift of a system: the first in the order
                of their names.
            rows_per_delete: Number of rows of the database (observations) that one statement deletes at most; other
                writers wait for each statement.

        Raises:
            StoreError: The store cannot be opened.
        """
        self._database = Database(url, create=create, wait_s=wait_s, lazy=lazy)
        self._most_read_per_owner = most_read_per_owner
        self._most_owners = most_owners
        self._rows_per_delete = rows_per_delete

    def put(self, observations: Iterable[Observation]) -> list[StoredObservation]:
        """Stores all observations, or none of them if there is an error, and returns them as they are stored.

        If the owner of an observation has stored the same observation under its idempotency key before, it is not
        stored again, and the earlier one is returned. Two observations are the same if the values that the owner
        reported are equal: system, model, digest, latency, runs, and the time if it was given. The predictions may
        differ.

        Raises:
            ObservationError: A value is out of range.
            IdempotencyKeyError: An owner has used an idempotency key before, for another observation.
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

    def of_owner(
        self, owner: str, *, system: str | None = None, limit: int = 100, before_id: int | None = None
    ) -> list[StoredObservation]:
        """Returns one page of the observations of an owner, newest first.

        Args:
            owner: Name of the owner.
            system: Name of a system, to return only its observations; None for all.
            limit: Maximum number of observations to return, up to `MOST_LISTED`.
            before_id: The `id` of the last observation of the previous page; None for the first page.

        Raises:
            ObservationError: A name is empty, too long or cannot be stored, or `limit` or `before_id` is out of range.
        """
        if not 1 <= limit <= MOST_LISTED:
            raise ObservationError(f"a page cannot have {limit} observations: ask for 1 to {MOST_LISTED}")
        query = select(table).where(*_conditions(owner, system)).order_by(table.c.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(table.c.id < _checked_id(before_id))
        return self._read(query)

    def delete(self, owner: str, number: int) -> bool:
        """Deletes one observation of an owner, and returns whether the owner had such an observation.

        Args:
            owner: Name of the owner.
            number: The `id` of the observation.

        Raises:
            ObservationError: The name is empty, too long or cannot be stored, or `number` is out of range.
        """
        with self._database.writing() as connection:
            chosen = (*_conditions(owner, None), table.c.id == _checked_id(number))
            return connection.execute(delete(table).where(*chosen)).rowcount > 0

    def delete_all(self, owner: str, system: str | None = None) -> int:
        """Deletes the observations of an owner, on the named system or on all, and returns how many were deleted.

        Raises:
            ObservationError: A name is empty, too long or cannot be stored.
        """
        return self._delete(*_conditions(owner, system))

    def purge(self, older_than: timedelta) -> int:
        """Deletes all observations that were stored longer ago than `older_than`, and returns how many."""
        until = (datetime.now(UTC) - older_than).isoformat(timespec="milliseconds")
        return self._delete(table.c.stored_at < until)

    def _delete(self, *chosen: ColumnElement[bool]) -> int:
        deleted = 0
        while True:
            portion = select(table.c.id).where(*chosen).limit(self._rows_per_delete)
            with self._database.writing() as connection:
                found = connection.execute(delete(table).where(table.c.id.in_(portion))).rowcount
            deleted += found
            if found < self._rows_per_delete:
                return deleted

    def systems(self) -> list[str]:
        """Returns the names of the systems on which there are observations, sorted."""
        with self._database.reading() as connection:
            return sorted(connection.scalars(_distinct(table.c.system)))

    def count(self, system: str | None = None, *, owner: str | None = None) -> int:
        """Returns the number of observations: of all, or only of the named system, the named owner, or both."""
        query = select(func.count()).select_from(table).where(*_conditions(owner, system))
        with self._database.reading() as connection:
            return int(connection.scalar(query) or 0)

    def recent(self, system: str) -> list[StoredObservation]:
        """Returns the observations of a system from which its drift is computed, newest first.

        They are the `COUNTED_PER_MODEL` newest of each owner and model, so that the observations of one owner cannot
        displace those of another.
        """
        check_text("system", system, 64)
        return self._read(_recent(system, self._most_owners, self._most_read_per_owner))

    def drift(self, system: str) -> Drift:
        """Returns how far the latencies observed on a system are from those predicted for it; see `drift_of`."""
        return drift_of(system, self.recent(system))

    def close(self) -> None:
        """Closes the results store."""
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
    """Returns an observation in a form for comparison: two are equal if their owners reported the same values.

    Values that the service added, such as the prediction, are replaced by constants.
    """
    given_at = None if isinstance(one, StoredObservation) and one.observed_at == one.stored_at else one.observed_at
    reported = (one.system, one.model, one.digest, one.latency_us, one.runs)
    return Observation(*reported, predicted_us=1.0, interval_us=(0.0, 0.0), version="", observed_at=given_at)


def _stored(row: Any) -> StoredObservation:
    values = dict(row._mapping)
    return StoredObservation(interval_us=(values.pop("low_us"), values.pop("high_us")), **values)


def _conditions(owner: str | None, system: str | None) -> list[ColumnElement[bool]]:
    """Returns the SQL conditions that select the observations of an owner and of a system.

    Args:
        owner: Name of the owner; None for all owners.
        system: Name of the system; None for all systems.

    Raises:
        ObservationError: A name is empty, too long or cannot be stored.
    """
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
    """Returns a query for the distinct values of an indexed column, among the rows that meet the conditions.

    The query seeks once in the index for each distinct value, instead of reading the whole index.
    """
    first = select(func.min(column).label("value")).where(*where)
    values = first.cte("different", recursive=True)
    following = select(func.min(column)).where(*where, column > values.c.value).scalar_subquery()
    values = values.union_all(select(following).where(values.c.value.is_not(None)))
    return select(values.c.value).where(values.c.value.is_not(None))


def _recent(system: str, most_owners: int, most_per_owner: int) -> Select[Any]:
    """Returns a query for the `COUNTED_PER_MODEL` newest observations of each owner and model on a system.

    The query uses the index on system, owner and id.

    Args:
        system: Name of the system.
        most_owners: Maximum number of owners whose observations are read: the first in the order of their names.
        most_per_owner: Maximum number of observations of each owner, over all models, that are read: the newest.
    """
    owners = _distinct(table.c.owner, table.c.system == system).limit(most_owners).subquery()
    other = table.alias()
    oldest = (
        select(other.c.id)
        .where(other.c.system == system, other.c.owner == owners.c.value)
        .order_by(other.c.id.desc())
        .offset(most_per_owner - 1)
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
