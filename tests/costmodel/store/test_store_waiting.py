"""How long a store waits: for locks, connections, and databases that are down."""

import itertools
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from costmodel.errors import StoreError, UnknownSystemError
from costmodel.serving.observations.observations import Observations
from costmodel.store.change_token import ChangeToken
from costmodel.store.database import Database
from costmodel.store.store import Store
from tests.fakes import OBSERVED, elementwise, fake_system, measured

SOON = 0.2


@contextmanager
def held(url: str) -> Iterator[None]:
    """Holds the write lock in another connection."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
    else:
        engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as other:
            other.exec_driver_sql("LOCK TABLE systems, measurements, observations IN ACCESS EXCLUSIVE MODE")
            yield
        engine.dispose()


def test_who_waits_long_enough_learns_that_another_process_has_the_lock(store_url: str) -> None:
    """Every write operation reports the lock after the time limit, and works again afterwards."""
    with (
        closing(Store(store_url, wait_s=SOON)) as store,
        closing(Observations(store_url, wait_s=SOON)) as observations,
    ):
        with held(store_url):
            with pytest.raises(StoreError, match="another process keeps it busy"):
                store.put_system(fake_system())
            with pytest.raises(StoreError, match="another process keeps it busy"):
                observations.put([OBSERVED])
            if store_url.startswith("sqlite"):
                assert store.systems() == {}  # reading is not blocked
        store.put_system(fake_system())
        assert len(observations.put([OBSERVED])) == 1


def test_opening_a_new_store_waits_no_longer_either(tmp_path: Path) -> None:
    """Opening a store that another process is creating ends at the time limit."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process keeps it busy"):
            Store(url, wait_s=SOON)
    Store(url, wait_s=SOON).close()


def test_an_upgrade_that_another_process_is_taking_is_waited_for(postgres_url: str) -> None:
    """Waiting for another process's upgrade ends at the time limit."""
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as other:
        other.exec_driver_sql("SELECT pg_advisory_xact_lock(267866335)")
        with pytest.raises(StoreError, match="another process keeps it busy"):
            Store(postgres_url, wait_s=SOON)
    engine.dispose()
    Store(postgres_url, wait_s=SOON).close()


def test_a_statement_that_takes_too_long_ends(postgres_url: str) -> None:
    """Every statement ends at the time limit."""
    with closing(Database(postgres_url, wait_s=SOON)) as database:
        with pytest.raises(StoreError, match="another process keeps it busy"), database.reading() as connection:
            connection.exec_driver_sql("SELECT pg_sleep(600)")
        with database.reading() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1


def test_connections_that_are_all_in_use_are_waited_for(postgres_url: str) -> None:
    """Waiting for a free connection ends at the time limit."""
    with closing(Database(postgres_url, wait_s=SOON)) as database:
        taken = [database.reading() for _ in range(15)]
        for one in taken:
            one.__enter__()
        with pytest.raises(StoreError, match="another process keeps it busy"), database.reading():
            pass
        for one in taken:
            one.__exit__(None, None, None)
        with database.reading():
            pass


@pytest.mark.parametrize("silent", [False, True], ids=["refusing", "silent"])
def test_a_server_that_does_not_answer_is_given_up(silent: bool) -> None:
    """Connecting to an absent or silent server ends at the time limit."""
    pytest.importorskip("psycopg")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if silent:
            listening.listen()
        url = f"postgresql://me:secret@127.0.0.1:{listening.getsockname()[1]}/costs"
        with pytest.raises(StoreError, match="check that its server runs and can be reached") as caught:
            Store(url, wait_s=SOON)
        assert "secret" not in str(caught.value)


class TestLater:
    """A store object may be created while its database is down, and works once it is up."""

    def test_a_store_recovers(self, tmp_path: Path) -> None:
        """Each use connects again; an invalid URL is an error at once."""
        folder = tmp_path / "later"
        url = f"sqlite:///{folder / 'store.db'}"
        with closing(Store(url, lazy=True)) as store, closing(Observations(url, lazy=True)) as observations:
            for _ in range(2):
                with pytest.raises(StoreError, match="check that its folder exists"):
                    store.systems()
                with pytest.raises(StoreError, match="check that its folder exists"):
                    observations.put([OBSERVED])
            assert store.version() is None
            folder.mkdir()
            assert store.systems() == {}
            assert len(observations.put([OBSERVED])) == 1
            assert store.version() is not None
        with pytest.raises(StoreError, match="is not the URL of a store"):
            Store("results.db", lazy=True)

    def test_a_store_in_postgresql_recovers(self, postgres_url: str) -> None:
        """A store in PostgreSQL works once a foreign database is replaced by its own."""
        engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE songs (title TEXT)")
        with closing(Store(postgres_url, lazy=True, wait_s=SOON)) as store:
            with pytest.raises(StoreError, match="not a costmodel store"):
                store.systems()
            with engine.begin() as connection:
                connection.exec_driver_sql("DROP TABLE songs")
            with pytest.raises(UnknownSystemError):
                store.system("anything")
        engine.dispose()

    def test_a_store_that_must_be_there_is_looked_for_at_each_use(self, tmp_path: Path) -> None:
        """A required store is looked for at each use, because another process may create it."""
        url = f"sqlite:///{tmp_path / 'store.db'}"
        with closing(Store(url, create=False, lazy=True)) as store:
            with pytest.raises(StoreError, match="there is no store at"):
                store.systems()
            assert os.listdir(tmp_path) == []
            Store(url).close()
            assert store.systems() == {}


class TestVersion:
    """The change token, which differs after every write."""

    def test_it_changes_with_every_write_of_any_process(self, tmp_path: Path) -> None:
        """The token changes with writes of any connection or process, and with nothing else."""
        url = f"sqlite:///{tmp_path / 'store.db'}"
        with closing(Store(url)) as store, closing(Store(url)) as other:
            store.put_system(fake_system())
            versions = [store.version()]
            for writer, size in zip(itertools.cycle((store, other)), range(1, 21), strict=False):
                writer.put_measurement("fake-1", measured(elementwise(size)), elementwise(size))
                versions.append(store.version())
            program = (
                "from costmodel.store.store import Store; from tests.fakes import fake_system; "
                f"Store({url!r}).put_system(fake_system('another'))"
            )
            subprocess.run([sys.executable, "-c", program], check=True)
            versions.append(store.version())
            assert None not in versions
            assert len(set(versions)) == len(versions)
            store.systems()
            list(other.measurements("fake-1"))
            assert store.version() == versions[-1]

    def test_another_file_in_its_place_is_another_version(self, tmp_path: Path) -> None:
        """A replaced file has another token, even if its own counter is the same."""
        files = [tmp_path / name for name in ("one.db", "other.db")]
        for file in files:
            Store(f"sqlite:///{file}").close()
        with closing(Store(f"sqlite:///{files[0]}")) as store:
            before = store.version()
            os.replace(files[1], files[0])
            assert store.version() not in (before, None)
            os.remove(files[0])
            assert store.version() is None

    def test_a_fork_has_a_connection_of_its_own(self, tmp_path: Path) -> None:
        """A forked process opens its own connection, because SQLite connections cannot be shared."""
        program = """
import os, sys
from costmodel.store.store import Store
from tests.fakes import fake_system
store = Store(sys.argv[1])
store.put_system(fake_system())
before = store.version()
if (child := os.fork()) == 0:
    store.put_system(fake_system("of-the-child"))
    os._exit(0 if store.version() not in (before, None) else 1)
assert os.waitpid(child, 0)[1] == 0
assert store.version() not in (before, None)
assert set(store.systems()) == {"fake-1", "of-the-child"}
"""
        command = [sys.executable, "-W", "error", "-c", program, f"sqlite:///{tmp_path / 'store.db'}"]
        subprocess.run(command, check=True)

    def test_what_is_no_database_has_none(self, tmp_path: Path) -> None:
        """A file that is no database has no token and is not changed."""
        (tmp_path / "notes.txt").write_text("no database " * 100)
        assert ChangeToken(tmp_path / "notes.txt").read() is None
        assert ChangeToken(tmp_path / "absent").read() is None
        assert os.listdir(tmp_path) == ["notes.txt"]
