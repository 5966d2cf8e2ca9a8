"""Import of latencies observed elsewhere: tables, models and systems."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import hypothesis.strategies as st
import onnx
import pytest
from hypothesis import given
from onnx import ModelProto

from costmodel.errors import DataFileError, StoreError, SystemNameError, UnknownSystemError
from costmodel.ir.graph import LayerGraph
from costmodel.jobs.latency_import import import_latencies, system_observed
from costmodel.measure.tenancy import jitter
from costmodel.onnx_io.model import Model, read_model
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.store.latency_csv import ObservedLatency, read_latencies
from costmodel.store.parquet import export_results, import_results
from costmodel.store.results import ImportSummary
from costmodel.store.store import Store
from costmodel.systems.system import System
from tests.fakes import FakeRuntime, fake_sessions, fake_system, measured
from tests.reproduced import LOWERING, TEXTS, put, put_time

CAPABILITIES = {"gemm_gflops": 80.0, "memory_gbps": 10.0, "scalar_ns": 8.0, "layer_us": 1.0, "reference_us": 420.0}
SYSTEM = fake_system("production", capabilities=CAPABILITIES)
Import = Callable[..., ImportSummary]


def half_of(graph: LayerGraph) -> LayerGraph:
    """Returns the first half of a chain of layers, at least one."""
    layers = graph.layers[: max(1, len(graph.layers) // 2)]
    return replace(graph, layers=layers, outputs=(layers[-1].outputs[0],))


@pytest.fixture
def models(tmp_path: Path, parse: Callable[..., ModelProto]) -> Path:
    """A folder with two models."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name, text in TEXTS.items():
        onnx.save(parse(text), folder / f"{name}.onnx")
    return folder


@pytest.fixture
def brought(store: Store, models: Path, tmp_path: Path) -> Import:
    """Function that imports a table beside the models and returns what was new."""

    def brought(
        text: str, *, system: System = SYSTEM, runtime: FakeRuntime | None = None, **given: object
    ) -> ImportSummary:
        table = models / "latencies.csv"
        table.write_text(text)
        return import_latencies(store, system, runtime or FakeRuntime(), table, tmp_path / "cache", **given).added

    return brought


@pytest.fixture
def table(tmp_path: Path) -> Callable[[str | bytes], Path]:
    """Function that writes a table."""

    def table(content: str | bytes) -> Path:
        path = tmp_path / "table.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return table


class TestTables:
    """The format of tables."""

    def test_rows_know_their_lines(self, table: Callable[[str], Path]) -> None:
        """Columns may have any order, runs are optional, empty lines are skipped, and rows keep line numbers."""
        path = table('latency_us, runs,model\n10.5,,a\n\n7e2, 300 ,"b, the second"\n')
        assert read_latencies(path) == [ObservedLatency(2, "a", 10.5), ObservedLatency(4, "b, the second", 700.0, 300)]

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    @pytest.mark.parametrize("mark", ["", "\ufeff"])
    def test_spreadsheets_write_it_their_way(self, table: Callable[[str], Path], end: str, mark: str) -> None:
        """Byte order marks and the line ends of any platform are accepted."""
        path = table(mark + end.join(["model,latency_us", "ä/b.onnx,3", ""]))
        assert read_latencies(path) == [ObservedLatency(2, "ä/b.onnx", 3.0)]

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            ("", "is empty: its first line must be `model,latency_us`"),
            ("model,latency_us\n", "has no row"),
            ("model,latency_ms\na,1\n", "has the columns model, latency_ms: its first line must be"),
            ("model,latency_us,system\na,1,b\n", "has the columns model, latency_us, system"),
            ("model,latency_us,model\na,1,b\n", "has the columns model, latency_us, model"),
            ("model;latency_us\na;1\n", "has the columns model;latency_us"),
            ("model,latency_us\na,1\nb,2,3\n", "line 3: 3 cells for 2 columns"),
            ("model,latency_us\na,1\n,2\n", "line 3: no model is named"),
            ("model,latency_us\na,-1\n", "line 2: '-1' is no latency"),
            ("model,latency_us\na,0\n", "line 2: '0' is no latency"),
            ("model,latency_us\na,nan\n", "line 2: 'nan' is no latency"),
            ("model,latency_us\na,inf\n", "line 2: 'inf' is no latency"),
            ("model,latency_us\na,\n", "line 2: '' is no latency"),
            ("model,latency_us\na,3 ms\n", "line 2: '3 ms' is no latency"),
            ("model,latency_us,runs\na,1,2.5\n", "line 2: '2.5' is no number of runs"),
            ("model,latency_us,runs\na,1,0\n", "line 2: '0' is no number of runs"),
            ("model,latency_us\na,1\nb,2\na,3\n", "line 4: a is in line 2 already"),
            ("model,latency_us\n\n\na,x\n", "line 4: 'x' is no latency"),
            (b"model,latency_us\n\xff\xfe,1\n", "cannot be read as CSV in UTF-8"),
        ],
    )
    def test_what_is_wrong_is_said_with_its_line(
        self, table: Callable[[str | bytes], Path], content: str | bytes, sentence: str
    ) -> None:
        """An error names file, line and what to do."""
        path = table(content)
        with pytest.raises(DataFileError) as raised:
            read_latencies(path)
        assert str(raised.value).startswith(str(path))
        assert sentence in str(raised.value)
        assert "\n" not in str(raised.value)

    @given(
        content=st.binary(max_size=60) | st.text(alphabet='model,latency_us\n\r\0"1.e-', max_size=60).map(str.encode)
    )
    def test_anything_else_is_one_of_our_errors(self, tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
        """Any file gives valid rows or a CostModelError."""
        path = tmp_path_factory.getbasetemp() / "any.csv"
        path.write_bytes(content)
        try:
            rows = read_latencies(path)
        except DataFileError:
            return
        assert all(row.model and row.latency_us > 0 for row in rows)

    def test_a_table_that_is_not_there(self, tmp_path: Path) -> None:
        """A missing table, or a folder, is a CostModelError."""
        with pytest.raises(DataFileError, match="does not exist"):
            read_latencies(tmp_path / "no.csv")
        with pytest.raises(DataFileError, match="cannot be read"):
            read_latencies(tmp_path)


class TestImport:
    """The records that an import adds."""

    def test_files_beside_the_table(self, store: Store, brought: Import) -> None:
        """Models are lowered and stored with their family, and latencies are marked as observed."""
        added = brought("model,latency_us,runs\ndeep.onnx,41,100\nwide.onnx,36,\n")
        assert (added.measurements, added.known, added.models) == (2, 0, {"deep", "wide"})
        stored = {model.name: model for model in store.models()}
        assert {name: (model.family, model.lowering) for name, model in stored.items()} == {
            "deep": ("deep", LOWERING), "wide": ("wide", LOWERING),
        }  # fmt: skip
        assert [len(stored[name].segments) for name in ("deep", "wide")] == [3, 3]
        (measurement,) = store.measurements("production", [stored["deep"].whole])
        assert (measurement.latency_us, measurement.observed) == (41.0, True)
        assert measurement.environment == {"source": "observed", "runs": 100}
        assert store.systems() == {"production": SYSTEM}
        assert stored["deep"].whole in store.sequences()

    def test_a_folder_names_them(self, brought: Import, models: Path) -> None:
        """Models in a folder are named with or without the file extension."""
        assert brought("model,latency_us\ndeep,41\nwide.onnx,36\n", models=str(models)).models == {"deep", "wide"}

    def test_what_the_store_knows_is_not_lowered(
        self, store: Store, brought: Import, parse: Callable[..., ModelProto]
    ) -> None:
        """A model that the store has is found by name and keeps its family."""
        put(store, "known", FakeRuntime().lower(read_model(parse(TEXTS["deep"])), "all"))
        runtime = FakeRuntime()
        assert brought("model,latency_us\nknown,41\n", runtime=runtime) == ImportSummary(1, 0)
        assert runtime.lowered == []

    def test_models_of_one_name_in_two_folders_are_two(self, brought: Import, models: Path, store: Store) -> None:
        """Files are named by their path relative to the table."""
        for folder, name in (("a", "deep"), ("b", "wide")):
            (models / folder).mkdir()
            (models / f"{name}.onnx").rename(models / folder / "model.onnx")
        brought("model,latency_us\na/model.onnx,41\nb/model.onnx,36\n")
        assert {model.name for model in store.models()} == {"a/model", "b/model"}

    def test_again_adds_nothing(self, brought: Import, store: Store) -> None:
        """A second import of the table adds nothing; a new latency is a new observation."""
        text = "model,latency_us\ndeep.onnx,41\nwide.onnx,36\n"
        brought(text)
        assert brought(text) == ImportSummary(0, 2)
        assert brought(text.replace("41", "43")) == ImportSummary(1, 1)
        assert sorted(store.latencies_us("production").values()) == [36.0, 42.0]

    def test_what_was_measured_stays(self, brought: Import, store: Store) -> None:
        """A production latency does not change the measured latency of the same model."""
        brought("model,latency_us\ndeep.onnx,41\n", system=replace(SYSTEM, name="other"))
        whole = store.sequences([store.models()[0].whole])[store.models()[0].whole]
        store.put_system(replace(SYSTEM, name="fake-1"))
        put_time(store, whole, 30.0)
        assert brought("model,latency_us\ndeep.onnx,41\n", system=replace(SYSTEM, name="fake-1")) == ImportSummary(0, 1)
        assert list(store.latencies_us("fake-1").values()) == [30.0]

    @pytest.mark.parametrize(
        ("rows", "sentence"),
        [
            ("deep.onnx,41\nnowhere,3\n", "line 3: nowhere is neither a model in the store"),
            ("deep.onnx,41\nbroken.onnx,3\n", "line 3: .*broken"),
            ("deep.onnx,41\nwide.onnx,0\n", "line 3: '0'"),
            (f"deep.onnx,41\n{'x' * 5000},3\n", "line 3: xxx"),
        ],
    )
    def test_all_or_nothing(self, brought: Import, store: Store, models: Path, rows: str, sentence: str) -> None:
        """With one bad row, no row is stored."""
        (models / "broken.onnx").write_bytes(b"not ONNX")
        with pytest.raises(DataFileError, match=sentence):
            brought(f"model,latency_us\n{rows}")
        assert (store.systems(), store.models(), store.sequences()) == ({}, [], {})

    def test_another_model_of_that_name_is_an_error(self, brought: Import, store: Store, models: Path) -> None:
        """A name that the store uses for other layers is an error, and nothing is imported."""
        brought("model,latency_us\ndeep.onnx,41\n")
        (models / "deep.onnx").write_bytes((models / "wide.onnx").read_bytes())
        with pytest.raises(StoreError, match="the model deep is here already"):
            brought("model,latency_us\ndeep.onnx,41\n", models=str(models))
        assert len(store.models()) == 1

    def test_operators_put_together_are_no_model(
        self, brought: Import, store: Store, parse: Callable[..., ModelProto]
    ) -> None:
        """Models without a family are refused."""
        graph = FakeRuntime().lower(read_model(parse(TEXTS["deep"])), "all")
        store.put_model(decompose("operators", graph), whole_model(graph), digest="", family="", lowering=LOWERING)
        with pytest.raises(DataFileError, match="line 2: operators is a collection of operators, not a model"):
            brought("model,latency_us\noperators,41\n")

    def test_several_lowerings_to_different_layers_are_ambiguous(
        self, brought: Import, store: Store, parse: Callable[..., ModelProto]
    ) -> None:
        """A stored name with several different lowerings is refused; the file is needed."""
        for lowering, text in (("one", "deep"), ("other", "wide")):
            put(store, "known", FakeRuntime().lower(read_model(parse(TEXTS[text])), "all"), lowering=lowering)
        with pytest.raises(DataFileError, match=r"line 2: known was lowered in several ways here.*give its file"):
            brought("model,latency_us\nknown,41\n")

    def test_a_host_that_was_never_measured_is_probed_first(self, brought: Import, store: Store) -> None:
        """For this host, asserted, capabilities are measured first and the records are marked."""
        runtime = FakeRuntime()
        brought(
            "model,latency_us\ndeep.onnx,41\n",
            system=fake_system("production", runtime=runtime, asserted=True),
            runtime=runtime,
            bench=fake_sessions(runtime),
        )
        found = store.system("production")
        assert found.asserted
        assert "gemm_gflops" in found.capabilities

    def test_observations_travel(self, brought: Import, store: Store, tmp_path: Path) -> None:
        """Observed latencies are exported with the models."""
        brought("model,latency_us,runs\ndeep.onnx,41,100\n")
        export_results(store, "production", tmp_path / "out.parquet", with_models=True)
        other = Store(f"sqlite:///{tmp_path / 'other.db'}")
        import_results(other, tmp_path / "out.parquet")
        assert list(other.measurements("production")) == list(store.measurements("production"))

    def test_one_number_says_nothing_of_jitter(self) -> None:
        """An observed latency gives no jitter."""
        observed = ObservedLatency(2, "a", 10.0, 5).measurement("s", "2026-01-01")
        noisy = replace(observed, pass_times_us=((10.0, 10.0, 30.0),), environment={})
        assert jitter([observed]) == {}
        assert jitter([observed, observed, noisy]) == jitter([noisy])

    @pytest.mark.parametrize(("latency", "unit"), [("0.041", "not milliseconds"), ("41000", "not nanoseconds")])
    def test_another_unit_is_refused(self, brought: Import, store: Store, latency: str, unit: str) -> None:
        """A latency that the hardware cannot have is refused with its line, and nothing is stored."""
        with pytest.raises(DataFileError, match=f"line 3: wide.onnx cannot take {latency} microseconds .* {unit}"):
            brought(f"model,latency_us\ndeep.onnx,41\nwide.onnx,{latency}\n")
        assert store.systems() == {}

    def test_one_graph_twice_is_said(self, store: Store, models: Path, tmp_path: Path) -> None:
        """Two names of one graph are said with their lines, and the median of their latencies is used."""
        (models / "copy.onnx").write_bytes((models / "deep.onnx").read_bytes())
        table = models / "latencies.csv"
        table.write_text("model,latency_us\ndeep.onnx,40\nwide.onnx,36\ncopy.onnx,44\n")
        done = import_latencies(store, SYSTEM, FakeRuntime(), table, tmp_path / "cache")
        (sentence,) = done.warnings
        assert sentence.startswith("line 4: copy.onnx has the same layers as deep.onnx in line 2")
        assert sorted(store.latencies_us("production").values()) == [36.0, 42.0]

    def test_a_table_replaces_an_earlier_one(self, brought: Import, store: Store) -> None:
        """With `replaces`, only the new latencies are left, and what was measured stays."""
        brought("model,latency_us\ndeep.onnx,41\nwide.onnx,36\n")
        deep, wide = (next(m.whole for m in store.models() if m.name == name) for name in ("deep", "wide"))
        whole = store.sequences([wide])[wide]
        store.put_measurement("production", measured(whole, [30.0]))
        added = brought("model,latency_us\ndeep.onnx,43\n", replaces=True)
        assert (added.measurements, added.removed) == (1, 2)
        assert store.latencies_us("production") == {deep: 43.0, wide: 30.0}
        assert [m.observed for m in store.measurements("production", repeats=False)].count(False) == 1
        assert brought("model,latency_us\ndeep.onnx,44\n", replaces=True).removed == 1
        assert store.latencies_us("production")[deep] == 44.0


class TestLevels:
    """The optimisation level behind a table, which the table does not say."""

    @dataclass
    class Fusing(FakeRuntime):
        """A runtime that, at level all, executes no Relu, as if it were fused into another layer."""

        def lower(self, model: Model, level: str) -> LayerGraph:
            """Returns the layers of the model; at level all, the first half of them."""
            graph = super().lower(model, level)
            return half_of(graph) if level == "all" else graph

    @pytest.fixture
    def space(self, models: Path, parse: Callable[..., ModelProto]) -> Path:
        """A table of chains of many lengths and sizes, whose latencies depend on all of their layers."""
        rows = ["model,latency_us"]
        for number in range(16):
            count, size = 2 + 3 * (number % 4), 20_000 + 7_000 * number
            kinds = ["Relu"] * (count - number % 2) + ["Tanh"] * (1 + number % 5)
            names = ["x", *(f"v{place}" for place in range(len(kinds) - 1)), "y"]
            nodes = " ".join(f"{names[i + 1]} = {kind}({names[i]})" for i, kind in enumerate(kinds))
            onnx.save(parse(f"(float[{size}] x) => (float[{size}] y) {{ {nodes} }}"), models / f"chain{number}.onnx")
            rows.append(f"chain{number}.onnx,{sum({'Relu': 1.0, 'Tanh': 9.0}[k] for k in kinds) * size / 500:g}")
        path = models / "latencies.csv"
        path.write_text("\n".join(rows) + "\n")
        return path

    def test_the_level_that_predicts_best_is_chosen(self, store: Store, space: Path, tmp_path: Path) -> None:
        """Of several levels, that is taken and said whose layers explain held-out latencies."""
        done = import_latencies(store, SYSTEM, self.Fusing(), space, tmp_path / "cache", levels=("all", "none"))
        assert store.system("production").settings.level == "none"
        (sentence,) = done.warnings
        assert re.search(r"chosen by the error on held-out rows: none \(all [\d.]+%, none [\d.]+%\)", sentence)

    def test_a_level_that_is_given_is_taken(self, store: Store, space: Path, tmp_path: Path) -> None:
        """A single level is not compared with others."""
        done = import_latencies(store, SYSTEM, self.Fusing(), space, tmp_path / "cache", levels=("all",))
        assert (store.system("production").settings.level, done.warnings) == ("all", ())

    def test_levels_of_the_same_layers_need_no_choice(self, store: Store, space: Path, tmp_path: Path) -> None:
        """Where all levels give the same layers, the first is taken, and nothing is said."""
        done = import_latencies(store, SYSTEM, FakeRuntime(), space, tmp_path / "cache", levels=("all", "none"))
        assert (store.system("production").settings.level, done.warnings) == ("all", ())

    def test_few_rows_cannot_tell(self, brought: Import, store: Store, models: Path, tmp_path: Path) -> None:
        """With fewer rows than a comparison needs, the first level is assumed, and that is said."""
        table = models / "latencies.csv"
        table.write_text("model,latency_us\ndeep.onnx,41\n")
        done = import_latencies(store, SYSTEM, self.Fusing(), table, tmp_path / "cache", levels=("all", "none"))
        (sentence,) = done.warnings
        assert "all is assumed: give it with --level" in sentence


class TestSystems:
    """The system that the latencies belong to."""

    def test_a_known_one_is_used(self, store: Store) -> None:
        """A stored system is used unchanged."""
        store.put_system(SYSTEM)
        assert system_observed(store, "production") == SYSTEM
        assert system_observed(store, "production", like="production") == SYSTEM

    def test_one_like_another_has_its_hardware_and_is_marked(self, store: Store) -> None:
        """A system `like` another gets its hardware and is marked as asserted."""
        store.put_system(SYSTEM)
        assert system_observed(store, "new", like="production") == replace(SYSTEM, name="new", asserted=True)

    def test_level_and_version_can_be_given(self, store: Store) -> None:
        """A new system has the level and runtime version that are given; a known one keeps what it was stored with."""
        store.put_system(SYSTEM)
        new = system_observed(store, "new", like="production", level="none", runtime_version="1.17.0")
        assert (new.settings.level, new.runtime_version, new.host) == ("none", "1.17.0", SYSTEM.host)
        store.put_system(new)
        assert system_observed(store, "new", like="production", level="none") == new
        with pytest.raises(DataFileError, match=r"new is known already, with level none .* --replace"):
            system_observed(store, "new", level="all")
        assert system_observed(store, "new", level="all", replaces=True).settings.level == "all"

    def test_this_host_is_vouched_for(self, store: Store) -> None:
        """The capabilities of this host, asserted, are measured when something is stored."""
        here = fake_system("new", asserted=True)
        assert system_observed(store, "new", here=here) == here

    def test_any_other_needs_a_word(self, store: Store) -> None:
        """Any other system is refused with the option that is needed."""
        with pytest.raises(UnknownSystemError, match=r"new is not known here: .* --like, or pass --assert-system"):
            system_observed(store, "new")
        with pytest.raises(UnknownSystemError, match="nothing is measured for the system missing"):
            system_observed(store, "new", like="missing")
        with pytest.raises(SystemNameError):
            system_observed(store, "a b", like="missing")

    def test_a_known_one_is_not_like_another(self, store: Store) -> None:
        """A stored system given with `like` is refused, because its facts are known."""
        store.put_system(SYSTEM)
        store.put_system(replace(fake_system("other", host=None), capabilities={"layer_us": 1.0}))
        with pytest.raises(DataFileError, match="is known already, and is not like other"):
            system_observed(store, "production", like="other")

    def test_hardware_must_be_known(self, store: Store) -> None:
        """A system without capabilities is refused, because features need them."""
        store.put_system(fake_system("bare"))
        with pytest.raises(UnknownSystemError, match="what its hardware can do"):
            system_observed(store, "new", like="bare")
