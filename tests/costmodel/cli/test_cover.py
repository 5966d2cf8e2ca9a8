"""`--cover cheapest`: measured sequences are used wherever they fit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from costmodel.cover import cheapest_cover
from costmodel.decomposition import decompose
from costmodel.home import Home
from costmodel.store import Store
from tests.shell import Done, Run
from tests.synthetic import SYSTEM, corpus, made_up_measurement, made_up_us

NAME = "light_squeezenet"
MOST = 3


@pytest.fixture
def predict(run: Run, own: Home) -> Callable[..., Done]:
    """Prices a model of which long sequences are measured, none of them where a fixed cut has one."""
    graph = corpus(own.cache)[NAME].graph
    fixed = decompose(NAME, graph, MOST).unique.keys()
    other = cheapest_cover(
        NAME, graph, MOST, lambda windows: {s: 9.0 if s in fixed else 1.0 / len(q.layers) for s, q in windows.items()}
    )
    store = Store(own.store_url)
    for signature, sequence in other.unique.items():
        if len(sequence.layers) > 1 and signature not in fixed:
            store.put_measurement(SYSTEM.name, made_up_measurement(signature, made_up_us(sequence)), sequence)
    store.close()
    return lambda *arguments: run(own, "predict", NAME, "--system", SYSTEM.name, *arguments)


def test_the_document_says_how_the_model_was_covered(predict: Callable[..., Done]) -> None:
    """Where a fixed cut has to be predicted, measured sequences and layers cover the model."""
    covers = ("fixed", "cheapest")
    fixed, cheapest = (predict("-G", MOST, "--cover", cover, "--json").document for cover in covers)
    assert (fixed["cover"], cheapest["cover"]) == covers
    assert (fixed["granularity"], cheapest["granularity"]) == (MOST, MOST)
    assert fixed == predict("-G", MOST, "--json").document
    assert fixed["coverage"]["measured"] < cheapest["coverage"]["measured"] == 1
    layers = [name for piece in cheapest["layers"] for name in piece["name"].split("+")]
    assert layers == [piece["name"] for piece in predict("--json").document["layers"]]
    assert len(cheapest["layers"]) < len(layers)
    nothing = predict("-G", MOST, "--cover", "cheapest", "--predict-all", "--json").document
    assert (nothing["cover"], nothing["coverage"]["measured"]) == ("cheapest", 0)


def test_people_are_told(predict: Callable[..., Done]) -> None:
    """In the line about sequences, which says nothing of the usual cut."""
    (line,) = (line for line in predict("-G", MOST, "--cover", "cheapest").out.splitlines() if " over " in line)
    assert line.endswith(f" sequences, granularity {MOST}, cheapest cover, sequential")
    (line,) = (line for line in predict("-G", MOST).out.splitlines() if " over " in line)
    assert line.endswith(f" sequences, granularity {MOST}, sequential")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [(["--cover", "widest"], "fixed, cheapest"), (["--cover", "cheapest", "-G", "auto"], "give a number")],
)
def test_wrong_usage_says_what_is_right(run: Run, tmp_path: Path, arguments: list[str], hint: str) -> None:
    """A cover that is not there, and one that has no fixed cuts to choose among."""
    done = run(tmp_path / "home", "predict", "light", *arguments)
    assert (done.code, done.out) == (2, "")
    assert hint in " ".join(done.err.replace("│", " ").split())
