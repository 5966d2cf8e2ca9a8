"""The results store: round trips, its numbering, and what it says when it cannot be used."""

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import ModelProto
from sqlalchemy import event
from sqlalchemy.engine import Engine

from costmodel.decomposition import Decomposition, decompose, whole_model
from costmodel.errors import MissingExtraError, StoreError, UnknownSystemError
from costmodel.graph import LayerGraph
from costmodel.measurement import Measurement
from costmodel.model import read_model
from costmodel.results import Added
from costmodel.runtimes import RuntimeSettings
from costmodel.sequence import LayerSequence
from costmodel.store import Store, StoredPiece
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
    """An empty store that knows one system."""
    store = Store(store_url)
    store.put_system(fake_system())
    yield store
    store.close()


@pytest.fixture
def graph(parse: Callable[..., ModelProto]) -> LayerGraph:
    """Three layers, two of them alike, and a weight."""
    text = "(float[2,3] x) => (float[2,3] y) { a = Relu(x) \n b = Relu(a) \n y = Add(b, w) }"
    return FakeRuntime().lower(read_model(parse(text, weights={"w": (3,)})), "all")


def put(store: Store, decomposition: Decomposition, graph: LayerGraph, **other: str) -> None:
    """Add a model and its decomposition."""
    facts = {"digest": "d", "family": "tiny", "lowering": "ort-1", **other}
    store.put_model(decomposition, whole_model(graph), **facts)


class TestRoundTrips:
    """What is put in comes out, in this process and the next."""

    def test_systems(self, store_url: str) -> None:
        """Host, runtime, settings, capabilities and mark; putting one again replaces it."""
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
        """Although this one writes the record anew, and knows nothing of it."""
        newer = replace(fake_system("new-1"), unknown={"settings": {"precision": "bf16"}, "accelerators": ["npu"]})
        store.put_system(newer)
        store.put_system(fake_system("new-1", capabilities={"layer_us": 2.0}))
        assert store.system("new-1") == replace(newer, capabilities={"layer_us": 2.0})
        assert store.system("new-1").to_dict()["settings"]["precision"] == "bf16"

    def test_an_unknown_system_is_an_error_that_says_how_to_get_it(self, store_url: str) -> None:
        """It names what is known, and the commands that add another one."""
        store = Store(store_url)
        with pytest.raises(UnknownSystemError, match=r"new-1 \(none is known yet\).*costmodel bench --system new-1"):
            store.system("new-1")
        store.put_system(fake_system("old-1"))
        with pytest.raises(UnknownSystemError, match="known here: old-1"):
            store.system("new-1")
        store.close()

    def test_sequences(self, store: Store, graph: LayerGraph) -> None:
        """The same text and signature; asked for by signature, or all of them; twice is once."""
        unique = decompose("m", graph, 2).unique
        store.put_sequences(unique.values())
        store.put_sequences([*unique.values(), ONE])
        assert {s: q.text for s, q in store.sequences().items()} == {s: q.text for s, q in unique.items()} | {
            ONE.signature: ONE.text
        }
        assert list(store.sequences([ONE.signature, "unknown"])) == [ONE.signature]
        assert store.sequences([]) == {}

    def test_more_sequences_than_a_statement_takes(self, store: Store) -> None:
        """Thousands are put and found in portions; what they come with keeps its order."""
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
        """Name, lowering, granularity, family, digest, whole and pieces; a second granularity is a second entry."""
        one, two = decompose("m", graph, 1), decompose("m", graph, 2)
        put(store, two, graph)
        put(store, one, graph)
        put(store, decompose("a", graph, 1), graph)
        found = store.models()
        assert [(m.name, m.granularity) for m in found] == [("a", 1), ("m", 1), ("m", 2)]
        for stored, decomposition in zip(found[1:], (one, two), strict=True):
            assert (stored.family, stored.digest, stored.lowering) == ("tiny", "d", "ort-1")
            assert stored.whole == whole_model(graph).signature
            assert stored.pieces == tuple(
                StoredPiece(p.sequence.signature, p.layers, p.needs) for p in decomposition.pieces
            )
        assert set(store.sequences()) >= {*one.unique, *two.unique, whole_model(graph).signature}

    def test_a_model_put_again_takes_its_own_place(self, store: Store, graph: LayerGraph) -> None:
        """Nothing is doubled; its family may change; another lowering is another entry."""
        for family in ("tiny", "small"):
            put(store, decompose("m", graph, 1), graph, family=family)
        (found,) = store.models()
        assert (found.family, len(found.pieces)) == ("small", 3)
        put(store, decompose("m", graph, 1), graph, lowering="ort-2")
        assert [m.lowering for m in store.models()] == ["ort-1", "ort-2"]

    def test_another_model_under_a_name_replaces_the_old_one(
        self, store: Store, graph: LayerGraph, parse: Callable[..., ModelProto]
    ) -> None:
        """Pieces of the old one do not stay behind at other granularities."""
        for granularity in (1, 2):
            put(store, decompose("m", graph, granularity), graph)
        new = FakeRuntime().lower(read_model(parse("(float[2] x) => (float[2] y) { y = Tanh(x) }")), "all")
        put(store, decompose("m", new, 1), new, digest="e")
        (found,) = store.models()
        assert (found.granularity, found.whole, len(found.pieces)) == (1, whole_model(new).signature, 1)

    def test_samples(self, store: Store) -> None:
        """Each with the sequence that it was made from, which is stored with it; the first origin stays."""
        store.put_samples({ONE.signature: (ONE, OTHER)})
        store.put_samples({ONE.signature: (ONE, ONE)})
        assert store.samples() == {ONE.signature: OTHER.signature}
        assert set(store.sequences()) == {ONE.signature, OTHER.signature}

    @given(
        rounds=st.lists(st.lists(time_us, min_size=1, max_size=5), min_size=1, max_size=4),
        references=st.lists(time_us, max_size=4),
        overhead_us=st.just(0.0) | time_us,
        flags=st.tuples(st.booleans(), st.booleans()),
        circumstances=st.dictionaries(st.text(), json_values, max_size=4),
    )
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_measurements(
        self,
        store: Store,
        rounds: list[list[float]],
        references: list[float],
        overhead_us: float,
        flags: tuple[bool, bool],
        circumstances: dict[str, object],
    ) -> None:
        """Every raw time comes back to the last bit, with all that was said about it."""
        if store.url.startswith("postgresql"):
            circumstances = {}  # its JSON knows neither every character nor every number of ours
        measurement = Measurement(
            signature=ONE.signature,
            rounds_us=tuple(map(tuple, rounds)),
            reference_us=tuple(references),
            stable=flags[0],
            overhead_us=overhead_us,
            data_dependent=flags[1],
            circumstances=circumstances,
            measured_at="2026-01-01T00:00:00.000+00:00",
        )
        repeats = len(list(store.measurements("fake-1")))
        store.put_measurement("fake-1", measurement, ONE)
        assert list(store.measurements("fake-1"))[repeats:] == [measurement]


class TestMeasurements:
    """Numbering, and what counts."""

    def test_the_median_of_all_measurements_counts(self, store: Store) -> None:
        """They come back in the order in which they were put, the first ones alone where those are asked for."""
        for latency_us in (5.0, 3.0, 4.0):
            store.put_measurement("fake-1", measured(ONE, [latency_us]), ONE)
        store.put_measurement("fake-1", measured(OTHER, [7.0]), OTHER)
        assert store.latencies_us("fake-1") == {ONE.signature: 4.0, OTHER.signature: 7.0}
        assert {s: timing.latency_us for s, timing in store.timings("fake-1").items()} == store.latencies_us("fake-1")
        assert store.timings("fake-1", [ONE.signature])[ONE.signature].interval_us == (3.0, 5.0)
        assert store.latencies_us("fake-1", [OTHER.signature, "unknown"]) == {OTHER.signature: 7.0}
        assert [m.latency_us for m in store.measurements("fake-1", [ONE.signature])] == [5.0, 3.0, 4.0]
        assert [m.latency_us for m in store.measurements("fake-1", [ONE.signature], repeats=False)] == [5.0]
        assert store.repeated("fake-1") == {ONE.signature}

    def test_the_latency_of_a_layer_is_kept_without_its_call(self, store: Store) -> None:
        """What is looked up by signature is what the measurement says, not what the clock said."""
        measurement = measured(ONE, [12.0, 13.0, 14.0], overhead_us=3.0)
        store.put_measurement("fake-1", measurement, ONE)
        assert store.latencies_us("fake-1") == {ONE.signature: measurement.latency_us} == {ONE.signature: 10.0}

    def test_systems_do_not_mix(self, store: Store) -> None:
        """The same signature on two systems is two first measurements."""
        store.put_system(fake_system("fake-2"))
        store.put_measurement("fake-1", measured(ONE, [5.0]), ONE)
        store.put_measurement("fake-2", measured(ONE, [6.0]))
        assert (store.latencies_us("fake-1"), store.latencies_us("fake-2")) == (
            {ONE.signature: 5.0},
            {ONE.signature: 6.0},
        )
        assert store.repeated("fake-1") == store.repeated("fake-2") == set()
        assert store.latencies_us("fake-3") == {}

    def test_a_measurement_of_nothing_that_is_stored_is_an_error(self, store: Store) -> None:
        """Neither a system nor a sequence is made up for it."""
        with pytest.raises(StoreError, match="store the system and the sequence"):
            store.put_measurement("fake-1", measured(ONE))
        with pytest.raises(StoreError, match="store the system and the sequence"):
            store.put_measurement("fake-2", measured(ONE), ONE)
        assert store.sequences() == {}

    def test_what_another_machine_measured_is_added_once(self, store: Store) -> None:
        """A record that is here already is known by its time of measurement and its raw times."""
        records = [(ONE, measured(ONE, [5.0])), (ONE, measured(ONE, [6.0])), (OTHER, measured(OTHER, [5.0]))]
        system = fake_system("far-1")
        assert store.put_results(results(system, records[:2])) == Added(2, 0)
        assert store.put_results(results(system, records)) == Added(1, 2)
        assert store.put_results(results(system, records)) == Added(0, 3)
        assert store.system("far-1") == system
        assert [m.latency_us for m in store.measurements("far-1", [ONE.signature])] == [5.0, 6.0]

    def test_what_is_known_of_a_system_stays(self, store: Store) -> None:
        """Results that come in do not change what the system can do."""
        store.put_results(results(fake_system(capabilities={"layer_us": 9.0}), [(ONE, measured(ONE))]))
        assert store.system("fake-1").capabilities == {}

    def test_a_batch_is_all_or_nothing(self, store: Store) -> None:
        """A record that cannot be stored keeps the others out, and its system."""
        bad = replace(measured(OTHER), measured_at=None)  # type: ignore[arg-type]
        with pytest.raises(StoreError):
            store.put_results(results(fake_system("far-1"), [(ONE, measured(ONE)), (OTHER, bad)]))
        assert "far-1" not in store.systems()
        assert store.sequences() == {}


@contextmanager
def raw(url: str) -> Iterator[sqlite3.Connection]:
    """The file itself, without any store."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as database:
        yield database


class TestUnusable:
    """Each gets one sentence that names the store and says what to do, and nothing is changed."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        """Where the store would lie."""
        return tmp_path / "store.db"

    @staticmethod
    def refusal(url: str) -> str:
        """The sentence."""
        with pytest.raises(StoreError) as caught:
            Store(url)
        return str(caught.value)

    @pytest.mark.parametrize("content", [b"not a database", bytes(range(256)) * 64], ids=["short", "long"])
    def test_a_file_that_is_no_database(self, file: Path, content: bytes) -> None:
        """It is left alone."""
        file.write_bytes(content)
        assert "not a database" in self.refusal(f"sqlite:///{file}")
        assert file.read_bytes() == content
        assert os.listdir(file.parent) == [file.name]

    def test_the_database_of_somebody_else(self, file: Path) -> None:
        """No table of ours gets into it."""
        url = f"sqlite:///{file}"
        with raw(url) as database:
            database.execute("CREATE TABLE songs (title TEXT)")
        assert "is a database but not a costmodel store" in self.refusal(url)
        with raw(url) as database:
            assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]

    def test_an_empty_file_becomes_a_store(self, file: Path) -> None:
        """`touch` or mktemp may have made it."""
        file.touch()
        assert Store(f"sqlite:///{file}").systems() == {}

    @pytest.mark.parametrize("place", ["absent/store.db", "file/store.db", "folder"])
    def test_a_place_where_nothing_can_be_written(self, tmp_path: Path, place: str) -> None:
        """An absent folder, a file in its place, a folder in the place of the store."""
        (tmp_path / "file").touch()
        (tmp_path / "folder").mkdir()
        said = self.refusal(f"sqlite:///{tmp_path / place}")
        assert str(tmp_path / place) in said
        assert "check that its folder exists and can be written" in said

    def test_a_folder_that_is_not_ours(self, tmp_path: Path) -> None:
        """A folder without the right to write in it; to root only the kernel's own is one."""
        folder = Path("/proc/self") if os.geteuid() == 0 else tmp_path / "locked"
        if not folder.exists():
            folder.mkdir(mode=0o500)
        assert "can be written" in self.refusal(f"sqlite:///{folder / 'store.db'}")

    def test_a_full_disk(self, file: Path) -> None:
        """What was stored before is safe, and the sentence says so."""
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
        """The sentence quotes it and shows one that is."""
        said = self.refusal(url)
        assert repr(url) in said
        assert "sqlite:///results.db" in said

    @pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
    def test_a_store_that_would_keep_nothing(self, url: str) -> None:
        """A store is there to be found again."""
        assert "keeps nothing" in self.refusal(url)

    @pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
    def test_a_driver_that_is_not_installed(self, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The exact line that installs it, and no password in it."""
        monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
        with pytest.raises(MissingExtraError, match=re.escape("pip install 'costmodel[postgres]'")) as caught:
            Store(f"{scheme}://user:secret@host/name")
        assert "secret" not in str(caught.value)

    def test_a_database_that_costmodel_has_no_extra_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Any database of SQLAlchemy's will do; its driver is the user's to install."""
        monkeypatch.setitem(__import__("sys").modules, "MySQLdb", None)
        assert "needs the package MySQLdb" in self.refusal("mysql://host/name")

    def test_a_password_is_never_shown(self, tmp_path: Path) -> None:
        """Errors end up in logs."""
        for url in (
            f"sqlite://user:secret@/{tmp_path / 'absent' / 'x.db'}",
            "postgresql+psycopg://user:secret@host:p/x",
        ):
            said = self.refusal(url)
            assert "secret" not in said
            assert "***@" in said
