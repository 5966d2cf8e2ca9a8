"""`costmodel reproduce`: the paper's figures from stored and from new measurements."""

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.paths import Home
from costmodel.runtimes.base import RuntimeSettings, get_runtime
from costmodel.store.store import Store
from costmodel.systems.system import this_system
from tests.shell import Run
from tests.synthetic import MEASURED, SYSTEM, copied, corpus, fill

ONE = ("reproduce", "dlbricks", "--corpus", "light", "--threads", "1")
REPORT = (*ONE, "--no-measure", "--out")

LONG_CHAIN_LAYERS = "intel-xeon-platinum-8259cl-cascade-lake-4c-ort1.31-1t"


@pytest.fixture(scope="module")
def here() -> str:
    """Default name of this host."""
    return this_system(get_runtime(), RuntimeSettings(1, "all")).name


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home in which a host with a long name has synthetic measurements of six models."""
    home = Home(tmp_path_factory.mktemp("reproduce") / "home")
    home.data.mkdir(parents=True)
    models = corpus(home.cache)
    store = Store(home.store_url)
    fill(store, [models[name] for name in MEASURED], system=replace(SYSTEM, name=LONG_CHAIN_LAYERS), samples=0)
    store.close()
    return home


def test_what_is_measured_is_reported(run: Run, measured: Home, tmp_path: Path) -> None:
    """The report of stored measurements is the printed document and figures, without measuring."""
    document = run(measured, *REPORT, tmp_path / "results", "--json").document
    (result,) = document["results"]
    assert (result["system"], result["corpus"]) == (LONG_CHAIN_LAYERS, "light")
    (of_layers,) = result["granularities"]
    assert (of_layers["granularity"], of_layers["models"]) == (1, len(MEASURED))
    assert 0.97 <= of_layers["geometric_mean"] <= 1.03  # by construction of the synthetic latencies
    assert of_layers["unique"] < of_layers["sequences"]
    assert json.loads((tmp_path / "results" / "summary.json").read_text()) == document
    assert (tmp_path / "results" / "light" / f"figure03-{LONG_CHAIN_LAYERS}.svg").exists()


@pytest.mark.parametrize("columns", [120, 140])
def test_people_read_our_numbers_below_the_papers(
    run: Run, measured: Home, monkeypatch: pytest.MonkeyPatch, columns: int, tmp_path: Path
) -> None:
    """The table has a line for the paper and one for each system, corpus and granularity."""
    monkeypatch.setenv("COLUMNS", str(columns))
    header, theirs, ours, *last = run(measured, *REPORT, tmp_path / "results").out.splitlines()
    assert header.split()[:2] == ["system", "corpus"]
    assert theirs.startswith("DLBricks (2019)")
    assert "0.918" in theirs
    name, *cells = ours.split()
    assert LONG_CHAIN_LAYERS.startswith(name.removesuffix("…"))
    assert cells[:3] == ["light", "1", str(len(MEASURED))]
    assert "…" not in "".join(cells)
    assert max(map(len, (header, theirs, ours))) <= columns
    assert " ".join(last) == f"Figures, tables and summary.json are in {tmp_path / 'results'}."


def test_nothing_measured_is_said(run: Run, tmp_path: Path) -> None:
    """Without measurements, each corpus gets a line with what to do; no folder is created."""
    done = run(tmp_path / "new", *REPORT, tmp_path / "results")
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        "note: no model of light is measured whole and in layers on any system here: leave out --no-measure, or import "
        "what `costmodel export --with-models` wrote elsewhere\n"
    )
    assert not (tmp_path / "results").exists()
    assert run(tmp_path / "new", *REPORT, tmp_path / "results", "--json").document["results"] == []


def test_a_corpus_that_is_not_built_is_a_sentence(run: Run, tmp_path: Path) -> None:
    """A corpus that is not built is an error before anything is measured."""
    assert "run `costmodel corpus build dlbricks`" in run(tmp_path, "reproduce", "dlbricks").sentence


def test_every_stored_system_is_reported_unless_some_are_named(run: Run, measured: Home, tmp_path: Path) -> None:
    """All stored systems are reported by threads; --threads, --level and --system filter them."""
    home = copied(measured, tmp_path / "home")
    store = Store(home.store_url)
    models = [corpus(measured.cache)[name] for name in MEASURED[:2]]
    for name, threads, level in (("far-4t", 4, "all"), ("far-2t", 2, "all"), ("far-1t-none", 1, "none")):
        settings = RuntimeSettings(threads, level)
        fill(store, models, system=replace(SYSTEM, name=name, settings=settings), samples=0)
    store.close()
    report = ("reproduce", "dlbricks", "--corpus", "light", "--no-measure", "--json", "--out", tmp_path / "results")

    def systems(*options: object) -> list[str]:
        results = run(home, *report, *options).document["results"]
        return [result["system"] for result in results]

    assert systems() == [LONG_CHAIN_LAYERS, "far-2t", "far-4t", "far-1t-none"]
    assert systems("--level", "all", "--threads", "2-4") == ["far-2t", "far-4t"]
    assert systems("--system", "far-1t-none", "--system", "far-4t") == ["far-4t", "far-1t-none"]
    far = run(home, *report, "--system", "far-2t").document["results"][0]
    assert [(s["granularity"], s["models"]) for s in far["granularities"]] == [(1, 2)]
    done = run(home, *report, "--system", "far-2t", "--corpus", "dlbricks")
    assert "no model of dlbricks is measured whole and in layers on far-2t: " in done.err


def test_a_store_that_is_not_there_is_not_made(run: Run, tmp_path: Path) -> None:
    """Reporting does not create a missing store."""
    url = f"sqlite:///{tmp_path / 'slip.db'}"
    assert "there is no store at" in run(tmp_path, *REPORT, tmp_path / "results", "--store", url).sentence
    assert not (tmp_path / "slip.db").exists()


def test_what_draws_is_missed_before_anything_is_measured(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A missing plotting library is reported before measuring starts."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "--editable '.[plots]'" in run(tmp_path / "home", *ONE).sentence
    assert not (tmp_path / "home").exists()


def test_a_model_is_measured_and_reported(run: Run, here: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A model is really measured at two granularities; a second run measures nothing."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the measuring process has its lock there
    arguments = ("reproduce", "dlbricks", "--corpus", "light_squeezenet", "--threads", "1", "-G", "1-2", "--json")
    first = run(tmp_path / "home", *arguments, "--out", tmp_path / "results")
    (result,) = first.document["results"]
    assert result["system"] == here
    assert [s["granularity"] for s in result["granularities"]] == [1, 2]
    assert all(s["geometric_mean"] > 0 and s["models"] == 1 for s in result["granularities"])
    assert "0 failed, 0 left" in first.err
    again = run(tmp_path / "home", *arguments, "--out", tmp_path / "results")
    assert again.document == first.document
    assert " 0 measured in " in again.err


def test_what_fails_there_fails_here(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An error of the measuring process is passed on without traceback, and nothing is reported."""
    monkeypatch.setenv("TMPDIR", tempfile.gettempdir())
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "bad.onnx").write_bytes(b"no model")
    done = run(tmp_path, "reproduce", "dlbricks", "--corpus", tmp_path / "models", "--out", tmp_path / "results")
    assert (done.code, done.out) == (1, "")
    assert "bad.onnx is not an ONNX file" in done.err.splitlines()[-1]
    assert not (tmp_path / "results").exists()
