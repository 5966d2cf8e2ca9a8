"""Export and import of models as Parquet, for training, evaluation and reproduction on another machine."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import ModelProto
from pyarrow import parquet

from costmodel.errors import DataFileError, StoreError, SystemMismatchError
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.reproduction.collect import collect_corpus
from costmodel.jobs.reproduction.construction import constructions
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.store.parquet import collect_results, export_results, import_results, read_models, read_system
from costmodel.store.results import ImportSummary
from costmodel.store.store import Store
from tests.fakes import HOST, FakeRuntime, elementwise, fake_system, measured
from tests.reproduced import CALL_US, FAMILIES, LAYERS_US, LOWERING, TEXTS, WHOLE_US, Graphs, put, put_time

Stores = Callable[[], Store]
Rows = list[dict[str, Any]]
LIKE_RELU, LIKE_EXP = elementwise(5, 5), elementwise(6, 6, op_type="Exp")


@pytest.fixture(scope="session")
def layer_graphs(parse: Callable[..., ModelProto]) -> Graphs:
    """The layer graphs of two models."""
    return {name: FakeRuntime().lower(read_model(parse(text)), "all") for name, text in TEXTS.items()}


@pytest.fixture
def store(new_store: Stores, layer_graphs: Graphs) -> Store:
    """A store with both models measured whole, in layers and in pairs, and samples of two layers, one measured."""
    store = new_store()
    store.put_system(fake_system(capabilities={"layer_us": 1.5}))
    sequences: dict[str, LayerSequence] = {}
    for name, graph in layer_graphs.items():
        for granularity in (1, 2):
            put(store, name, graph, granularity)
            sequences |= decompose(name, graph, granularity).unique
        put_time(store, whole_model(graph), WHOLE_US[name])
    for sequence in sequences.values():
        put_time(store, sequence, LAYERS_US[sequence.kind] + CALL_US, CALL_US)
    put_time(store, whole_model(layer_graphs["deep"]), WHOLE_US["deep"] + 2)  # measured a second time
    kinds = {sequence.kind: sequence for sequence in store.sequences().values()}
    store.put_samples({
        LIKE_RELU.signature: (LIKE_RELU, kinds["Relu"]), LIKE_EXP.signature: (LIKE_EXP, kinds["Exp"]),
    })  # fmt: skip
    put_time(store, LIKE_RELU, 9.0, CALL_US)
    return store


@pytest.fixture
def file(store: Store, tmp_path: Path) -> Path:
    """An export of that store."""
    path = tmp_path / "results.parquet"
    export_results(store, "fake-1", path, with_models=True)
    return path


def rewrite(path: Path, change: Callable[[Rows], object]) -> None:
    """Change the rows of a file."""
    table = parquet.read_table(path)
    rows = table.to_pylist()
    change(rows)
    parquet.write_table(pyarrow.Table.from_pylist(rows).replace_schema_metadata(table.schema.metadata), path)


def of_kind(rows: Rows, record: str) -> Rows:
    """Returns the rows of one kind of record."""
    return [row for row in rows if row["record"] == record]


def contents(store: Store) -> tuple[object, ...]:
    """Returns all content of a store in comparable form."""
    return (
        store.systems(),
        store.models(),
        store.samples(),
        {signature: sequence.text for signature, sequence in store.sequences().items()},
        {name: list(store.measurements(name)) for name in store.systems()},
    )


def owners(store: Store, signatures: set[str]) -> dict[str, set[tuple[str, str, str]]]:
    """Returns the models in which each signature occurs, at any granularity."""
    return {
        signature: {(m.name, m.lowering, m.family) for m in store.models() if signature in m.signatures}
        for signature in signatures
    }


class TestThereAndBack:
    """An import with models is equivalent to measuring them."""

    def test_everything_arrives(self, store: Store, file: Path, new_store: Stores) -> None:
        """System, models, samples, sequences and all measurements are imported."""
        other = new_store()
        results, added = import_results(other, file)
        assert contents(other) == contents(store)
        assert results.system == fake_system(capabilities={"layer_us": 1.5})
        assert added == ImportSummary(len(results.measurements), 0, frozenset({"deep", "wide"}))
        assert other.repeated_signatures("fake-1") == store.repeated_signatures("fake-1") != set()

    @given(data=st.data())
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
    def test_whatever_was_measured_arrives(
        self,
        new_store: Stores,
        tmp_path: Path,
        graphs: Callable[..., st.SearchStrategy[LayerGraph]],
        data: st.DataObject,
    ) -> None:
        """Import is the inverse of export for any models, cuts and measured subsets."""
        here, there = new_store(), new_store()
        here.put_system(fake_system())
        second = 0
        for name in data.draw(st.lists(st.sampled_from("abc"), max_size=3, unique=True)):
            graph = data.draw(graphs(6))
            whole = whole_model(graph)
            segments: dict[str, LayerSequence] = {}
            for granularity in data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=2, unique=True)):
                put(here, name, graph, granularity, lowering=data.draw(st.sampled_from(("x", "y"))))
                segments |= decompose(name, graph, granularity).unique
            samples = [elementwise(9, size) for size in data.draw(st.lists(st.integers(1, 5), max_size=2))]
            here.put_samples({sample.signature: (sample, segments[min(segments)]) for sample in samples})
            known = {sequence.signature: sequence for sequence in (*segments.values(), *samples)}
            timed = [known[signature] for signature in data.draw(st.lists(st.sampled_from(sorted(known))))]
            for sequence in (whole, *timed):
                second += 1
                at = f"2026-01-01T00:00:{second:02d}.000+00:00"
                time_us = data.draw(st.floats(0.5, 1e9))
                here.put_measurement("fake-1", measured(sequence, [time_us], at=at, overhead_us=0.25), sequence)
        export_results(here, "fake-1", tmp_path / "out.parquet", with_models=True)
        import_results(there, tmp_path / "out.parquet")
        assert there.systems() == here.systems()
        assert list(there.measurements("fake-1")) == list(here.measurements("fake-1"))
        timed = {m.signature for m in here.measurements("fake-1")}
        assert owners(there, timed) == owners(here, timed)
        assert {s: o for s, o in there.samples().items() if s in timed} == {
            s: o for s, o in here.samples().items() if s in timed
        }
        assert set(there.models()) <= set(here.models())
        built = [constructions(store.models(), store.timings("fake-1"), "abc") for store in (here, there)]
        assert built[0] == built[1]
        export_results(there, "fake-1", tmp_path / "again.parquet", with_models=True)
        again, out = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("again", "out"))
        assert again.equals(out, check_metadata=True)

    def test_the_reproduction_is_the_same(self, store: Store, file: Path, new_store: Stores) -> None:
        """The reproduction of imported results is identical at every granularity."""
        other = new_store()
        import_results(other, file)
        ours = collect_corpus(other, "fake-1", None, "tiny", FAMILIES)
        assert ours is not None
        assert list(ours.summaries) == [1, 2]
        assert ours == collect_corpus(store, "fake-1", LOWERING, "tiny", FAMILIES)

    def test_importing_twice_adds_nothing(self, store: Store, file: Path, new_store: Stores) -> None:
        """A second import, also into the original store, adds nothing."""
        other = new_store()
        import_results(other, file)
        for target in (other, store):
            results, added = import_results(target, file)
            assert added == ImportSummary(0, len(results.measurements))
            assert contents(target) == contents(store)

    def test_what_is_new_in_a_later_export_is_added(
        self, store: Store, file: Path, new_store: Stores, layer_graphs: Graphs
    ) -> None:
        """A later export adds only new cuts and measurements."""
        other = new_store()
        import_results(other, file)
        put(store, "deep", layer_graphs["deep"], 3)
        store.put_measurement("fake-1", measured(LIKE_RELU, [8.0], at="2026-01-02T00:00:00.000+00:00"))
        export_results(store, "fake-1", file, with_models=True)
        count = len(list(store.measurements("fake-1")))
        assert import_results(other, file)[1] == ImportSummary(1, count - 1, frozenset({"deep"}))
        assert contents(other) == contents(store)

    def test_models_join_a_file_without_them(self, store: Store, file: Path, tmp_path: Path, new_store: Stores) -> None:
        """After an import without models, one with models adds only what is missing."""
        other = new_store()
        export_results(store, "fake-1", tmp_path / "plain.parquet")
        _, layers = import_results(other, tmp_path / "plain.parquet")
        _, added = import_results(other, file)
        assert (added.known, added.models) == (layers.measurements, {"deep", "wide"})
        assert contents(other) == contents(store)

    def test_another_name_may_be_given(self, store: Store, file: Path, new_store: Stores) -> None:
        """The system may be imported under another name."""
        other = new_store()
        import_results(other, file, "c5.xlarge")
        assert list(other.systems()) == ["c5.xlarge"]
        assert list(other.measurements("c5.xlarge")) == list(store.measurements("fake-1"))
        assert other.models() == store.models()

    def test_a_store_without_models_has_none_to_send(self, new_store: Stores, tmp_path: Path) -> None:
        """Measurements of a benchmark suite are exported without models."""
        here, there = new_store(), new_store()
        here.put_system(fake_system())
        put_time(here, LIKE_RELU, 9.0)
        assert export_results(here, "fake-1", tmp_path / "x.parquet", with_models=True).models == ()
        assert import_results(there, tmp_path / "x.parquet")[1] == ImportSummary(1, 0)
        assert contents(there) == contents(here)

    def test_two_systems_share_their_models(self, store: Store, file: Path, new_store: Stores, tmp_path: Path) -> None:
        """Exports of two systems with the same models can both be imported."""
        second, both = new_store(), new_store()
        import_results(second, file, "fake-2")
        export_results(second, "fake-2", tmp_path / "2.parquet", with_models=True)
        assert import_results(both, file)[1].models == {"deep", "wide"}
        assert import_results(both, tmp_path / "2.parquet")[1].models == frozenset()
        assert list(both.systems()) == ["fake-1", "fake-2"]
        assert both.models() == store.models()
        for name in ("fake-1", "fake-2"):
            assert list(both.measurements(name)) == list(store.measurements("fake-1"))


class TestWhatTravels:
    """An export has the records of its system only, and models only on request."""

    def test_without_models_the_file_knows_none(
        self, store: Store, tmp_path: Path, new_store: Stores, layer_graphs: Graphs
    ) -> None:
        """Without models, the file has no names, families, wholes, decompositions or origins of samples."""
        path, open_path = tmp_path / "plain.parquet", tmp_path / "open.parquet"
        named = {"deep": "kept_private", "wide": "kept_private_too"}
        for name, secret in named.items():
            layers = tuple(replace(layer, name=f"{secret}/{layer.name}") for layer in layer_graphs[name].layers)
            put(store, secret, replace(layer_graphs[name], layers=layers))
        export_results(store, "fake-1", path)
        table = parquet.read_table(path)
        wholes = {whole_model(graph).signature for graph in layer_graphs.values()}
        assert len(table) == len([m for m in store.measurements("fake-1") if m.signature not in wholes])
        parquet.write_table(table, open_path, compression="none", use_dictionary=False)
        written = path.read_bytes() + open_path.read_bytes() + json.dumps(table.to_pylist()).encode()
        assert b"Relu" in written
        for secret in ("kept_private", *FAMILIES.values(), *wholes, LOWERING, "pieces", "origin", "digest"):
            assert secret.encode() not in written
        other = new_store()
        import_results(other, path)
        assert (other.models(), other.samples()) == ([], {})

    def test_a_file_without_models_comes_from_who_imported_them(
        self, store: Store, file: Path, new_store: Stores
    ) -> None:
        """Imported whole models are recognised, and are not exported without models."""
        other = new_store()
        import_results(other, file)
        assert collect_results(other, "fake-1") == collect_results(store, "fake-1")

    def test_models_that_have_nothing_to_do_with_the_system_stay(
        self, store: Store, layer_graphs: Graphs, parse: Callable[..., ModelProto]
    ) -> None:
        """Models and samples are exported only if a layer of theirs is measured on the system."""
        graph = FakeRuntime().lower(read_model(parse("(float[7,7] x) => (float[7,7] y) { y = Relu(x) }")), "all")
        put(store, "apart", graph)
        sample = elementwise(8, 8)
        store.put_samples({sample.signature: (sample, whole_model(graph))})
        results = collect_results(store, "fake-1", with_models=True)
        assert {model.name for model in results.models} == {"deep", "wide"}
        assert sample.signature not in results.samples.keys() | results.sequences.keys()
        put(store, "deep", layer_graphs["deep"], lowering="fake-1.0-none-simulated")
        put_time(store, whole_model(graph), 3.0)
        results = collect_results(store, "fake-1", with_models=True)
        assert [(m.name, m.granularity) for m in results.models if m.lowering != LOWERING] == [("deep", 1)]
        assert {model.name for model in results.models} == {"apart", "deep", "wide"}
        assert results.samples[sample.signature] == whole_model(graph).signature

    def test_a_cut_of_which_nothing_is_measured_stays(self, layer_graphs: Graphs, new_store: Stores) -> None:
        """A cut is exported if it has a measured sequence of its own or all its sequences are measured."""
        store = new_store()
        store.put_system(fake_system())
        for name, graph in layer_graphs.items():
            for granularity in (1, 2):
                put(store, name, graph, granularity)
        by_kind = {sequence.kind: sequence for sequence in store.sequences().values()}

        def after(*kinds: str) -> list[tuple[str, int]]:
            for kind in kinds:
                put_time(store, by_kind[kind], 1.0)
            return [(m.name, m.granularity) for m in collect_results(store, "fake-1", with_models=True).models]

        assert after() == []
        assert after("Exp") == [("wide", 1)]
        assert after("Relu", "Tanh") == [("deep", 1), ("wide", 1)]
        assert after("Relu+Relu") == [("deep", 1), ("deep", 2), ("wide", 1)]
        assert after("Add") == [("deep", 1), ("deep", 2), ("wide", 1), ("wide", 2)]

    def test_one_row_for_each_record(self, store: Store, file: Path) -> None:
        """The file has one row per record of four kinds, readable with pandas."""
        rows = parquet.read_table(file).to_pylist()
        assert len(of_kind(rows, "measurement")) == len(list(store.measurements("fake-1")))
        assert [row["signature"] for row in of_kind(rows, "sequence")] == [LIKE_EXP.signature]
        assert [(row["model"], row["granularity"]) for row in of_kind(rows, "model")] == [
            ("deep", 1), ("deep", 2), ("wide", 1), ("wide", 2),
        ]  # fmt: skip
        assert {row["signature"] for row in of_kind(rows, "sample")} == {LIKE_EXP.signature, LIKE_RELU.signature}
        assert len(rows) == sum(len(of_kind(rows, r)) for r in ("measurement", "sequence", "model", "sample"))


class TestConflicts:
    """Conflicts between imported and stored records."""

    def test_a_model_of_that_name_is_here_and_another(
        self, file: Path, new_store: Stores, layer_graphs: Graphs
    ) -> None:
        """A stored model of that name with other layers is an error that says what to do; nothing is imported."""
        other = new_store()
        put(other, "deep", layer_graphs["wide"])
        before = contents(other)
        with pytest.raises(StoreError, match=r"the model deep is here already .* nothing was imported: .* --store"):
            import_results(other, file)
        assert contents(other) == before

    def test_what_is_here_of_a_model_stays(self, file: Path, new_store: Stores, layer_graphs: Graphs) -> None:
        """If the layers are equal, the stored record, such as its family, is kept."""
        other = new_store()
        other.put_model(
            decompose("deep", layer_graphs["deep"]), whole_model(layer_graphs["deep"]),
            digest="other", family="ours", lowering=LOWERING,
        )  # fmt: skip
        mine = other.models()[0]
        assert import_results(other, file)[1].models == {"deep", "wide"}
        assert other.models()[0] == mine
        assert [(m.name, m.granularity) for m in other.models()] == [("deep", 1), ("deep", 2), ("wide", 1), ("wide", 2)]

    def test_a_name_that_belongs_to_another_machine_here(self, file: Path, new_store: Stores) -> None:
        """If the system's name is refused, no models are imported either."""
        store = new_store()
        store.put_system(fake_system(host=replace(HOST, model_name="Imaginary 2")))
        before = contents(store)
        with pytest.raises(SystemMismatchError, match="Imaginary"):
            import_results(store, file)
        assert contents(store) == before


class TestUnsound:
    """One invalid record rejects the whole file, with the row in the error."""

    @staticmethod
    def refused(store: Store, file: Path, pattern: str) -> None:
        """Asserts that the import raises and the store is unchanged."""
        with pytest.raises(DataFileError, match=f"{pattern}.*nothing was imported"):
            import_results(store, file)
        assert contents(store) == ({}, [], {}, {}, {})

    @pytest.mark.parametrize(
        "change",
        [
            {"model": None}, {"family": None}, {"lowering": None}, {"digest": None}, {"granularity": None},
            {"granularity": 0}, {"granularity": -1}, {"signature": None}, {"pieces": None}, {"pieces": []},
        ],
        ids=str,
    )  # fmt: skip
    def test_a_model_with_a_hole(self, file: Path, new_store: Stores, change: dict[str, object]) -> None:
        """A missing value of a model is refused."""
        rewrite(file, lambda rows: of_kind(rows, "model")[1].update(change))
        self.refused(new_store(), file, r"row \d+ is incomplete")

    @pytest.mark.parametrize("granularity", ["1", 1.5])
    def test_a_granularity_that_is_no_whole_number(self, file: Path, new_store: Stores, granularity: object) -> None:
        """A granularity that is no positive integer is refused."""

        def spoil(rows: Rows) -> None:
            for row in rows:
                row["granularity"] = granularity

        rewrite(file, spoil)
        self.refused(new_store(), file, r"row \d+ is incomplete .*no granularity")

    @pytest.mark.parametrize(
        "change",
        [
            {"needs": [1]}, {"needs": [2]}, {"needs": [-1]}, {"needs": [99]}, {"needs": None}, {"needs": [None]},
            {"layers": []}, {"layers": None}, {"layers": [None]}, {"signature": None},
        ],
        ids=str,
    )  # fmt: skip
    def test_an_impossible_segment(self, file: Path, new_store: Stores, change: dict[str, object]) -> None:
        """A segment that depends on later ones, or lacks layer names, is refused."""
        rewrite(file, lambda rows: of_kind(rows, "model")[0]["pieces"][1].update(change))
        self.refused(new_store(), file, r"row \d+ is incomplete")

    @pytest.mark.parametrize("record", ["sequence", "measurement"])
    def test_a_sequence_that_is_referred_to_and_not_there(self, file: Path, new_store: Stores, record: str) -> None:
        """A reference to a sequence outside the file is refused, even if the store has the sequence."""

        def drop(rows: Rows) -> None:
            rows[:] = [row for row in rows if row["record"] != record]

        rewrite(file, drop)
        self.refused(new_store(), file, r"row \d+ refers to a sequence that is not there")

    @pytest.mark.parametrize("column", ["signature", "origin"])
    def test_a_sample_of_nothing(self, file: Path, new_store: Stores, column: str) -> None:
        """A sample without its sequence or its origin is refused."""
        rewrite(file, lambda rows: of_kind(rows, "sample")[0].update({column: "0" * 32}))
        self.refused(new_store(), file, r"row \d+ refers to a sequence that is not there")
        rewrite(file, lambda rows: of_kind(rows, "sample")[0].update({column: None}))
        self.refused(new_store(), file, rf"row \d+ is incomplete \(no {column}\)")

    @pytest.mark.parametrize("change", [{"sequence": LIKE_RELU.text}, {"signature": LIKE_RELU.signature}])
    def test_a_signature_that_is_not_its_sequences(
        self, file: Path, new_store: Stores, change: dict[str, object]
    ) -> None:
        """Signatures of unmeasured sequences are checked too."""
        rewrite(file, lambda rows: of_kind(rows, "sequence")[0].update(change))
        self.refused(new_store(), file, r"row \d+ has a signature that is not its sequence's")

    @pytest.mark.parametrize("change", [{}, {"family": "other"}, {"granularity": 7, "signature": LIKE_RELU.signature}])
    def test_a_model_that_is_there_twice(self, file: Path, new_store: Stores, change: dict[str, object]) -> None:
        """A model that occurs twice at a granularity, or with two graphs, is refused."""
        rewrite(file, lambda rows: rows.append({**of_kind(rows, "model")[0], **change}))
        self.refused(new_store(), file, r"row \d+ has a model that an earlier row has too")

    @pytest.mark.parametrize("record", ["song", None])
    def test_a_record_of_another_kind(self, file: Path, new_store: Stores, record: str | None) -> None:
        """An unknown kind of record is refused, not skipped."""
        rewrite(file, lambda rows: rows[0].update(record=record))
        self.refused(new_store(), file, "row 1 has a record of a kind that is not known")

    def test_a_measurement_is_looked_at_as_in_any_file(self, file: Path, new_store: Stores) -> None:
        """Measurements are validated as in files without models."""
        rewrite(file, lambda rows: rows[2].update(rounds_us=[[-1.0]]))
        self.refused(new_store(), file, "row 3 has a time that is no positive number")


def test_models_are_read_without_their_measurements(store: Store, layer_graphs: Graphs, tmp_path: Path) -> None:
    """Models are read by the signature of the whole model, at granularity 1, with the layers they refer to."""
    export_results(store, "fake-1", tmp_path / "results.parquet", with_models=True)
    whole = whole_model(layer_graphs["deep"])
    found = read_models(tmp_path / "results.parquet", {whole.signature, "0" * 64})
    assert found.system == read_system(tmp_path / "results.parquet") == store.system("fake-1")
    assert found.measurements == ()
    assert [(model.name, model.granularity) for model in found.models] == [("deep", 1)]
    assert found.sequences.keys() == {whole.signature, *decompose("deep", layer_graphs["deep"], 1).unique}


def test_a_file_without_models_has_none_to_read(store: Store, layer_graphs: Graphs, tmp_path: Path) -> None:
    """Nothing is read from a file without models, nor if no model is asked for."""
    export_results(store, "fake-1", tmp_path / "layers.parquet")
    export_results(store, "fake-1", tmp_path / "models.parquet", with_models=True)
    assert read_models(tmp_path / "layers.parquet", {whole_model(layer_graphs["deep"]).signature}).models == ()
    assert read_models(tmp_path / "models.parquet", set()).models == ()
    assert read_models(tmp_path / "models.parquet", {"0" * 64}).sequences == {}
