"""`costmodel reproduce`: the paper's figures of what is measured here, and of what is measured now."""

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.home import Home
from costmodel.runtimes import RuntimeSettings, get_runtime
from costmodel.store import Store
from costmodel.systems import this_system
from tests.shell import Run
from tests.synthetic import MEASURED, SYSTEM, copied, corpus, fill

ONE = ("reproduce", "dlbricks", "--corpus", "light", "--threads", "1")
REPORT = (*ONE, "--no-measure", "--out")

LONG = "intel-xeon-platinum-8259cl-cascade-lake-4c-ort1.31-1t"


@pytest.fixture(scope="module")
def here() -> str:
    """What this host is called."""
    return this_system(get_runtime(), RuntimeSettings(1, "all")).name


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home in which a host with a long name has measured six models, in the made-up world."""
    home = Home(tmp_path_factory.mktemp("reproduce") / "home")
    home.data.mkdir(parents=True)
    models = corpus(home.cache)
    store = Store(home.store_url)
    fill(store, [models[name] for name in MEASURED], system=replace(SYSTEM, name=LONG), samples=0)
    store.close()
    return home


def test_what_is_measured_is_reported(run: Run, measured: Home, tmp_path: Path) -> None:
    """One document, the same as in the folder, with figures beside it; nothing is measured for it."""
    document = run(measured, *REPORT, tmp_path / "results", "--json").document
    (result,) = document["results"]
    assert (result["system"], result["corpus"]) == (LONG, "light")
    (of_layers,) = result["granularities"]
    assert (of_layers["granularity"], of_layers["models"]) == (1, len(MEASURED))
    assert 0.97 <= of_layers["geometric_mean"] <= 1.03  # as the made-up world has it
    assert of_layers["unique"] < of_layers["sequences"]
    assert json.loads((tmp_path / "results" / "summary.json").read_text()) == document
    assert (tmp_path / "results" / "light" / f"figure03-{LONG}.svg").exists()


@pytest.mark.parametrize("columns", [120, 140])
def test_people_read_our_numbers_below_the_papers(
    run: Run, measured: Home, monkeypatch: pytest.MonkeyPatch, columns: int, tmp_path: Path
) -> None:
    """A line for the paper, one for each system, corpus and granularity, and where the figures are."""
    monkeypatch.setenv("COLUMNS", str(columns))
    header, theirs, ours, *last = run(measured, *REPORT, tmp_path / "results").out.splitlines()
    assert header.split()[:2] == ["system", "corpus"]
    assert theirs.startswith("DLBricks (2019)")
    assert "0.918" in theirs
    name, *cells = ours.split()
    assert LONG.startswith(name.removesuffix("…"))
    assert cells[:3] == ["light", "1", str(len(MEASURED))]
    assert "…" not in "".join(cells)
    assert max(map(len, (header, theirs, ours))) <= columns
    assert " ".join(last) == f"Figures, tables and summary.json are in {tmp_path / 'results'}."


def test_nothing_measured_is_said(run: Run, tmp_path: Path) -> None:
    """For each corpus, with what to do; no folder is made, and a program gets a document all the same."""
    done = run(tmp_path / "new", *REPORT, tmp_path / "results")
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        "note: no model of light is measured whole and in layers on any system here: leave out --no-measure, or import "
        "what `costmodel export --with-models` wrote elsewhere\n"
    )
    assert not (tmp_path / "results").exists()
    assert run(tmp_path / "new", *REPORT, tmp_path / "results", "--json").document["results"] == []


def test_a_corpus_that_is_not_built_is_a_sentence(run: Run, tmp_path: Path) -> None:
    """Before anything is measured."""
    assert "run `costmodel corpus build dlbricks`" in run(tmp_path, "reproduce", "dlbricks").sentence


def test_every_stored_system_is_reported_unless_some_are_named(run: Run, measured: Home, tmp_path: Path) -> None:
    """In the order of their threads, whatever host they are; --threads, --level and --system choose among them."""
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

    assert systems() == [LONG, "far-2t", "far-4t", "far-1t-none"]
    assert systems("--level", "all", "--threads", "2-4") == ["far-2t", "far-4t"]
    assert systems("--system", "far-1t-none", "--system", "far-4t") == ["far-4t", "far-1t-none"]
    far = run(home, *report, "--system", "far-2t").document["results"][0]
    assert [(s["granularity"], s["models"]) for s in far["granularities"]] == [(1, 2)]
    done = run(home, *report, "--system", "far-2t", "--corpus", "dlbricks")
    assert "no model of dlbricks is measured whole and in layers on far-2t: " in done.err


def test_a_store_that_is_not_there_is_not_made(run: Run, tmp_path: Path) -> None:
    """Reporting only reads."""
    url = f"sqlite:///{tmp_path / 'slip.db'}"
    assert "there is no store at" in run(tmp_path, *REPORT, tmp_path / "results", "--store", url).sentence
    assert not (tmp_path / "slip.db").exists()


def test_what_draws_is_missed_before_anything_is_measured(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not after hours."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'costmodel[plots]'" in run(tmp_path / "home", *ONE).sentence
    assert not (tmp_path / "home").exists()


def test_a_model_is_measured_and_reported(run: Run, here: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For real: whole and in layers, at two granularities; run again, nothing is left to measure."""
    monkeypatch.setenv("TMPDIR", tempfile.gettempdir())  # where the process that measures has its lock
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
    """The process that measures says why; no traceback, and nothing is reported."""
    monkeypatch.setenv("TMPDIR", tempfile.gettempdir())
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "bad.onnx").write_bytes(b"no model")
    done = run(tmp_path, "reproduce", "dlbricks", "--corpus", tmp_path / "models", "--out", tmp_path / "results")
    assert (done.code, done.out) == (1, "")
    assert "bad.onnx is not an ONNX file" in done.err.splitlines()[-1]
    assert not (tmp_path / "results").exists()
