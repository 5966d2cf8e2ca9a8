"""`costmodel rank` and `costmodel lower`."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.ir.graph import LayerGraph
from costmodel.paths import Home
from costmodel.store.store import Store
from tests.shell import Run
from tests.synthetic import MEASURED, SYSTEM, corpus, fill


def test_models_are_ranked_on_a_system(run: Run, ready: Home) -> None:
    """Models that meet the objective come first, fastest first; others show by how much they fail."""
    asked = ("rank", "light_squeezenet", "light_vgg19", "--slo", "100ms", "--quantile", "quiet")
    document = run(ready, *asked, "--price", f"{SYSTEM.name}=0.36", "--json").document
    assert document["slo_us"] == 100_000
    quick, slow = document["ranking"]
    assert (quick["model"], quick["meets"], slow["model"], slow["meets"]) == (
        "light_squeezenet", True, "light_vgg19", False,
    )  # fmt: skip
    assert slow["exceeds_by_us"] == pytest.approx(slow["latency_us"] - 100_000)
    assert quick["usd_per_million"] == pytest.approx(0.36 / 3600 * quick["latency_us"])
    assert document["best"] == quick
    out = run(ready, *asked).out
    assert "fails by" in out
    assert "light_squeezenet on made.up is the choice" in out


def test_a_system_without_a_price_is_named(run: Run, own: Home) -> None:
    """Where the choice is by price, a note says which system has none, and is left out of it."""
    fill(Store(own.store_url), [corpus(own.cache)[MEASURED[0]]], system=replace(SYSTEM, name="made.other"), samples=0)
    asked = ("rank", MEASURED[0])
    done = run(own, *asked, "--price", f"{SYSTEM.name}=0.36")
    assert "made.other has no price, so it is not considered for the choice: give one with --price" in done.err
    assert SYSTEM.name in run(own, *asked, "--slo", "10s", "--price", f"{SYSTEM.name}=0.36").out.splitlines()[-1]
    assert "no price" not in run(own, *asked, "--price", f"{SYSTEM.name}=0.36", "--price", "made.other=0.2").err
    assert "no price" not in run(own, *asked).err


def test_without_an_objective_the_fastest_is_first(run: Run, ready: Home) -> None:
    """Without an objective, the fastest is first and none fails."""
    document = run(ready, "rank", "light_vgg19", "light_squeezenet", "--json").document
    assert [one["model"] for one in document["ranking"]] == ["light_squeezenet", "light_vgg19"]
    assert document["best"]["meets"] is None


def test_models_that_need_too_much_memory_come_last(run: Run, ready: Home) -> None:
    """A model that does not fit comes last, and is not the choice."""
    asked = ("rank", "light_vgg19", "light_squeezenet", "--memory", "300MB")
    document = run(ready, *asked, "--json").document
    assert document["memory_bytes"] == 300_000_000
    small, large = document["ranking"]
    assert (small["model"], small["fits"], large["fits"]) == ("light_squeezenet", True, False)
    low, high = large["peak_memory_interval_bytes"]
    assert low < large["peak_memory_bytes"] < high
    assert document["best"] == small
    out = run(ready, *asked).out
    assert re.search(r"\d [MG]B, ", out)  # and that it is too much, as far as there is room
    assert "objective memory <= 300 MB: light_squeezenet on made.up is the choice" in out
    refused = run(ready, *asked[:-1], "large")
    assert (refused.code, "512MB" in refused.err) == (2, True)


def test_models_are_ranked_by_what_their_traffic_costs(run: Run, ready: Home) -> None:
    """With arrivals, the price is that of as many replicas as carry them."""
    asked = ("rank", "light_squeezenet", "--slo", "10s", "--quantile", "p99", "--price", f"{SYSTEM.name}=0.36")
    document = run(ready, *asked, "--arrivals", "300/s", "--json").document
    assert document["arrivals_per_s"] == 300
    best = document["best"]
    assert best["replicas"] >= 300 * best["latency_us"] / 1e6
    assert best["usd_per_million"] == pytest.approx(best["replicas"] * 0.36 / 3600 / 300 * 1e6)
    out = run(ready, *asked, "--arrivals", "300/s").out
    assert "replicas" in out
    assert "objective p99 <= 10.0 s, at 300/s: light_squeezenet on made.up is the choice" in out


def test_nothing_meets_an_objective_that_is_too_hard(run: Run, ready: Home) -> None:
    """With an objective that none meets, no model is chosen."""
    assert run(ready, "rank", "light_vgg19", "--slo", "1us", "--json").document["best"] is None
    assert "nothing meets it" in run(ready, "rank", "light_vgg19", "--slo", "1us").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--slo", "20"), "write it like 500us, 20ms or 1.5s"),
        (("--slo", "0ms"), "is not a latency"),
        (("--price", "0.3"), "is no price: write it like c5.xlarge=0.17"),
        (("--price", "x=nan"), "is no price"),
        (("--arrivals", "120"), "write it like 120/s, 7200/min or 400000/h"),
        (("--arrivals", "120/s"), "needs --slo, and --quantile p50, p90 or p99"),
        (("--quantile", "p10"), "is not one of p50, p90, p99, quiet"),
    ],
)
def test_wrong_usage_says_how_to_write_it(run: Run, ready: Home, arguments: tuple[str, ...], words: str) -> None:
    """Wrong usage has exit code 2 and shows the right form."""
    done = run(ready, "rank", "light_vgg19", *arguments)
    assert done.code == 2
    assert words in " ".join(done.err.replace("│", " ").split())


def test_a_system_that_is_not_known_is_one_sentence(run: Run, ready: Home) -> None:
    """An unknown system is one sentence."""
    assert (
        "nothing is measured for the system nowhere"
        in run(ready, "rank", "light_vgg19", "--system", "nowhere").sentence
    )


def test_a_model_is_lowered_to_a_graph_without_weights(run: Run, ready: Home, light_models: Mapping[str, Path]) -> None:
    """The written graph can be read again; the anonymous one is the same with numbers as names."""
    done = run(ready, "lower", light_models["squeezenet"], "--json")
    graph = LayerGraph.from_dict(done.document)
    assert len(done.out) < 100_000
    anonymous = run(ready, "lower", light_models["squeezenet"], "--json", "--anonymous").document
    assert [layer["name"] for layer in anonymous["layers"][:2]] == ["layer0", "layer1"]
    assert [layer["op"] for layer in anonymous["layers"]] == [layer.op_type for layer in graph.layers]
    assert not any(name in json.dumps(anonymous) for name in ("fire", "nchwc_", "softmaxout"))
    assert "float32[1,1000" in run(ready, "lower", light_models["squeezenet"]).out
    assert run(ready, "lower", "light").code == 2
