"""`--cover cheapest` uses measured sequences wherever they fit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from costmodel.partition.cover import cheapest_cover
from costmodel.partition.decomposition import decompose
from costmodel.paths import Home
from costmodel.store.store import Store
from tests.shell import Done, Run
from tests.synthetic import SYSTEM, corpus, made_up_measurement, made_up_us

NAME = "light_squeezenet"
MOST = 3


@pytest.fixture
def predict(run: Run, own: Home) -> Callable[..., Done]:
    """Function that prices a model with long measured sequences, none of which the fixed cut has."""
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
    """The cheapest cover uses measured sequences where the fixed cut has to predict."""
    covers = ("fixed", "cheapest")
    fixed, cheapest = (predict("-G", MOST, "--cover", cover, "--json").document for cover in covers)
    assert (fixed["cover"], cheapest["cover"]) == covers
    assert (fixed["granularity"], cheapest["granularity"]) == (MOST, MOST)
    assert fixed == predict("-G", MOST, "--json").document
    assert fixed["coverage"]["measured"] < cheapest["coverage"]["measured"] == 1
    layers = [name for segment in cheapest["layers"] for name in segment["name"].split("+")]
    assert layers == [segment["name"] for segment in predict("--json").document["layers"]]
    assert len(cheapest["layers"]) < len(layers)
    nothing = predict("-G", MOST, "--cover", "cheapest", "--predict-all", "--json").document
    assert (nothing["cover"], nothing["coverage"]["measured"]) == ("cheapest", 0)


def test_the_output_names_the_cover(predict: Callable[..., Done]) -> None:
    """The line about sequences mentions a cheapest cover, and does not mention the fixed one."""
    (line,) = (line for line in predict("-G", MOST, "--cover", "cheapest").out.splitlines() if " over " in line)
    assert line.endswith(f" sequences, granularity {MOST}, cheapest cover, sequential")
    (line,) = (line for line in predict("-G", MOST).out.splitlines() if " over " in line)
    assert line.endswith(f" sequences, granularity {MOST}, sequential")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [(["--cover", "widest"], "fixed, cheapest"), (["--cover", "cheapest", "-G", "auto"], "give a number")],
)
def test_wrong_usage_says_what_is_right(run: Run, tmp_path: Path, arguments: list[str], hint: str) -> None:
    """An unknown cover, and a cover with a granularity that has no fixed cuts, are wrong usage."""
    done = run(tmp_path / "home", "predict", "light", *arguments)
    assert (done.code, done.out) == (2, "")
    assert hint in " ".join(done.err.replace("│", " ").split())
