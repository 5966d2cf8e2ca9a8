"""Observations in a store: ownership, validation, limits."""

import math
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from costmodel.errors import IdempotencyKeyError, ObservationError, StoreError
from costmodel.serving.observations.drift import Observation
from costmodel.serving.observations.observations import MOST_LISTED, Observations
from costmodel.store import tables
from costmodel.store.database import Database
from tests.fakes import OBSERVED


@pytest.fixture
def observations(store_url: str) -> Iterator[Observations]:
    """An empty store of observations in each database."""
    with closing(Observations(store_url)) as observations:
        yield observations


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Observations]:
    """An empty store of observations in SQLite."""
    with closing(Observations(f"sqlite:///{tmp_path / 'embedded.db'}")) as observations:
        yield observations


def bare(one: Observation) -> Observation:
    """Returns an observation without the fields that the store sets."""
    return Observation(**{name: getattr(one, name) for name in Observation.__dataclass_fields__})


def test_what_is_put_is_found(observations: Observations) -> None:
    """Observations are returned newest first, with id and time of storage."""
    second = replace(OBSERVED, latency_us=95.0, runs=7)
    stored = observations.put([OBSERVED, second, replace(OBSERVED, system="other")])
    assert [bare(one) for one in stored] == [OBSERVED, second, replace(OBSERVED, system="other")]
    assert observations.recent("made.up") == stored[1::-1]
    assert observations.systems() == ["made.up", "other"]
    assert (observations.count("made.up"), observations.count(), observations.count(owner="nobody")) == (2, 3, 0)
    assert observations.drift("nowhere").ratio is None
    assert observations.put([]) == []
    assert all(datetime.fromisoformat(one.stored_at).utcoffset() == timedelta(0) for one in stored)


def test_an_observation_without_a_time_has_that_of_the_store(observations: Observations) -> None:
    """An observation without a time gets that of its storage."""
    (stored,) = observations.put([replace(OBSERVED, observed_at=None)])
    assert stored.observed_at == stored.stored_at


def test_all_are_stored_or_none(observations: Observations) -> None:
    """One refused observation, by validation or by the database, rejects the whole request."""
    (stored,) = observations.put([replace(OBSERVED, idempotency_key="a")])
    with pytest.raises(ObservationError):
        observations.put([OBSERVED, replace(OBSERVED, latency_us=math.nan)])
    with pytest.raises(IdempotencyKeyError):
        observations.put([OBSERVED, replace(OBSERVED, idempotency_key="a", latency_us=1.0)])
    assert observations.of_owner("local") == [stored]


class TestIdempotency:
    """A key identifies one observation of its owner."""

    def test_a_repeated_key_adds_nothing(self, observations: Observations) -> None:
        """A repeated key returns the stored observation, even if the prediction has changed since."""
        one = replace(OBSERVED, idempotency_key="a")
        (first,) = observations.put([one])
        (again,) = observations.put([replace(one, predicted_us=90.0, interval_us=(80.0, 99.0), version="v2")])
        assert again == first
        assert observations.count() == 1

    def test_a_key_twice_in_one_request_is_one(self, observations: Observations) -> None:
        """A key that occurs twice in a request is stored once, and answers keep the order of the request."""
        one, other = replace(OBSERVED, idempotency_key="b"), replace(OBSERVED, idempotency_key="a", runs=3)
        stored = observations.put([one, other, one, OBSERVED])
        assert [bare(found) for found in stored] == [one, other, one, OBSERVED]
        assert stored[0] == stored[2]
        assert observations.count() == 3

    def test_a_time_that_was_never_given_is_the_same_again(self, observations: Observations) -> None:
        """Repeats without a time are equal although the clock differs; one with a time is different content."""
        one = replace(OBSERVED, idempotency_key="a", observed_at=None)
        assert observations.put([one]) == observations.put([one])
        with pytest.raises(IdempotencyKeyError):
            observations.put([replace(one, observed_at="2026-01-01T00:00:00Z")])

    @pytest.mark.parametrize(
        "other",
        [{"latency_us": 1.0}, {"runs": 1}, {"model": "x"}, {"digest": "x"}, {"system": "x"}, {"observed_at": None}],
    )
    def test_another_content_under_a_key_is_an_error(self, observations: Observations, other: dict[str, Any]) -> None:
        """Different content under a used key is an error that names the key and what to do."""
        one = replace(OBSERVED, idempotency_key="a")
        observations.put([one])
        with pytest.raises(IdempotencyKeyError, match=r"'a' was used before.*key of its own"):
            observations.put([replace(one, **other)])
        assert observations.count() == 1

    def test_owners_have_keys_of_their_own(self, observations: Observations) -> None:
        """Keys of different owners are independent."""
        one = replace(OBSERVED, idempotency_key="a")
        stored = observations.put([one, replace(one, owner="other", latency_us=1.0)])
        assert len({found.id for found in stored}) == 2

    def test_writers_that_race_store_one(self, store_url: str) -> None:
        """Concurrent writers of one key store one observation and all get it back."""
        one = [replace(OBSERVED, idempotency_key=f"k{number}") for number in range(5)]
        found: list[list[int]] = []
        barrier = threading.Barrier(4)

        def write(turn: int) -> None:
            with closing(Observations(store_url)) as own:
                barrier.wait()
                stored = own.put(one[turn:] + one[:turn])
                found.append(sorted(each.id for each in stored))

        threads = [threading.Thread(target=write, args=(turn,)) for turn in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert all(ids == found[0] for ids in found)
        with closing(Observations(store_url)) as own:
            assert own.count() == 5


class TestOnesOwn:
    """An owner reads and deletes only their own observations."""

    def test_they_are_listed_in_pages(self, observations: Observations) -> None:
        """Pages list each observation once, newest first, optionally of one system."""
        observations.put([replace(OBSERVED, owner=f"o{n % 2}", system=f"s{n % 3}", runs=n + 1) for n in range(12)])
        pages, before = [], None
        while page := observations.of_owner("o1", limit=4, before_id=before):
            pages.append([one.runs for one in page])
            before = page[-1].id
        assert pages == [[12, 10, 8, 6], [4, 2]]
        assert [one.runs for one in observations.of_owner("o1", system="s0")] == [10, 4]
        assert [observations.count(owner=owner) for owner in ("o0", "o1")] == [6, 6]

    def test_they_are_deleted(self, observations: Observations) -> None:
        """An owner can delete one observation by id, all, or all of a system."""
        stored = observations.put([replace(OBSERVED, owner=o, system=s) for o in ("a", "b") for s in ("x", "y", "z")])
        assert not observations.delete("b", stored[0].id)
        assert observations.delete("a", stored[0].id)
        assert not observations.delete("a", stored[0].id)
        assert observations.delete_all("a", "y") == 1
        assert observations.delete_all("b") == 3
        assert [one.system for one in observations.of_owner("a")] == ["z"]

    def test_an_id_is_never_used_again(self, observations: Observations) -> None:
        """Ids are not reused, so that a repeated deletion deletes nothing else."""
        (first,) = observations.put([OBSERVED])
        assert observations.delete("local", first.id)
        (second,) = observations.put([OBSERVED])
        assert second.id != first.id
        assert not observations.delete("local", first.id)

    def test_many_are_deleted_in_portions(self, store_url: str) -> None:
        """Deletion in batches deletes all observations."""
        with closing(Observations(store_url, rows_per_delete=3)) as observations:
            observations.put([replace(OBSERVED, runs=n) for n in range(1, 8)])
            assert observations.delete_all("local") == 7
            assert observations.count() == 0

    def test_what_is_old_is_purged(self, observations: Observations, store_url: str) -> None:
        """Purging goes by the time of storage, not by the reported time."""
        old, _ = observations.put([replace(OBSERVED, observed_at="2026-01-01T00:00:00Z"), OBSERVED])
        then = (datetime.now(UTC) - timedelta(days=40)).isoformat(timespec="milliseconds")
        with closing(Database(store_url)) as database, database.writing() as connection:
            connection.execute(update(tables.observations).filter_by(id=old.id).values(stored_at=then))
        assert observations.purge(timedelta(days=41)) == 0
        assert observations.purge(timedelta(days=39)) == 1
        assert [one.id for one in observations.of_owner("local")] == [old.id + 1]


LARGE = 2**63
REFUSED: list[dict[str, Any]] = [
    *({name: value} for name in ("system", "model", "digest", "version", "owner", "idempotency_key")
      for value in ("", "x" * 300, "a\0b", "\ud800", 7)),
    *({name: value} for name in ("system", "model", "digest", "version", "owner") for value in (None,)),
    *({name: value} for name in ("latency_us", "predicted_us")
      for value in (0.0, -1.0, math.nan, math.inf, -math.inf, 1e300, 5e-324, 10**400, True, "1", None)),
    *({"interval_us": value} for value in ((2.0, 1.0), (-1.0, 1.0), (math.nan, 1.0), (1.0, math.inf), (1.0, 10**400))),
    *({"runs": value} for value in (0, -1, LARGE, True, 1.5, "1")),
    *({"observed_at": value} for value in
      ("", "yesterday", "2026-02-30T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00+01:00",
       "9999-12-31T23:59:59Z",
       "2026-01-01", "2026-01-01T00:00:00Z" + " " * 32, 5)),
]  # fmt: skip


@pytest.mark.parametrize("values", REFUSED, ids=lambda values: f"{values}"[:40])
def test_what_is_out_of_range_is_refused(embedded: Observations, values: dict[str, Any]) -> None:
    """A value out of range is refused with its name before it reaches the database."""
    with pytest.raises(ObservationError, match=next(iter(values))):
        embedded.put([replace(OBSERVED, **values)])
    assert embedded.count() == 0


@given(
    system=st.text(min_size=1, max_size=64),
    latency_us=st.floats(1e-6, 1e15),
    predicted_us=st.floats(1e-6, 1e15),
    runs=st.none() | st.integers(1, 2**63 - 1),
    owner=st.text(min_size=1, max_size=64),
    key=st.none() | st.text(min_size=1, max_size=255),
    at=st.datetimes(max_value=datetime(2026, 1, 1), timezones=st.just(UTC)),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_not_refused_is_stored(
    observations: Observations,
    system: str,
    latency_us: float,
    predicted_us: float,
    runs: int | None,
    owner: str,
    key: str | None,
    at: datetime,
) -> None:
    """Every value that passes validation is stored exactly, in both databases."""
    one = replace(
        OBSERVED, system=system, latency_us=latency_us, predicted_us=predicted_us, interval_us=(0.0, predicted_us),
        runs=runs,
        owner=owner, idempotency_key=key, observed_at=at.isoformat(),
    )  # fmt: skip
    try:
        (stored,) = observations.put([one])
    except ObservationError as error:
        assert any("\ud800" <= c <= "\udfff" or c == "\0" for c in system + owner + (key or "")), error  # noqa: PT017
        return
    assert bare(stored) == one
    assert bare(observations.of_owner(owner, limit=1)[0]) == one
    assert observations.delete(owner, stored.id)


@pytest.mark.parametrize("number", [0, -1, LARGE, 10**30])
def test_an_id_that_no_database_has_is_refused(embedded: Observations, number: int) -> None:
    """An id beyond the database's range is refused, as start of a page and for deletion."""
    with pytest.raises(ObservationError, match="id"):
        embedded.of_owner("local", before_id=number)
    with pytest.raises(ObservationError, match="id"):
        embedded.delete("local", number)


@pytest.mark.parametrize("limit", [0, -1, MOST_LISTED + 1])
def test_a_page_has_a_size(embedded: Observations, limit: int) -> None:
    """A page has at least one observation and at most the limit."""
    with pytest.raises(ObservationError, match="page"):
        embedded.of_owner("local", limit=limit)


def test_a_flood_displaces_no_other_owner(store_url: str) -> None:
    """Only the newest observations of each owner and model count, and a flood is read in part only."""
    with closing(Observations(store_url, most_read_per_owner=30)) as observations:
        honest = [replace(OBSERVED, owner=f"o{n % 3}", digest=f"d{n % 2}") for n in range(60)]
        flood = [replace(OBSERVED, owner="flood", latency_us=1e9, digest=f"d{n % 50}") for n in range(500)]
        observations.put([*honest, *flood])
        recent = observations.recent("made.up")
        counted = [one.owner for one in recent]
        assert {owner: counted.count(owner) for owner in counted} == {"flood": 30, "o0": 20, "o1": 20, "o2": 20}
        assert [one.id for one in recent] == sorted((one.id for one in recent), reverse=True)
        found = observations.drift("made.up")
        assert (found.owners, found.drifted, found.ratio) == (4, False, pytest.approx(1.1))


def test_more_systems_than_owners_count(store_url: str) -> None:
    """The limit on owners does not limit systems; the first owners by name count."""
    with closing(Observations(store_url, most_owners=2)) as observations:
        observations.put([replace(OBSERVED, system=f"s{n}") for n in range(5)])
        observations.put([replace(OBSERVED, owner=f"o{n}") for n in range(5)])
        assert observations.systems() == ["made.up", *(f"s{n}" for n in range(5))]
        assert {one.owner for one in observations.recent("made.up")} == {"o0", "o1"}


def test_a_store_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    """Reading a missing store is an error and creates none."""
    with pytest.raises(StoreError, match="there is no store"):
        Observations(f"sqlite:///{tmp_path / 'absent.db'}", create=False)
