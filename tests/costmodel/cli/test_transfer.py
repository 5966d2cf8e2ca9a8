"""`costmodel export` and `costmodel import`, and the use of imported models."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from costmodel.cli.context import Tools
from costmodel.paths import Home
from costmodel.store.parquet import export_results
from costmodel.store.store import Store
from tests.shell import Run
from tests.synthetic import MEASURED, SYSTEM

NAMED = ("--system", SYSTEM.name)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """An empty home; the tests of this file use what the first of them imports."""
    return Home(tmp_path_factory.mktemp("transfer") / "elsewhere")


@pytest.fixture
def imported(run: Run, ready: Home, elsewhere: Home, tmp_path: Path) -> Home:
    """That home after importing the measuring home's export."""
    if not elsewhere.root.exists():
        path = tmp_path / "results.parquet"
        document = run(ready, "export", path, *NAMED, "--with-models", "--json").document
        count = len(list(Store(ready.store_url).measurements(SYSTEM.name)))
        assert document == {"system": SYSTEM.name, "path": str(path), "measurements": count, "models": len(MEASURED)}
        (first,) = run(elsewhere, "import", path, "--json").document["files"]
        models = {"added": len(MEASURED), "known": 0}
        assert first == {"file": str(path), "system": SYSTEM.name, "added": count, "known": 0, "models": models}
        (again,) = run(elsewhere, "import", path, "--json").document["files"]
        models = {"added": 0, "known": len(MEASURED)}
        assert again == {"file": str(path), "system": SYSTEM.name, "added": 0, "known": count, "models": models}
    return elsewhere


def test_measurements_are_not_written_under_the_name_of_a_table(run: Run, ready: Home, tmp_path: Path) -> None:
    """A file that ends in .csv would be read as a table of latencies."""
    done = run(ready, "export", tmp_path / "results.csv", *NAMED)
    assert done.code == 2
    assert "give it the ending .parquet" in done.err
    assert not list(tmp_path.glob("results*"))


def test_people_read_what_travelled(run: Run, ready: Home, tmp_path: Path) -> None:
    """The output has a line for each kind of record; models only if there are any."""
    path = tmp_path / "results.parquet"
    exported = run(ready, "export", path, *NAMED, "--with-models").said
    assert exported.endswith(f" measurements of {SYSTEM.name} and {len(MEASURED)} models in {path}")
    home = tmp_path / "new"
    assert run(home, "import", path).said.endswith(" were here already; 6 models added, 0 were here already")
    assert "models" not in run(ready, "export", path, *NAMED).out
    assert run(home, "import", path).out.startswith(f"{SYSTEM.name}: 0 measurements added, ")
    assert "models" not in run(tmp_path / "newer", "import", path).out


def test_several_files_are_imported_in_turn(run: Run, ready: Home, tmp_path: Path) -> None:
    """Each file has its own counts; one that is not readable is named, and what came before it stays."""
    paths = [tmp_path / name for name in ("one.parquet", "other.parquet", "broken.parquet")]
    run(ready, "export", paths[0], *NAMED, "--with-models")
    run(ready, "export", paths[1], *NAMED)
    paths[2].write_text("no Parquet")
    home = tmp_path / "new"
    first, second = run(home, "import", *paths[:2], "--json").document["files"]
    assert (first["file"], second["file"]) == (str(paths[0]), str(paths[1]))
    assert first["added"] > 0 == second["added"] < second["known"]
    refused = run(tmp_path / "newer", "import", paths[0], paths[2], "--json")
    assert "broken.parquet is not a file of costmodel measurements" in refused.sentence
    assert run(tmp_path / "newer", "systems", "--json").document["systems"]


def test_a_csv_is_imported_by_itself(run: Run, tmp_path: Path) -> None:
    """A .csv beside other files is wrong usage, because options such as `--like` are about it alone."""
    assert run(tmp_path, "import", "latencies.csv", "results.parquet").code == 2


def test_evaluation_elsewhere_sees_the_same(run: Run, ready: Home, imported: Home) -> None:
    """Held-out errors of every predictor are exactly those of the measuring home."""
    there = run(imported, "evaluate", *NAMED, "--seeds", "1", "--json").document
    assert there == run(ready, "evaluate", *NAMED, "--seeds", "1", "--json").document


def test_training_elsewhere_needs_nothing_else(run: Run, imported: Home) -> None:
    """A regressor can be trained and used where the results were imported."""
    document = run(imported, "train", *NAMED, "--seeds", "1", "--no-tracking", "--json").document
    predicted = run(imported, "predict", "light_resnet50", *NAMED, "--json").document
    assert predicted["predictor"]["version"] == document["predictor"]["version"]


def test_the_reproduction_elsewhere_needs_no_corpus(run: Run, ready: Home, imported: Home, tmp_path: Path) -> None:
    """Imported models are reported without their corpus, on any host."""
    report = ("reproduce", "dlbricks", "--corpus", "light", "--no-measure", "--json", "--out")
    there = run(imported, *report, tmp_path / "there").document
    (result,) = there["results"]
    assert (result["system"], result["granularities"][0]["models"]) == (SYSTEM.name, len(MEASURED))
    assert there == run(ready, *report, tmp_path / "here").document
    assert (tmp_path / "there" / "light" / f"figure03-{SYSTEM.name}.svg").exists()


def test_a_corpus_that_is_not_built_can_be_reported_on(run: Run, imported: Home, tmp_path: Path) -> None:
    """A corpus that is not built is reported by its recipes, here as not measured."""
    done = run(imported, "reproduce", "dlbricks", "--no-measure", "--out", tmp_path / "results")
    assert (done.code, done.out) == (0, "")
    assert [line.split(" is measured ")[0] for line in done.err.splitlines()] == [
        "note: no model of dlbricks", "note: no model of modern",
    ]  # fmt: skip


def test_an_unknown_system_is_an_error(run: Run, imported: Home, tmp_path: Path) -> None:
    """Exporting or reporting an unknown system is one sentence."""
    unknown = ("--system", "nobody")
    said = "nothing is measured for the system nobody"
    assert said in run(imported, "export", tmp_path / "x.parquet", *unknown, "--with-models").sentence
    assert said in run(imported, "reproduce", "dlbricks", "--no-measure", *unknown, "--out", tmp_path / "r").sentence
    assert not list(tmp_path.glob("*.parquet"))


def test_what_is_no_file_of_results_is_a_sentence(run: Run, tmp_path: Path) -> None:
    """A truncated file is refused in one sentence, and nothing is imported."""
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    assert "is not a file of costmodel measurements" in run(tmp_path, "import", tmp_path / "x.parquet").sentence
    assert run(tmp_path, "systems", "--json").document["systems"] == []


class TestCsv:
    """Import of production latencies of whole models."""

    @pytest.fixture
    def table(self, tmp_path: Path) -> Path:
        """A table with two models that costmodel contains."""
        path = tmp_path / "latencies.csv"
        path.write_text("model,latency_us,runs\nlight_squeezenet,5000,100\nlight_resnet50,40000,\n")
        return path

    def test_a_system_like_another(self, run: Run, own: Home, table: Path) -> None:
        """`--like` adds a system with another's hardware; a second import adds nothing."""
        like = ("--system", "production", "--like", SYSTEM.name)
        (first,) = run(own, "import", table, *like, "--json").document["files"]
        (warning,) = first.pop("warnings")
        assert warning.endswith("the runtime optimised these models, and all is assumed: give it with --level")
        models = {"added": 1, "known": 1}
        common = {"file": str(table), "system": "production", "level": "all"}
        assert first == common | {"added": 2, "known": 0, "models": models}
        (again,) = run(own, "import", table, "--system", "production", "--json").document["files"]
        models = {"added": 0, "known": 2}
        assert again == common | {"added": 0, "known": 2, "models": models, "warnings": []}
        sentence = run(own, "train", "--system", "production", "--no-tracking").sentence
        assert "has 2 measured sequences and training needs 20, or 10 whole models" in sentence

    def test_the_documented_commands_need_nothing_but_a_clone(
        self, run_with: Callable[[Tools], Run], ready: Home, tmp_path: Path, parse: Callable[..., ModelProto]
    ) -> None:
        """In an empty home a table like a shipped system is imported, trained on, and used, as the how-to page says."""
        (tmp_path / "shipped").mkdir()
        export_results(Store(ready.store_url), SYSTEM.name, tmp_path / "shipped" / f"{SYSTEM.name}.parquet")
        (tmp_path / "models").mkdir()
        rows = ["model,latency_us"]
        for number in range(1, 13):
            nodes = " ".join(f"h{i + 1} = Tanh(h{i})" for i in range(number))
            text = f"(float[20000] x) => (float[20000] y) {{ h0 = Relu(x) {nodes} y = Relu(h{number}) }}"
            onnx.save(parse(text), tmp_path / "models" / f"net{number}.onnx")
            rows.append(f"net{number},{100 + 150 * number}")
        (tmp_path / "latencies.csv").write_text("\n".join(rows[:-1]))
        run = run_with(Tools(shipped_data=tmp_path / "shipped"))
        models, home, named = tmp_path / "models", tmp_path / "new", ("--system", "production")
        done = run(home, "import", tmp_path / "latencies.csv", *named, "--like", SYSTEM.name, "--models", models)
        assert (done.code, "11 measurements added" in done.said) == (0, True), done.err
        assert f"note: {SYSTEM.name} was imported from the data that is shipped with costmodel" in done.err
        assert run(home, "train", *named, "--no-tracking").code == 0
        unseen = run(home, "predict", models / "net12.onnx", *named, "--json").document
        assert unseen["latency_us"] == pytest.approx(1900, rel=0.1)
        assert unseen["quantiles_us"] == {}
        seen = run(home, "predict", models / "net5.onnx", *named)
        assert "users see unknown" in seen.said
        assert "the latency was observed on production" in seen.err

    def test_milliseconds_are_refused(self, run: Run, own: Home, table: Path) -> None:
        """A latency in another unit is one sentence with its line number."""
        table.write_text("model,latency_us\nlight_resnet50,40000\nlight_squeezenet,5\n")
        done = run(own, "import", table, "--system", "production", "--like", SYSTEM.name)
        assert done.code == 1
        assert f"{table}, line 3: light_squeezenet cannot take 5 microseconds" in done.err
        assert "not milliseconds" in done.err

    def test_a_table_can_be_replaced(self, run: Run, own: Home, table: Path) -> None:
        """`--replace` removes what was imported earlier, and then the level may be another."""
        new = ("--system", "production", "--like", SYSTEM.name)
        run(own, "import", table, *new, "--level", "none", "--models", "light")
        table.write_text("model,latency_us\nlight_squeezenet,6000\n")
        assert "is known already, with level none" in run(own, "import", table, *new, "--level", "all").sentence
        (done,) = run(own, "import", table, *new, "--level", "all", "--replace", "--json").document["files"]
        assert (done["added"], done["replaced"], done["level"]) == (1, 2, "all")
        assert list(Store(own.store_url).latencies_us("production").values()) == [6000.0]

    def test_an_unknown_level(self, run: Run, own: Home, table: Path) -> None:
        """A level that does not exist is wrong usage."""
        assert run(own, "import", table, "--level", "most").code == 2

    def test_a_system_of_which_nothing_is_known(self, run: Run, own: Home, table: Path) -> None:
        """For an unknown system, one sentence says which option to add."""
        assert "--like, or pass --assert-system" in run(own, "import", table, "--system", "production").sentence

    def test_a_bad_row(self, run: Run, own: Home, table: Path) -> None:
        """A bad row is one sentence with its line number."""
        table.write_text("model,latency_us\nlight_squeezenet,5000\nlight_resnet51,1\n")
        sentence = run(own, "import", table, "--system", SYSTEM.name).sentence
        assert f"{table}, line 3: light_resnet51 is neither a model in the store, in a corpus" in sentence

    @pytest.mark.parametrize(
        "option",
        [("--models", "light"), ("--like", SYSTEM.name), ("--assert-system",), ("--level", "all"), ("--replace",)],
    )
    def test_parquet_says_it_itself(self, run: Run, tmp_path: Path, option: tuple[str, ...]) -> None:
        """Options of CSV imports are wrong usage with Parquet files."""
        assert run(tmp_path, "import", "results.parquet", *option).code == 2

    def test_like_needs_a_name(self, run: Run, tmp_path: Path) -> None:
        """`--like` requires the name of the new system."""
        assert run(tmp_path, "import", "latencies.csv", "--like", SYSTEM.name).code == 2


def test_a_later_session_brings_the_latencies_of_models_alone(run: Run, ready: Home, tmp_path: Path) -> None:
    """`--models-only` adds measurements of whole models and none of layers."""
    path, home = tmp_path / "results.parquet", Home(tmp_path / "home")
    run(ready, "export", path, *NAMED, "--with-models")
    (document,) = run(home, "import", path, "--models-only", "--json").document["files"]
    assert document["models"]["added"] == len(MEASURED)
    stored = list(Store(home.store_url).measurements(SYSTEM.name))
    assert len(stored) == document["added"] > 0
    assert {one.kind for one in stored} == {"model"}


def test_a_csv_has_nothing_but_models(run: Run, ready: Home, tmp_path: Path) -> None:
    """`--models-only` says nothing about a .csv."""
    path = tmp_path / "latencies.csv"
    path.write_text("model,latency_us\nlight_squeezenet,3000\n")
    done = run(ready, "import", path, "--models-only")
    assert done.code == 2
    assert "whole models anyway" in " ".join(done.err.split())
