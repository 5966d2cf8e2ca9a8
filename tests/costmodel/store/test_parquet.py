"""Export and import of measurements as Parquet."""

import json
import os
import re
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from pyarrow import parquet

from costmodel.errors import DataFileError, MissingExtraError, SystemMismatchError, SystemNameError, UnknownSystemError
from costmodel.measure.measurement import Measurement
from costmodel.store.parquet import FORMAT_VERSION, export_results, import_results
from costmodel.store.store import Store
from tests.fakes import HOST, elementwise, fake_system, measured

SEQUENCES = [elementwise(1, size) for size in range(1, 4)]

time_us = st.floats(1e-3, 1e12, allow_nan=False)
rounds = st.lists(st.lists(time_us, min_size=1, max_size=4), min_size=1, max_size=3)

Stores = Callable[[], Store]
Rows = list[dict[str, Any]]


@pytest.fixture
def store(new_store: Stores) -> Store:
    """A store with three signatures of one system, the first of them measured twice."""
    store = new_store()
    store.put_system(fake_system(capabilities={"layer_us": 1.5}))
    for second, sequence in enumerate([*SEQUENCES, SEQUENCES[0]]):
        at = f"2026-01-01T00:00:{second:02d}.000+00:00"
        measurement = measured(sequence, [1.001, 123456.789], [2.5], at=at, overhead_us=0.75)
        store.put_measurement("fake-1", measurement, sequence)
    return store


@pytest.fixture
def file(store: Store, tmp_path: Path) -> Path:
    """An export of that store."""
    path = tmp_path / "results.parquet"
    export_results(store, "fake-1", path)
    return path


def rewrite(path: Path, change: Callable[[Rows], object] | None = None, header: object = None) -> None:
    """Change the rows or the metadata of a file."""
    table = parquet.read_table(path)
    metadata = dict(table.schema.metadata)
    rows = table.to_pylist()
    if change is not None:
        change(rows)
    if header is not None:
        metadata[b"costmodel"] = json.dumps(header).encode()
    parquet.write_table(pyarrow.Table.from_pylist(rows).replace_schema_metadata(metadata), path)


def brought(store: Store, path: Path, name: str | None = None) -> tuple[str, int, int]:
    """Import a file; returns the system's name and the numbers of new and known measurements."""
    results, added = import_results(store, path, name)
    return results.system.name, added.measurements, added.known


def header_of(path: Path) -> dict[str, Any]:
    """Returns the metadata of a file."""
    found: dict[str, Any] = json.loads(parquet.read_table(path).schema.metadata[b"costmodel"])
    return found


class TestThereAndBack:
    """Export and import between machines."""

    def test_a_system_arrives_whole(self, store: Store, file: Path, new_store: Stores) -> None:
        """Facts, sequences and measurements of a system are imported, with repeats in order."""
        other = new_store()
        assert brought(other, file) == ("fake-1", 4, 0)
        assert other.systems() == store.systems()
        assert list(other.measurements("fake-1")) == list(store.measurements("fake-1"))
        assert {s: q.text for s, q in other.sequences().items()} == {s: q.text for s, q in store.sequences().items()}
        assert other.repeated_signatures("fake-1") == {SEQUENCES[0].signature}

    @given(st.lists(st.tuples(st.integers(0, 2), rounds, st.booleans(), st.just(0.0) | time_us), max_size=6))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
    def test_measurements_arrive_to_the_last_bit(
        self, new_store: Stores, tmp_path: Path, records: list[tuple[int, list[list[float]], bool, float]]
    ) -> None:
        """An import restores every measurement exactly, and exporting again gives the same rows."""
        here, there = new_store(), new_store()
        here.put_system(fake_system())
        for number, (which, times, stable, overhead_us) in enumerate(records):
            at = f"2026-01-01T00:00:{number:02d}.000+00:00"
            measurement = measured(
                SEQUENCES[which], *times, at=at, stable=stable, overhead_us=overhead_us, kind="layer"
            )
            here.put_measurement("fake-1", measurement, SEQUENCES[which])
        assert len(export_results(here, "fake-1", tmp_path / "out.parquet").measurements) == len(records)
        assert brought(there, tmp_path / "out.parquet") == ("fake-1", len(records), 0)
        assert list(there.measurements("fake-1")) == list(here.measurements("fake-1"))
        export_results(there, "fake-1", tmp_path / "again.parquet")
        assert parquet.read_table(tmp_path / "again.parquet").equals(parquet.read_table(tmp_path / "out.parquet"))

    def test_importing_twice_adds_nothing(self, store: Store, file: Path, new_store: Stores) -> None:
        """A second import, also into the original store, adds nothing."""
        other = new_store()
        import_results(other, file)
        assert brought(other, file) == ("fake-1", 0, 4)
        assert brought(store, file) == ("fake-1", 0, 4)
        assert len(list(other.measurements("fake-1"))) == len(list(store.measurements("fake-1"))) == 4

    def test_what_another_release_stored_is_known_too(self, store: Store, file: Path) -> None:
        """A measurement is recognised by its raw times, even if another version computed another latency."""
        with closing(sqlite3.connect(store.url.removeprefix("sqlite:///"))) as database, database:
            database.execute("UPDATE measurements SET latency_us = latency_us + 1")
        assert brought(store, file) == ("fake-1", 0, 4)

    def test_what_is_new_in_a_later_export_is_added(self, store: Store, file: Path, new_store: Stores) -> None:
        """A later export of the same machine adds only new measurements."""
        other = new_store()
        import_results(other, file)
        more = elementwise(9, 9)
        store.put_measurement("fake-1", measured(more, kind="layer"), more)
        export_results(store, "fake-1", file)
        assert brought(other, file) == ("fake-1", 1, 4)

    def test_another_name_may_be_given(self, file: Path, new_store: Stores) -> None:
        """The system may be imported under another name."""
        other = new_store()
        assert brought(other, file, "c5.xlarge") == ("c5.xlarge", 4, 0)
        assert list(other.systems()) == ["c5.xlarge"]
        assert other.system("c5.xlarge").capabilities == {"layer_us": 1.5}

    def test_a_system_without_measurements_arrives_as_one(self, new_store: Stores, tmp_path: Path) -> None:
        """A system without measurements can be exported and imported."""
        here, there = new_store(), new_store()
        here.put_system(fake_system())
        assert export_results(here, "fake-1", tmp_path / "none.parquet").measurements == ()
        assert brought(there, tmp_path / "none.parquet") == ("fake-1", 0, 0)
        assert there.systems() == here.systems()

    def test_the_file_does_not_say_which_models_were_measured(self, file: Path) -> None:
        """The file has a row for each measurement with its sequence, and nothing about models."""
        assert set(parquet.read_table(file).column_names) == {
            "signature", "sequence", "kind", "latency_us", "rounds_us", "reference_us", "overhead_us", "stable",
            "data_dependent", "circumstances", "measured_at",
        }  # fmt: skip
        assert header_of(file).keys() == {"format", "system"}


class TestExporting:
    """A file is written completely or not at all."""

    def test_an_unknown_system_is_not_exported(self, store: Store, tmp_path: Path) -> None:
        """No file is created for an unknown system."""
        with pytest.raises(UnknownSystemError, match="fake-2"):
            export_results(store, "fake-2", tmp_path / "x.parquet")
        assert not (tmp_path / "x.parquet").exists()

    @pytest.mark.parametrize("where", ["absent/x.parquet", "folder", "file/x.parquet"])
    def test_a_file_that_cannot_be_written_is_named(self, store: Store, tmp_path: Path, where: str) -> None:
        """A file that cannot be written is named, and nothing partial remains."""
        (tmp_path / "folder").mkdir()
        (tmp_path / "file").touch()
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(DataFileError, match=re.escape(str(tmp_path / where)) + " cannot be written"):
            export_results(store, "fake-1", tmp_path / where)
        assert sorted(tmp_path.rglob("*")) == before

    def test_the_folder_at_hand_is_no_file(self, store: Store) -> None:
        """Exporting to a folder, as in `costmodel export .`, is an error of one sentence."""
        with pytest.raises(DataFileError, match="give a file"):
            export_results(store, "fake-1", Path())

    def test_a_failed_export_leaves_the_older_file(self, store: Store, file: Path) -> None:
        """A failed export, here on a full device, keeps the older file and leaves no partial one."""
        before = file.read_bytes()
        file.with_name(f".{file.name}.{os.getpid()}-{threading.get_ident()}.partial").symlink_to("/dev/full")
        with pytest.raises(DataFileError, match="No space left on device"):
            export_results(store, "fake-1", file)
        assert file.read_bytes() == before
        assert not list(file.parent.glob(".*"))

    def test_parquet_is_an_extra(self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without pyarrow the error says how to install it."""
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(MissingExtraError, match=re.escape(".[parquet]")):
            export_results(store, "fake-1", tmp_path / "x.parquet")
        with pytest.raises(MissingExtraError, match=re.escape(".[parquet]")):
            import_results(store, tmp_path / "x.parquet")


class TestUnsound:
    """One invalid measurement rejects the whole file, with the row in the error."""

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -1.0, 0.0])
    @pytest.mark.parametrize("where", ["rounds_us", "reference_us", "latency_us"])
    def test_a_time_that_is_no_positive_number(self, file: Path, new_store: Stores, value: float, where: str) -> None:
        """Times of runs, of the reference and latencies must be positive numbers."""

        def spoil(rows: Rows) -> None:
            rows[2][where] = {"rounds_us": [[1.0], [1.0, value]], "reference_us": [value], "latency_us": value}[where]

        rewrite(file, spoil)
        self.refused(new_store(), file, "row 3 has a time that is no positive number.*nothing was imported")

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -1.0])
    def test_a_call_that_costs_no_number(self, file: Path, new_store: Stores, value: float) -> None:
        """The call overhead must be a number of at least 0."""
        rewrite(file, lambda rows: rows[2].update(overhead_us=value))
        self.refused(new_store(), file, "row 3 has .*nothing was imported")
        rewrite(file, lambda rows: rows[2].update(overhead_us=0.0))
        assert brought(new_store(), file) == ("fake-1", 4, 0)

    @staticmethod
    def refused(store: Store, file: Path, pattern: str) -> None:
        """Asserts that the import raises and the store is unchanged."""
        with pytest.raises(DataFileError, match=pattern):
            import_results(store, file)
        assert (store.systems(), store.sequences()) == ({}, {})

    @pytest.mark.parametrize("times", [[], [[]], [[], []]])
    def test_a_measurement_without_times(self, file: Path, new_store: Stores, times: list[list[float]]) -> None:
        """A measurement without raw times is refused."""
        rewrite(file, lambda rows: rows[0].update(rounds_us=times))
        self.refused(new_store(), file, "row 1 has a time that is no positive number")

    @pytest.mark.parametrize("slowdown", ["0", "0.5", "-1", "NaN", "Infinity", '"2"', "null", "[1]"])
    def test_an_impossible_slowdown(self, file: Path, new_store: Stores, slowdown: str) -> None:
        """A slowdown by which no latency can be divided is refused."""
        rewrite(file, lambda rows: rows[0].update(circumstances=f'{{"slowdown": {slowdown}}}'))
        self.refused(new_store(), file, "row 1 has a slowdown that is no number of at least 1")

    @pytest.mark.parametrize(
        "change",
        [
            {"rounds_us": [[None]]}, {"rounds_us": [None]}, {"rounds_us": None}, {"reference_us": None},
            {"reference_us": [None]}, {"latency_us": None}, {"stable": None}, {"data_dependent": None},
            {"overhead_us": None}, {"measured_at": None}, {"circumstances": None}, {"circumstances": "{"},
            {"circumstances": "[1]"},
            {"sequence": None}, {"sequence": "{}"}, {"sequence": "text"}, {"signature": None},
        ],
        ids=str,
    )  # fmt: skip
    def test_a_row_with_a_hole(self, file: Path, new_store: Stores, change: dict[str, object]) -> None:
        """Missing or unreadable values are refused."""
        rewrite(file, lambda rows: rows[1].update(change))
        self.refused(new_store(), file, "row 2 .*nothing was imported")

    @pytest.mark.parametrize(
        "column", ["signature", "sequence", "rounds_us", "overhead_us", "stable", "measured_at", "latency_us"]
    )
    def test_a_column_that_is_not_there(self, file: Path, new_store: Stores, column: str) -> None:
        """A missing column is named."""

        def drop(rows: Rows) -> None:
            for row in rows:
                del row[column]

        rewrite(file, drop)
        self.refused(new_store(), file, f"row 1 is incomplete .*{column}")

    @pytest.mark.parametrize("column", ["rounds_us", "latency_us"])
    def test_times_that_are_text(self, file: Path, new_store: Stores, column: str) -> None:
        """Times as text are refused."""

        def quote(rows: Rows) -> None:
            for row in rows:
                row[column] = [["1.0"]] if column == "rounds_us" else "1.0"

        rewrite(file, quote)
        self.refused(new_store(), file, "row 1 is incomplete")

    @pytest.mark.parametrize("what", ["signature", "sequence"])
    def test_a_signature_that_is_not_its_sequences(self, file: Path, new_store: Stores, what: str) -> None:
        """A signature that does not match its sequence is refused."""
        other = elementwise(7, 7)
        rewrite(file, lambda rows: rows[3].update({what: other.signature if what == "signature" else other.text}))
        self.refused(new_store(), file, "row 4 has a signature that is not its sequence's")


class TestNotOurs:
    """Files that are no exports, or not for this store."""

    @pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all", b"PAR1" + b"\0" * 64 + b"PAR1"])
    def test_a_file_that_is_not_parquet(self, store: Store, tmp_path: Path, content: bytes) -> None:
        """Empty, damaged and other files are refused."""
        (tmp_path / "x.parquet").write_bytes(content)
        with pytest.raises(DataFileError, match="not a file of costmodel measurements"):
            import_results(store, tmp_path / "x.parquet")

    def test_a_truncated_file(self, store: Store, file: Path) -> None:
        """A truncated file is refused."""
        file.write_bytes(file.read_bytes()[:-100])
        with pytest.raises(DataFileError, match="not a file of costmodel measurements"):
            import_results(store, file)

    def test_the_parquet_of_somebody_else(self, store: Store, tmp_path: Path) -> None:
        """Parquet files of other programs are refused."""
        parquet.write_table(pyarrow.table({"title": ["a", "b"]}), tmp_path / "songs.parquet")
        with pytest.raises(DataFileError, match="not a file of costmodel measurements"):
            import_results(store, tmp_path / "songs.parquet")

    def test_a_folder(self, store: Store, tmp_path: Path) -> None:
        """A folder is refused."""
        (tmp_path / "folder").mkdir()
        with pytest.raises(DataFileError):
            import_results(store, tmp_path / "folder")

    def test_a_file_that_is_not_there(self, store: Store, tmp_path: Path) -> None:
        """A missing file is named."""
        with pytest.raises(DataFileError, match=r"absent\.parquet does not exist"):
            import_results(store, tmp_path / "absent.parquet")

    def test_a_file_of_a_newer_format(self, new_store: Stores, file: Path) -> None:
        """A newer format is refused with the advice to upgrade."""
        rewrite(file, header={**header_of(file), "format": FORMAT_VERSION + 1})
        TestUnsound.refused(new_store(), file, f"has format {FORMAT_VERSION + 1} .*upgrade costmodel")

    @pytest.mark.parametrize("older", range(1, FORMAT_VERSION))
    def test_a_file_of_an_older_format(self, new_store: Stores, file: Path, older: int) -> None:
        """An older format is refused, because its times were measured differently."""
        rewrite(file, header={**header_of(file), "format": older})
        said = f"has format {older}, whose times cannot be compared with those of format {FORMAT_VERSION}: measure and"
        TestUnsound.refused(new_store(), file, said)

    @pytest.mark.parametrize(
        "header",
        [[], 5, "text", {}, {"format": FORMAT_VERSION}, {"format": "1", "system": {}},
         {"format": FORMAT_VERSION, "system": {}}, {"format": FORMAT_VERSION, "system": None},
         {"format": FORMAT_VERSION, "system": []}, {"format": None, "system": {}}],
        ids=str,
    )  # fmt: skip
    def test_a_file_that_says_nothing_sensible_of_itself(self, new_store: Stores, file: Path, header: object) -> None:
        """Invalid metadata is refused."""
        rewrite(file, header=header)
        TestUnsound.refused(new_store(), file, "not a file of costmodel measurements")

    @pytest.mark.parametrize("name", ["../up", "a b", "", "x" * 65, "nul", "-rf", "é", "a/b", "a\n"])
    def test_a_name_with_odd_characters(self, new_store: Stores, file: Path, name: str) -> None:
        """Invalid system names, in the file or given, are refused, because names become file names."""
        store = new_store()
        with pytest.raises(SystemNameError):
            import_results(store, file, name)
        header = header_of(file)
        rewrite(file, header={**header, "system": {**header["system"], "name": name}})
        with pytest.raises(SystemNameError):
            import_results(store, file)
        assert store.systems() == {}
        assert brought(store, file, "good-1") == ("good-1", 4, 0)

    def test_a_name_that_belongs_to_another_machine_here(self, file: Path, new_store: Stores) -> None:
        """A name that the store uses for another machine is refused, unless asserted."""
        store = new_store()
        here = fake_system(host=replace(HOST, model_name="Imaginary 2"))
        store.put_system(here)
        with pytest.raises(SystemMismatchError, match="Imaginary"):
            import_results(store, file)
        assert store.latencies_us("fake-1") == {}
        header = header_of(file)
        rewrite(file, header={**header, "system": {**header["system"], "asserted": True}})
        assert brought(store, file) == ("fake-1", 4, 0)
        assert store.system("fake-1") == here


def test_an_imported_measurement_is_a_measurement(file: Path, new_store: Stores) -> None:
    """The latency of an imported measurement is computed from its raw times, not taken from the file."""
    store = new_store()
    rewrite(file, lambda rows: rows[0].update(latency_us=5.0))
    import_results(store, file)
    found: Measurement = next(store.measurements("fake-1"))
    assert store.latencies_us("fake-1")[found.signature] == found.latency_us != 5.0
