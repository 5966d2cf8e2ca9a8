"""The report folder of the reproduction, for synthetic results."""

import csv
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from costmodel.errors import MissingExtraError
from costmodel.jobs.reproduction import figures, paper
from costmodel.jobs.reproduction.construction import Construction
from costmodel.jobs.reproduction.report import CorpusResult, summaries_of, summary_document, write_report
from tests.fakes import elementwise, measured

FAMILIES = {"resnet_50": "resnet", "resnet_18": "resnet", "vgg": "vgg", "alexnet": "alexnet"}
ORDER = ["alexnet", "resnet_18", "resnet_50", "vgg"]
KINDS = {"conv": "Conv", "wide": "Conv", "relu": "Relu", "dense": "Gemm"}
LAYERS = {
    "resnet_50": ("conv", "relu", "conv", "relu", "dense"),
    "resnet_18": ("conv", "relu", "dense"),
    "vgg": ("wide", "relu", "wide", "wide"),
    "alexnet": ("dense",),
}


def made_up(
    system: str = "one-1t",
    corpus: str = "tiny",
    granularities: Sequence[int] = (1, 2),
    layers: Mapping[str, Sequence[str]] = LAYERS,
) -> CorpusResult:
    """Returns synthetic results of a fictitious system."""
    found = [
        Construction(name, granularity, 100.0 * len(signatures), 91.0 * len(signatures) + granularity,
                     80.0 * len(signatures), tuple(signatures))
        for granularity in granularities
        for name, signatures in layers.items()
    ]  # fmt: skip
    times = {signature: measured(elementwise(3), [50.0]).timing for item in found for signature in item.signatures}
    kinds = {signature: KINDS.get(signature, signature) for signature in times}
    return CorpusResult(corpus, system, found, summaries_of(found, times), kinds, FAMILIES, {"threads": 1})


def rows(path: Path) -> list[list[str]]:
    """Returns the cells of a table file."""
    with path.open(newline="") as file:
        return list(csv.reader(file))


def words(path: Path) -> set[str]:
    """Returns the text of a figure."""
    return {str(text.text).strip() for text in ElementTree.parse(path).iter() if text.tag.endswith("}text")}


@pytest.fixture(scope="module")
def results() -> list[CorpusResult]:
    """Results of two corpora on two systems."""
    return [made_up(system, corpus) for system in ("one-1t", "one-2t") for corpus in ("tiny", "small")]


@pytest.fixture(scope="module")
def folder(results: list[CorpusResult], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report folder of these results."""
    folder = tmp_path_factory.mktemp("report") / "results"
    write_report(folder, results)
    return folder


class TestTheFolder:
    """Contents of the folder."""

    def test_every_figure_is_drawn_and_tabled(self, folder: Path) -> None:
        """Layer figures exist once per corpus, model figures per system, granularity figures for all systems."""
        names = {f"figure{number}" for number in ("05", "06", "07", "11", "12")}
        names |= {f"figure{number}-{system}" for number in ("03", "10") for system in ("one-1t", "one-2t")}
        expected = {f"{name}{suffix}" for name in names for suffix in (".csv", ".svg")}
        for corpus in ("tiny", "small"):
            assert {path.name for path in (folder / corpus).iterdir()} == expected
        assert {path.name for path in folder.iterdir()} == {"tiny", "small", "summary.json"}

    def test_the_same_results_are_the_same_files(
        self, folder: Path, results: list[CorpusResult], tmp_path: Path
    ) -> None:
        """Equal results give byte-identical files, so that a diff shows changed measurements only."""
        write_report(tmp_path, results)
        written = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}
        assert {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.*")} == written

    def test_an_earlier_report_is_replaced(self, tmp_path: Path) -> None:
        """A report replaces the earlier one in its folder."""
        write_report(tmp_path, [made_up("one-1t")])
        write_report(tmp_path, [made_up("one-1t"), made_up("one-2t")])
        assert [row[:2] for row in rows(tmp_path / "tiny" / "figure12.csv")[1:]] == [
            ["one-1t", "1"], ["one-1t", "2"], ["one-2t", "1"], ["one-2t", "2"],
        ]  # fmt: skip

    def test_a_corpus_may_be_a_path(self, tmp_path: Path) -> None:
        """Figures of a corpus given as a path are written to the report folder, not beside the models."""
        models = tmp_path / "models" / "ours"
        models.mkdir(parents=True)
        write_report(tmp_path / "results", [made_up(corpus=str(models)), made_up(corpus="here/theirs/")])
        assert list(models.iterdir()) == []
        assert {path.name for path in (tmp_path / "results").iterdir()} == {"ours", "theirs", "summary.json"}


class TestFigures:
    """Contents of the figures."""

    def test_models_by_what_repeats_in_them(self, folder: Path) -> None:
        """Figure 5 shows the share of unique layers, the model with the most repetition first."""
        assert rows(folder / "tiny" / "figure05.csv") == [
            ["model", "layers", "unique", "unique_share"],
            ["vgg", "4", "2", "0.5"],
            ["resnet_50", "5", "3", "0.6"],
            ["alexnet", "1", "1", "1"],
            ["resnet_18", "3", "3", "1"],
        ]
        assert {*ORDER, "50%", "60%", "100%"} <= words(folder / "tiny" / "figure05.svg")

    def test_kinds_by_how_often_they_repeat(self, folder: Path) -> None:
        """Figure 6 counts layers beyond the first of their signature, within a model and across models."""
        found = dict(rows(folder / "tiny" / "figure06.csv")[1:])
        assert found == {"Conv": "4", "Relu": "3", "Gemm": "2"}
        assert set(found) <= words(folder / "tiny" / "figure06.svg")

    def test_layers_that_models_share(self, folder: Path) -> None:
        """Figure 7 shows the Jaccard similarity of each pair, with families grouped."""
        header, *table = rows(folder / "tiny" / "figure07.csv")
        assert header[1:] == [row[0] for row in table] == ORDER
        matrix = [[float(cell) for cell in row[1:]] for row in table]
        assert all(matrix[i][i] == 1.0 for i in range(4))
        assert matrix == [list(column) for column in zip(*matrix, strict=True)]
        assert matrix[1][2] == 1.0  # both have a Conv, a Relu and a Gemm
        assert matrix[2][3] == 0.25  # of four layers, the Relu
        assert matrix[0][3] == 0.0
        assert set(ORDER) <= words(folder / "tiny" / "figure07.svg")

    def test_models_against_their_end_to_end_latency(self, folder: Path) -> None:
        """Figure 3 shows sum and critical path, with the paper's values."""
        header, *table = rows(folder / "tiny" / "figure03-one-2t.csv")
        assert header == ["model", "end_to_end_us", "sequential_us", "parallel_us"]
        assert [row[0] for row in table] == ORDER
        assert table[-1] == ["vgg", "400", "365", "320"]
        drawn = words(folder / "tiny" / "figure03-one-2t.svg")
        assert {*ORDER, "sequential", "parallel", "within 5%"} <= drawn
        assert "the paper's geometric mean, sequential" in drawn
        assert any("one-2t" in text for text in drawn)

    def test_models_by_granularity(self, folder: Path) -> None:
        """Figure 10 has a column for each granularity."""
        header, *table = rows(folder / "tiny" / "figure10-one-1t.csv")
        assert header == ["model", "G1", "G2"]
        assert table[0] == ["alexnet", "0.92", "0.93"]
        assert {*ORDER, "G = 1", "G = 2"} <= words(folder / "tiny" / "figure10-one-1t.svg")

    def test_a_model_that_is_not_measured_at_a_granularity_has_a_hole_there(self, tmp_path: Path) -> None:
        """A model without measurements at a granularity has an empty cell, and the others are drawn."""
        result = made_up()
        part = [item for item in result.found if (item.model, item.granularity) != ("vgg", 2)]
        write_report(tmp_path, [replace(result, found=part)])
        table = {row[0]: row[1:] for row in rows(tmp_path / "tiny" / "figure10-one-1t.csv")[1:]}
        assert table["vgg"][1] == ""
        assert all(all(cells) for name, cells in table.items() if name != "vgg")

    def test_systems_by_granularity(self, folder: Path, results: list[CorpusResult]) -> None:
        """Figures 11 and 12 show the summaries by granularity, a line for each system."""
        of_tiny = [result for result in results if result.corpus == "tiny"]
        for number, column in (("11", "geometric_mean"), ("12", "speedup")):
            header, *table = rows(folder / "tiny" / f"figure{number}.csv")
            found = {(row[0], int(row[1])): float(row[header.index(column)]) for row in table}
            expected = {(r.system, g): getattr(s, column) for r in of_tiny for g, s in r.summaries.items()}
            assert found == pytest.approx(expected, rel=1e-5)
            assert {"one-1t", "one-2t"} <= words(folder / "tiny" / f"figure{number}.svg")

    def test_granularities_without_single_layers(self, tmp_path: Path) -> None:
        """Without measured single layers, only the other figures are drawn."""
        write_report(tmp_path, [made_up(granularities=(2, 3))])
        assert {path.stem for path in (tmp_path / "tiny").iterdir()} == {"figure11", "figure12"}

    def test_models_in_which_nothing_repeats(self, tmp_path: Path) -> None:
        """Models without repetition are not an error."""
        write_report(tmp_path, [made_up(layers={"alexnet": ("dense", "relu")})])
        assert rows(tmp_path / "tiny" / "figure06.csv") == [["kind", "repeated"]]
        assert (tmp_path / "tiny" / "figure06.svg").exists()

    def test_many_systems(self, tmp_path: Path) -> None:
        """More systems than colours can be drawn."""
        write_report(tmp_path, [made_up(f"host-{number}t") for number in range(1, 13)])
        assert "host-12t" in words(tmp_path / "tiny" / "figure11.svg")


class TestTheSummary:
    """All numbers in one JSON document."""

    def test_it_is_written_as_it_is(self, folder: Path, results: list[CorpusResult]) -> None:
        """The printed document of `--json` is the file in the folder."""
        written = json.loads((folder / "summary.json").read_text())
        assert written == json.loads(json.dumps(summary_document(results)))

    def test_it_has_the_papers_numbers_beside_ours(self, results: list[CorpusResult]) -> None:
        """The document has the paper's numbers beside ours, by system, corpus and granularity."""
        document = summary_document(results)
        assert document["paper"]["geometric_mean"] == paper.GEOMETRIC_MEAN
        assert document["paper"]["unique_share"] == pytest.approx(0.1414, abs=1e-4)
        assert [(r["system"], r["corpus"]) for r in document["results"]] == [
            ("one-1t", "tiny"), ("one-1t", "small"), ("one-2t", "tiny"), ("one-2t", "small"),
        ]  # fmt: skip
        (first, second) = document["results"][0]["granularities"]
        assert (first["granularity"], second["granularity"]) == (1, 2)
        ratios = [(91.0 * len(layers) + 1) / (100.0 * len(layers)) for layers in LAYERS.values()]
        assert first["geometric_mean"] == pytest.approx(math.exp(sum(map(math.log, ratios)) / 4))
        assert (first["sequences"], first["unique"], first["unique_share"]) == (13, 4, 4 / 13)
        assert first["speedup"] == pytest.approx(1300.0 / (4 * 50.0))
        assert document["results"][0]["environment"] == {"threads": 1}

    def test_of_nothing_there_are_the_papers_numbers(self) -> None:
        """Without measurements the document has the paper's numbers only."""
        assert summary_document([])["results"] == []


def test_drawing_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib the error says how to install it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=re.escape("--editable '.[plots]'")):
        figures.bars(tmp_path / "x.svg", "title", ["a"], [1.0], "label", percent=True)
    assert list(tmp_path.iterdir()) == []
