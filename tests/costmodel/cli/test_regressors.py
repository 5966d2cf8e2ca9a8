"""`costmodel regressors`: the trained regressors, and which of them is champion."""

import json
import shutil

import pytest

from costmodel.paths import Home
from costmodel.training.artefact import champion_of
from tests.shell import Run
from tests.synthetic import SYSTEM


@pytest.fixture
def three(own: Home) -> Home:
    """A home with the champion, an older regressor of other features, and a newer one that is damaged."""
    champion = champion_of(own.bundles, SYSTEM.name)
    assert champion is not None
    old, damaged = champion.with_name("20200101-000000-old"), champion.with_name("29990101-000000-new")
    for other in (old, damaged):
        shutil.copytree(champion, other)
    card = json.loads((old / "card.json").read_text())
    (old / "card.json").write_text(json.dumps({**card, "schema_fingerprint": "other"}))
    (damaged / "card.json").write_text("{")
    champion.with_name(".half.partial").mkdir()
    return own


def test_regressors_as_a_document(run: Run, three: Home) -> None:
    """Regressors are listed newest first with their accuracy; unusable ones are marked."""
    damaged, champion, old = run(three, "regressors", "--json").document["regressors"]
    assert [one["champion"] for one in (damaged, champion, old)] == [False, True, False]
    assert [one["usable"] for one in (damaged, champion, old)] == [False, True, False]
    assert (damaged["version"], damaged["name"], damaged["model_mape"]) == ("29990101-000000-new", None, None)
    assert (champion["system"], champion["name"]) == (SYSTEM.name, "lightgbm")
    assert 0 < champion["model_mape"] < 0.1
    assert champion["rows"] > 200
    assert champion["trained_at"].endswith("+00:00")


@pytest.mark.parametrize("columns", [100, 120])
def test_regressors_as_a_table(run: Run, three: Home, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """The table has one unwrapped line for each regressor."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run(three, "regressors").out.splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[0].split()[:3] == ["system", "version", "regressor"]
    assert ["champion" in line for line in lines] == [False, False, True, False]
    assert ["unusable" in line for line in lines] == [False, True, False, True]


def test_only_those_of_a_system(run: Run, three: Home) -> None:
    """`--system` filters; no match is a sentence for people and an empty list for programs."""
    assert len(run(three, "regressors", "--system", SYSTEM.name, "--json").document["regressors"]) == 3
    assert run(three, "regressors", "--system", "c5.xlarge", "--json").document == {"regressors": []}
    assert run(three, "regressors", "--system", "c5.xlarge").out == (
        "Nothing is trained for c5.xlarge yet: `costmodel train`\n"
    )
