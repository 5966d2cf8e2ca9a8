"""The results store: round trips, numbering of measurements, and errors."""

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import ModelProto
from sqlalchemy import event
from sqlalchemy.engine import Engine

from costmodel.errors import MissingExtraError, StoreError, UnknownSystemError
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.measurement import Kind, Measurement
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import Decomposition, decompose, whole_model
from costmodel.runtimes.base import RuntimeSettings
from costmodel.store.latency_csv import ObservedLatency
from costmodel.store.results import ImportSummary
from costmodel.store.store import Store, StoredSegment
from tests.fakes import HOST, FakeRuntime, elementwise, fake_system, measured, results

ONE, OTHER = elementwise(1, 3), elementwise(1, 4)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
time_us = st.floats(1e-3, 1e12, allow_nan=False)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store with one system."""
    store = Store(store_url)
    store.put_system(fake_system())
    yield store
    store.close()


@pytest.fixture
def graph(parse: Callable[..., ModelProto]) -> LayerGraph:
    """Returns three layers, two of them equal, and a weight."""
    text = "(float[2,3] x) => (float[2,3] y) { a = Relu(x) \n b = Relu(a) \n y = Add(b, w) }"
    return FakeRuntime().lower(read_model(parse(text, weights={"w": (3,)})), "all")


def put(store: Store, decomposition: Decomposition, graph: LayerGraph, **other: str) -> None:
    """Store a model and its decomposition."""
    facts = {"digest": "d", "family": "tiny", "lowering": "ort-1", **other}
    store.put_model(decomposition, whole_model(graph), **facts)


class TestRoundTrips:
    """Stored records are read back equal, also by another connection."""

    def test_systems(self, store_url: str) -> None:
        """Host, runtime, settings, capabilities and mark are read back; storing again replaces them."""
        first = fake_system(
            "b-1", settings=RuntimeSettings(2, "basic", spinning=False), capabilities={"layer_us": 1.25}
        )
        second = fake_system("a-1", host=None, asserted=True)
        store = Store(store_url)
        store.put_system(first)
        store.put_system(second)
        with closing(Store(store_url)) as again:
            assert store.systems() == again.systems() == {"a-1": second, "b-1": first}
        assert list(store.systems()) == ["a-1", "b-1"]
        store.put_system(replace(second, host=HOST))
        assert store.system("a-1").host == HOST
        store.close()

    def test_what_a_newer_costmodel_said_of_a_system_stays(self, store: Store) -> None:
        """Unknown fields that a newer version stored are kept when the record is written again."""
        newer = replace(fake_system("new-1"), unknown={"settings": {"precision": "bf16"}, "accelerators": ["npu"]})
        store.put_system(newer)
        store.put_system(fake_system("new-1", capabilities={"layer_us": 2.0}))
        assert store.system("new-1") == replace(newer, capabilities={"layer_us": 2.0})
        assert store.system("new-1").to_dict()["settings"]["precision"] == "bf16"

    def test_an_unknown_system_is_an_error_that_says_how_to_get_it(self, store_url: str) -> None:
        """The error names the known systems and the commands that add one."""
        store = Store(store_url)
        with pytest.raises(UnknownSystemError, match=r"new-1 \(none is known yet\).*costmodel bench --system new-1"):
            store.system("new-1")
        store.put_system(fake_system("old-1"))
        with pytest.raises(UnknownSystemError, match="known here: old-1"):
            store.system("new-1")
        store.close()

    def test_sequences(self, store: Store, graph: LayerGraph) -> None:
        """Sequences have the same text and signature, can be read by signature or all, and are stored once."""
        unique = decompose("m", graph, 2).unique
        store.put_sequences(unique.values())
        store.put_sequences([*unique.values(), ONE])
        assert {s: q.text for s, q in store.sequences().items()} == {s: q.text for s, q in unique.items()} | {
            ONE.signature: ONE.text
        }
        assert list(store.sequences([ONE.signature, "unknown"])) == [ONE.signature]
        assert store.sequences([]) == {}

    def test_more_sequences_than_a_statement_takes(self, store: Store) -> None:
        """Thousands of sequences are stored and read in batches, with their order kept."""
        sequences = [elementwise(size) for size in range(1, 1200)]
        store.put_sequences(sequences)
        assert set(store.sequences(s.signature for s in sequences)) == {s.signature for s in sequences}
        for sequence in sequences[:600:100] + sequences[-600::100]:
            store.put_measurement("fake-1", measured(sequence))
            store.put_measurement("fake-1", measured(sequence))
        found = [m.signature for m in store.measurements("fake-1", (s.signature for s in sequences))]
        assert found == sorted(found)
        assert len(found) == 24

    def test_models(self, store: Store, graph: LayerGraph) -> None:
        """A model is read back with all fields; a second granularity is a second entry."""
        one, two = decompose("m", graph, 1), decompose("m", graph, 2)
        put(store, two, graph)
        put(store, one, graph)
        put(store, decompose("a", graph, 1), graph)
        found = store.models()
        assert [(m.name, m.granularity) for m in found] == [("a", 1), ("m", 1), ("m", 2)]
        for stored, decomposition in zip(found[1:], (one, two), strict=True):
            assert (stored.family, stored.digest, stored.lowering) == ("tiny", "d", "ort-1")
            assert stored.whole == whole_model(graph).signature
            assert stored.segments == tuple(
                StoredSegment(p.sequence.signature, p.layers, p.predecessors) for p in decomposition.segments
            )
        assert set(store.sequences()) >= {*one.unique, *two.unique, whole_model(graph).signature}

    def test_a_model_put_again_takes_its_own_place(self, store: Store, graph: LayerGraph) -> None:
        """Storing a model again replaces it; another lowering is another entry."""
        for family in ("tiny", "small"):
            put(store, decompose("m", graph, 1), graph, family=family)
        (found,) = store.models()
        assert (found.family, len(found.segments)) == ("small", 3)
        put(store, decompose("m", graph, 1), graph, lowering="ort-2")
        assert [m.lowering for m in store.models()] == ["ort-1", "ort-2"]

    def test_another_model_under_a_name_replaces_the_old_one(
        self, store: Store, graph: LayerGraph, parse: Callable[..., ModelProto]
    ) -> None:
        """Another model under a name replaces the old one at all granularities."""
        for granularity in (1, 2):
            put(store, decompose("m", graph, granularity), graph)
        new = FakeRuntime().lower(read_model(parse("(float[2] x) => (float[2] y) { y = Tanh(x) }")), "all")
        put(store, decompose("m", new, 1), new, digest="e")
        (found,) = store.models()
        assert (found.granularity, found.whole, len(found.segments)) == (1, whole_model(new).signature, 1)

    def test_samples(self, store: Store) -> None:
        """A sample is stored with its origin, and the first origin is kept."""
        store.put_samples({ONE.signature: (ONE, OTHER)})
        store.put_samples({ONE.signature: (ONE, ONE)})
        assert store.samples() == {ONE.signature: OTHER.signature}
        assert set(store.sequences()) == {ONE.signature, OTHER.signature}

    @given(
        rounds=st.lists(st.lists(time_us, min_size=1, max_size=5), min_size=1, max_size=4),
        references=st.lists(time_us, max_size=4),
        overhead_us=st.just(0.0) | time_us,
        kind=st.sampled_from(get_args(Kind)),
        flags=st.tuples(st.booleans(), st.booleans()),
        environment=st.dictionaries(st.text(), json_values, max_size=4),
    )
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_measurements(
        self,
        store: Store,
        rounds: list[list[float]],
        references: list[float],
        overhead_us: float,
        kind: Kind,
        flags: tuple[bool, bool],
        environment: dict[str, object],
    ) -> None:
        """All raw times and fields of a measurement are read back exactly."""
        if store.url.startswith("postgresql"):
            environment = {}  # PostgreSQL's JSON lacks some characters and numbers
        measurement = Measurement(
            signature=ONE.signature,
            kind=kind,
            pass_times_us=tuple(map(tuple, rounds)),
            reference_us=tuple(references),
            stable=flags[0],
            overhead_us=overhead_us,
            data_dependent=flags[1],
            environment=environment,
            measured_at="2026-01-01T00:00:00.000+00:00",
        )
        repeats = len(list(store.measurements("fake-1")))
        store.put_measurement("fake-1", measurement, ONE)
        assert list(store.measurements("fake-1"))[repeats:] == [measurement]


class TestMeasurements:
    """Numbering of measurements, and which of them count."""

    def test_the_median_of_all_measurements_counts(self, store: Store) -> None:
        """The median counts; measurements are read in order, optionally without repeats."""
        for latency_us in (5.0, 3.0, 4.0):
            store.put_measurement("fake-1", measured(ONE, [latency_us]), ONE)
        store.put_measurement("fake-1", measured(OTHER, [7.0]), OTHER)
        assert store.latencies_us("fake-1") == {ONE.signature: 4.0, OTHER.signature: 7.0}
        assert {s: timing.latency_us for s, timing in store.timings("fake-1").items()} == store.latencies_us("fake-1")
        assert store.timings("fake-1", [ONE.signature])[ONE.signature].interval_us == (3.0, 5.0)
        assert store.latencies_us("fake-1", [OTHER.signature, "unknown"]) == {OTHER.signature: 7.0}
        assert [m.latency_us for m in store.measurements("fake-1", [ONE.signature])] == [5.0, 3.0, 4.0]
        assert [m.latency_us for m in store.measurements("fake-1", [ONE.signature], repeats=False)] == [5.0]
        assert store.repeated_signatures("fake-1") == {ONE.signature}

    def test_only_stable_measurements_count_if_there_are_any(self, store: Store) -> None:
        """A measurement from a disturbed machine counts until there is one from the quiet machine."""
        for latency_us in (8.0, 6.0):
            store.put_measurement("fake-1", measured(ONE, [latency_us], stable=False), ONE)
        (timing,) = store.timings("fake-1").values()
        assert (timing.latency_us, timing.interval_us, timing.stable) == (7.0, (6.0, 8.0), False)
        store.put_measurement("fake-1", measured(ONE, [5.0]), ONE)
        (timing,) = store.timings("fake-1").values()
        assert (timing.latency_us, timing.interval_us, timing.stable) == (5.0, (5.0, 5.0), True)

    def test_the_latency_of_a_layer_is_kept_without_its_call(self, store: Store) -> None:
        """The stored latency of a layer excludes the call overhead."""
        measurement = measured(ONE, [12.0, 13.0, 14.0], overhead_us=3.0)
        store.put_measurement("fake-1", measurement, ONE)
        assert store.latencies_us("fake-1") == {ONE.signature: measurement.latency_us} == {ONE.signature: 10.0}

    def test_observed_latencies_are_replaced_and_measured_ones_stay(self, store: Store) -> None:
        """Latencies that users imported take the place of those that they imported before, in every database."""

        def imported(latency_us: float, day: int) -> Measurement:
            row = ObservedLatency(1, "mine", latency_us)
            return row.measurement(ONE.signature, f"2026-01-0{day}T00:00:00.000+00:00")

        store.put_measurement("fake-1", measured(OTHER, [7.0]), OTHER)
        store.put_results(results(fake_system(), [(ONE, imported(5.0, 1))]))
        store.put_results(results(fake_system(), [(ONE, imported(9.0, 2))]), replace_observed=True)
        assert store.latencies_us("fake-1") == {ONE.signature: 9.0, OTHER.signature: 7.0}
        store.put_results(results(fake_system(), [(ONE, imported(11.0, 3))]))
        assert store.latencies_us("fake-1")[ONE.signature] == 10.0

    def test_many_are_added_at_once(self, store: Store) -> None:
        """Measurements that are added together are numbered as if they were added one after the other."""
        store.put_sequences([ONE, OTHER])
        store.put_measurement("fake-1", measured(ONE, [1.0]))
        store.put_measurements("fake-1", [measured(ONE, [2.0]), measured(OTHER, [9.0]), measured(ONE, [3.0])])
        store.put_measurements("fake-1", [])
        assert [m.latency_us for m in store.measurements("fake-1", [ONE.signature])] == [1.0, 2.0, 3.0]
        assert [m.latency_us for m in store.measurements("fake-1", repeats=False)] == [
            {ONE.signature: 1.0, OTHER.signature: 9.0}[s] for s in sorted((ONE.signature, OTHER.signature))
        ]

    def test_all_are_added_or_none(self, store: Store) -> None:
        """If one of several measurements cannot be stored, none is."""
        store.put_sequences([ONE])
        with pytest.raises(StoreError, match="store the system and the sequence"):
            store.put_measurements("fake-1", [measured(ONE), measured(OTHER)])
        assert list(store.measurements("fake-1")) == []

    def test_systems_do_not_mix(self, store: Store) -> None:
        """Measurements of one signature on two systems are numbered separately."""
        store.put_system(fake_system("fake-2"))
        store.put_measurement("fake-1", measured(ONE, [5.0]), ONE)
        store.put_measurement("fake-2", measured(ONE, [6.0]))
        assert (store.latencies_us("fake-1"), store.latencies_us("fake-2")) == (
            {ONE.signature: 5.0},
            {ONE.signature: 6.0},
        )
        assert store.repeated_signatures("fake-1") == store.repeated_signatures("fake-2") == set()
        assert store.latencies_us("fake-3") == {}

    def test_a_measurement_of_nothing_that_is_stored_is_an_error(self, store: Store) -> None:
        """A measurement of an unknown system or sequence is an error."""
        with pytest.raises(StoreError, match="store the system and the sequence"):
            store.put_measurement("fake-1", measured(ONE))
        with pytest.raises(StoreError, match="store the system and the sequence"):
            store.put_measurement("fake-2", measured(ONE), ONE)
        assert store.sequences() == {}

    def test_what_another_machine_measured_is_added_once(self, store: Store) -> None:
        """A record that is stored already is recognised by its time and raw times."""
        records = [(ONE, measured(ONE, [5.0])), (ONE, measured(ONE, [6.0])), (OTHER, measured(OTHER, [5.0]))]
        system = fake_system("far-1")
        assert store.put_results(results(system, records[:2])) == ImportSummary(2, 0)
        assert store.put_results(results(system, records)) == ImportSummary(1, 2)
        assert store.put_results(results(system, records)) == ImportSummary(0, 3)
        assert store.system("far-1") == system
        assert [m.latency_us for m in store.measurements("far-1", [ONE.signature])] == [5.0, 6.0]

    def test_what_is_known_of_a_system_stays(self, store: Store) -> None:
        """Imported results do not change a stored system's capabilities."""
        store.put_results(results(fake_system(capabilities={"layer_us": 9.0}), [(ONE, measured(ONE))]))
        assert store.system("fake-1").capabilities == {}

    def test_a_batch_is_all_or_nothing(self, store: Store) -> None:
        """A record that cannot be stored rejects the whole batch, its system included."""
        bad = replace(measured(OTHER), measured_at=None)  # type: ignore[arg-type]
        with pytest.raises(StoreError):
            store.put_results(results(fake_system("far-1"), [(ONE, measured(ONE)), (OTHER, bad)]))
        assert "far-1" not in store.systems()
        assert store.sequences() == {}


@contextmanager
def raw(url: str) -> Iterator[sqlite3.Connection]:
    """Returns a plain connection to the file."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as database:
        yield database


class TestUnusable:
    """Errors name the store and say what to do, and nothing is changed."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        """Path for the store."""
        return tmp_path / "store.db"

    @staticmethod
    def refusal(url: str) -> str:
        """Function that returns the error message."""
        with pytest.raises(StoreError) as caught:
            Store(url)
        return str(caught.value)

    @pytest.mark.parametrize("content", [b"not a database", bytes(range(256)) * 64], ids=["short", "long"])
    def test_a_file_that_is_no_database(self, file: Path, content: bytes) -> None:
        """A file that is no database is refused and unchanged."""
        file.write_bytes(content)
        assert "not a database" in self.refusal(f"sqlite:///{file}")
        assert file.read_bytes() == content
        assert os.listdir(file.parent) == [file.name]

    def test_the_database_of_somebody_else(self, file: Path) -> None:
        """No table is created in a database with foreign tables."""
        url = f"sqlite:///{file}"
        with raw(url) as database:
            database.execute("CREATE TABLE songs (title TEXT)")
        assert "is a database but not a costmodel store" in self.refusal(url)
        with raw(url) as database:
            assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]

    def test_an_empty_file_becomes_a_store(self, file: Path) -> None:
        """An empty file, as from `touch` or mktemp, becomes a store."""
        file.touch()
        assert Store(f"sqlite:///{file}").systems() == {}

    @pytest.mark.parametrize("place", ["absent/store.db", "file/store.db", "folder"])
    def test_a_place_where_nothing_can_be_written(self, tmp_path: Path, place: str) -> None:
        """A missing folder, a file in its place, and a folder as the store are errors."""
        (tmp_path / "file").touch()
        (tmp_path / "folder").mkdir()
        said = self.refusal(f"sqlite:///{tmp_path / place}")
        assert str(tmp_path / place) in said
        assert "check that its folder exists and can be written" in said

    def test_a_folder_that_is_not_ours(self, tmp_path: Path) -> None:
        """A folder without write permission is an error; for root, a kernel folder stands in."""
        folder = Path("/proc/self") if os.geteuid() == 0 else tmp_path / "locked"
        if not folder.exists():
            folder.mkdir(mode=0o500)
        assert "can be written" in self.refusal(f"sqlite:///{folder / 'store.db'}")

    def test_a_full_disk(self, file: Path) -> None:
        """On a full disk earlier records are safe, and the message says so."""
        url = f"sqlite:///{file}"
        store = Store(url)
        store.put_system(fake_system())

        def limit(connection: sqlite3.Connection, _: object) -> None:
            connection.execute("PRAGMA max_page_count = 40")

        stored: list[LayerSequence] = []

        def fill() -> None:
            for size in range(1, 1000):
                store.put_measurement("fake-1", measured(elementwise(size), [1.0] * 99), elementwise(size))
                stored.append(elementwise(size))

        event.listen(Engine, "connect", limit)
        try:
            with pytest.raises(StoreError, match=r"disk is full.*free some space.*is safe"):
                fill()
        finally:
            event.remove(Engine, "connect", limit)
        assert len(stored) > 3
        assert set(store.latencies_us("fake-1")) == set(store.sequences()) == {s.signature for s in stored}
        store.put_measurement("fake-1", measured(OTHER), OTHER)
        with raw(url) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)

    @pytest.mark.parametrize(
        "url", ["", "results.db", "nosuch://host/x", "sqlite:///x.db?timeout=soon", "mysql://host:port/x"]
    )
    def test_what_is_no_url(self, url: str) -> None:
        """An invalid URL is quoted with an example of a valid one."""
        said = self.refusal(url)
        assert repr(url) in said
        assert "sqlite:///results.db" in said

    @pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
    def test_a_store_that_would_keep_nothing(self, url: str) -> None:
        """An in-memory store is refused."""
        assert "keeps nothing" in self.refusal(url)

    @pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
    def test_a_driver_that_is_not_installed(self, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A missing driver's install line is given, without the password of the URL."""
        monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
        with pytest.raises(MissingExtraError, match=re.escape("--editable '.[postgres]'")) as caught:
            Store(f"{scheme}://user:secret@host/name")
        assert "secret" not in str(caught.value)

    def test_a_database_that_costmodel_has_no_extra_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Other SQLAlchemy databases are possible; the user installs the driver."""
        monkeypatch.setitem(__import__("sys").modules, "MySQLdb", None)
        assert "needs the package MySQLdb" in self.refusal("mysql://host/name")

    def test_a_password_is_never_shown(self, tmp_path: Path) -> None:
        """Error messages never contain the password."""
        for url in (
            f"sqlite://user:secret@/{tmp_path / 'absent' / 'x.db'}",
            "postgresql+psycopg://user:secret@host:p/x",
        ):
            said = self.refusal(url)
            assert "secret" not in said
            assert "***@" in said
