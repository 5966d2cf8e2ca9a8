"""Migrations of stores that older versions wrote, in SQLite and PostgreSQL."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, create_engine, inspect, select, text
from sqlalchemy.engine import Engine

from costmodel.errors import StoreError
from costmodel.serving.observations.observations import Observations
from costmodel.store.migrations import REVISIONS
from costmodel.store.migrations.__main__ import main
from costmodel.store.store import Store
from costmodel.store.tables import metadata, schema_version
from tests.fakes import OBSERVED, elementwise, measured

FOLDER = Path(__file__).parent / "old_stores"
READABLE = ("2-2", "2-3", "2-3-observed", "2-4-observed", "2-5-observed", "3-5-observed")


def engine_of(url: str) -> Engine:
    """Returns a plain SQLAlchemy engine."""
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


@pytest.fixture
def old_store(store_url: str) -> Callable[[str], str]:
    """Function that restores an old store and returns its URL."""

    def old_store(name: str) -> str:
        if store_url.startswith("sqlite"):
            content = gzip.decompress((FOLDER / f"{name}.db.gz").read_bytes())
            Path(store_url.removeprefix("sqlite:///")).write_bytes(content)
            return store_url
        engine = engine_of(store_url)
        with engine.begin() as connection:
            connection.exec_driver_sql(gzip.decompress((FOLDER / f"{name}.sql.gz").read_bytes()).decode())
        engine.dispose()
        return store_url

    return old_store


def content_of(url: str) -> dict[str, list[dict[str, Any]]]:
    """Returns every row of every table."""
    engine = engine_of(url)
    tables = MetaData()
    tables.reflect(engine)
    with engine.connect() as connection:
        found = {
            name: [dict(row._mapping) for row in connection.execute(select(table))]
            for name, table in sorted(tables.tables.items())
        }
    engine.dispose()
    return {name: sorted(rows, key=lambda row: json.dumps(row, sort_keys=True)) for name, rows in found.items()}


def schema_of(url: str) -> dict[str, Any]:
    """Returns columns, keys and indexes, without Alembic's own table."""
    engine = engine_of(url)
    inspector = inspect(engine)
    found = {
        table: {
            "columns": {c["name"]: (str(c["type"]), c["nullable"]) for c in inspector.get_columns(table)},
            "key": inspector.get_pk_constraint(table)["constrained_columns"],
            "indexes": {i["name"]: i["column_names"] for i in inspector.get_indexes(table)},
            "unique": sorted(u["column_names"] for u in inspector.get_unique_constraints(table)),
            "foreign": sorted(
                (f["constrained_columns"], f["referred_table"]) for f in inspector.get_foreign_keys(table)
            ),
        }
        for table in inspector.get_table_names()
        if table != schema_version.name
    }
    engine.dispose()
    return found


@pytest.mark.parametrize("name", READABLE)
def test_a_store_of_before_is_upgraded_without_losing_anything(old_store: Callable[[str], str], name: str) -> None:
    """An upgrade keeps all rows, derives or leaves unknown what is new in them, and new records can be added."""
    url = old_store(name)
    before = content_of(url)
    with closing(Store(url)) as store, closing(Observations(url)) as observations:
        after = content_of(url)
        for table in before.keys() - {"costmodel_meta", "measurements", "observations", schema_version.name}:
            assert after[table] == before[table], table
        measurements = {row["id"]: row for row in after["measurements"]}
        assert all(row.items() <= measurements[row["id"]].items() for row in before["measurements"])
        derived = {row["signature"]: row for row in after["measurements"] if not row["repeat"]}
        for measurement in store.measurements("fake-1", repeats=False):
            row, timing = derived[measurement.signature], measurement.timing
            assert measurement.kind == ("layer" if measurement.overhead_us else "model")
            found = (row["latency_us"], row["low_us"], row["high_us"], row["call_us"])
            assert found == pytest.approx((timing.latency_us, *timing.interval_us, timing.call_us))
        observed = before.get("observations", [])
        assert bool(observed) == name.endswith("observed")
        kept = {row["id"]: row for row in after["observations"]}
        assert [kept[row["id"]] | row for row in observed] == [kept[row["id"]] for row in observed]
        assert [(one.owner, one.idempotency_key) for one in observations.of_owner("local")] == [("local", None)] * len(
            observed
        )
        assert len(list(store.measurements("fake-1"))) == len(before["measurements"])
        assert store.models()[0].name == "tiny"
        store.put_measurement("fake-1", measured(elementwise(1, 3)), elementwise(1, 3))
        assert len(observations.put(observations.of_owner("local"))) == len(observed)
        assert observations.count("fake-1") == 2 * len(observed)


@pytest.mark.parametrize("name", READABLE)
def test_an_upgraded_store_is_like_a_new_one(old_store: Callable[[str], str], tmp_path: Path, name: str) -> None:
    """The schemas of upgraded and new stores equal that of the code."""
    url = old_store(name)
    Store(url).close()
    engine = engine_of(url)
    with engine.connect() as connection:
        options = {"compare_type": True, "version_table": schema_version.name}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
    engine.dispose()
    upgraded = schema_of(url)
    if url.startswith("sqlite"):
        new = f"sqlite:///{tmp_path / 'new.db'}"
    else:
        engine = engine_of(url)
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        engine.dispose()
        new = url
    Store(new).close()
    assert upgraded == schema_of(new)


@pytest.mark.parametrize("name", READABLE)
def test_a_store_goes_back_to_what_it_was(old_store: Callable[[str], str], name: str) -> None:
    """A downgrade restores the old schema and rows, and can be upgraded again."""
    url = old_store(name)
    rows, schema = content_of(url), schema_of(url)
    assert main([url]) == 0
    assert content_of(url)["costmodel_version"] == [{"version_num": REVISIONS[-1]}]
    older = "0003" if name.startswith("3") else "0002" if name.endswith("observed") else "0001"
    assert main([url, older]) == 0
    assert schema_of(url) == schema
    assert content_of(url) == rows | {schema_version.name: [{"version_num": older}]}
    with closing(Observations(url)) as observations:
        assert observations.count() == len(rows.get("observations", []))


def test_latencies_of_a_disturbed_machine_are_divided(old_store: Callable[[str], str]) -> None:
    """An upgrade derives the latencies of measurements with a slowdown anew, and a downgrade restores them."""
    url = old_store("3-5-observed")
    before = {row["id"]: row["latency_us"] for row in content_of(url)["measurements"]}
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE measurements SET circumstances = :json"), {"json": '{"slowdown": 1.25}'})
    engine.dispose()
    with closing(Store(url)) as store:
        after = {row["id"]: row["latency_us"] for row in content_of(url)["measurements"]}
        assert after == pytest.approx({row: latency_us / 1.25 for row, latency_us in before.items()})
        assert set(store.latencies_us("fake-1").values()) <= set(after.values())
    assert main([url, "0004"]) == 0
    assert {row["id"]: row["latency_us"] for row in content_of(url)["measurements"]} == pytest.approx(before)


def test_latencies_of_several_threads_are_divided_by_less(old_store: Callable[[str], str]) -> None:
    """With several threads, latencies of a disturbed machine are divided by 1.2 at most since revision 6."""
    url = old_store("3-5-observed")
    before = {row["id"]: row["latency_us"] for row in content_of(url)["measurements"]}
    engine = engine_of(url)
    with engine.begin() as connection:
        disturbed = {"json": '{"slowdown": 1.8, "threads": 2}'}
        connection.execute(text("UPDATE measurements SET circumstances = :json"), disturbed)
    engine.dispose()
    assert main([url]) == 0
    after = {row["id"]: row["latency_us"] for row in content_of(url)["measurements"]}
    assert after == pytest.approx({row: latency_us / 1.2 for row, latency_us in before.items()})
    assert all(row["low_us"] <= row["latency_us"] <= row["high_us"] for row in content_of(url)["measurements"])
    assert main([url, "0005"]) == 0
    earlier = {row["id"]: row["latency_us"] for row in content_of(url)["measurements"]}
    assert earlier == pytest.approx({row: latency_us / 1.8 for row, latency_us in before.items()})


def test_a_number_of_runs_that_older_code_has_no_room_for_becomes_the_largest(store_url: str) -> None:
    """A downgrade caps numbers of runs at the old column's maximum."""
    with closing(Observations(store_url)) as observations:
        observations.put([replace(OBSERVED, runs=2**62)])
    assert main([store_url, "0002"]) == 0
    assert content_of(store_url)["observations"][0]["runs"] == 2**31 - 1


def test_what_is_no_store_is_not_migrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Migrating something that is no store is one sentence and an error status."""
    engine = engine_of(url := f"sqlite:///{tmp_path / 'songs.db'}")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE songs (title TEXT)")
    engine.dispose()
    assert main([url]) == 1
    assert "not a costmodel store" in capsys.readouterr().err
    assert list(content_of(url)) == ["songs"]


def test_the_steps_are_those_that_the_code_knows() -> None:
    """The migrations are one linear history that ends at the code's format."""
    config = Config()
    config.set_main_option("script_location", "costmodel.store:migrations")
    found = [step.revision for step in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(found)) == REVISIONS


class TestRefused:
    """Refused databases are left unchanged, with one sentence of what to do."""

    @staticmethod
    def refusal(url: str) -> str:
        """Function that returns the sentence after checking that nothing changed."""
        before = content_of(url)
        with pytest.raises(StoreError) as caught:
            Store(url)
        assert content_of(url) == before
        return str(caught.value)

    @staticmethod
    def execute(url: str, statement: str) -> None:
        """Function that changes a database directly."""
        engine = engine_of(url)
        with engine.begin() as connection:
            connection.execute(text(statement))
        engine.dispose()

    def test_times_that_cannot_be_compared(self, old_store: Callable[[str], str]) -> None:
        """Format 1 is refused, because its times were measured differently."""
        said = self.refusal(old_store("1-1"))
        assert "has format 1" in said
        assert "cannot be compared with today's: give another store with --store and measure anew" in said

    def test_a_store_of_a_newer_costmodel(self, store_url: str) -> None:
        """A newer format is refused with the advice to upgrade."""
        Store(store_url).close()
        self.execute(store_url, "UPDATE costmodel_version SET version_num = '0999'")
        said = self.refusal(store_url)
        assert f"has schema 0999 and this costmodel knows schemas up to {REVISIONS[-1]}" in said
        assert "upgrade costmodel" in said

    @pytest.mark.parametrize("version", ["''", "'one'", "'-1'", "'3'", "NULL"])
    def test_a_store_of_no_format(self, old_store: Callable[[str], str], version: str) -> None:
        """A damaged or foreign format table is refused."""
        url = old_store("2-3")
        self.execute(url, f"UPDATE costmodel_meta SET value = {version}")
        assert "no format that costmodel knows" in self.refusal(url)

    def test_the_database_of_somebody_else(self, store_url: str) -> None:
        """No table is created in a database with foreign tables."""
        self.execute(store_url, "CREATE TABLE songs (title TEXT)")
        assert "is a database but not a costmodel store" in self.refusal(store_url)

    def test_older_code_refuses_an_upgraded_store(self, store_url: str) -> None:
        """Older code refuses an upgraded store as an unknown format."""
        Store(store_url).close()
        assert content_of(store_url)["costmodel_meta"] == [{"key": "format_version", "value": "3"}]


OPENING = """
import sys
from costmodel.store.store import Store
print("ready", flush=True)
sys.stdin.readline()
store = Store(sys.argv[1])
print(len(store.systems()))
"""


@pytest.fixture
def together() -> Iterator[Callable[[str, int], list[str]]]:
    """Function that opens a store in several processes at once and returns their outputs."""
    programs: list[subprocess.Popen[str]] = []

    def together(url: str, number: int) -> list[str]:
        for _ in range(number):
            command = [sys.executable, "-c", OPENING, url]
            programs.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        return [program.communicate()[0] for program in programs]

    yield together
    for program in programs:
        program.kill()
        program.communicate()


def test_several_processes_make_one_store(store_url: str, together: Callable[[str, int], list[str]]) -> None:
    """Several processes may create one store at once, and all find it complete."""
    assert together(store_url, 4) == ["0\n"] * 4


def test_several_processes_upgrade_one_store(
    old_store: Callable[[str], str], together: Callable[[str, int], list[str]]
) -> None:
    """Of several processes, one upgrades the store and the others wait."""
    url = old_store("2-3-observed")
    assert together(url, 4) == ["1\n"] * 4
    assert content_of(url)["costmodel_version"] == [{"version_num": REVISIONS[-1]}]
