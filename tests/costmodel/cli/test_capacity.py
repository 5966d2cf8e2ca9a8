"""`costmodel capacity`."""

from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from costmodel.paths import Home
from tests.shell import Run
from tests.synthetic import SYSTEM

ASKED = ("capacity", "light_squeezenet", "--system", SYSTEM.name)


def test_it_says_how_much_is_carried(run: Run, ready: Home) -> None:
    """The answer has the highest rate, the replicas for the arrivals, percentiles and the cost."""
    latency_us = run(ready, "predict", "light_squeezenet", "--system", SYSTEM.name, "--json").document["latency_us"]
    slo, rate = f"p99={3 * latency_us / 1e3:.3f}ms", 2 * 1e6 / latency_us
    asked = (*ASKED, "--slo", slo, "--arrivals", f"{rate:.3f}/s", "--price", "0.36")
    found = run(ready, *asked, "--json").document
    assert (found["model"], found["system"], found["scenario"]) == ("light_squeezenet", SYSTEM.name, "server")
    assert found["latencies"][0]["latency_us"] == pytest.approx(latency_us)
    assert 0 < found["highest_rate_per_s"] < 1e6 / latency_us
    assert found["replicas"] >= 3
    assert found["result"]["meets"] is True
    assert found["usd_per_million"] == pytest.approx(found["replicas"] * 0.36 / 3600 / rate * 1e6, rel=1e-4)
    out = run(ready, *asked).out
    for words in ("for one replica", f"needs {found['replicas']}", "p99", "busy", "when idle", "per million requests"):
        assert words in out


def test_batches_and_scenarios(run: Run, ready: Home) -> None:
    """Latencies are estimated at each batch size of the policy; offline needs no objective."""
    found = run(ready, *ASKED, "--scenario", "offline", "--batch-policy", "max=4", "--json").document
    assert [one["batch_size"] for one in found["latencies"]] == [1, 2, 4]
    assert found["highest_rate_per_s"] == found["result"]["throughput_per_s"]
    assert "users see" not in run(ready, *ASKED, "--scenario", "offline").out


def test_the_value_of_an_input_chooses_the_branch(run: Run, ready: Home, branches: ModelProto, tmp_path: Path) -> None:
    """Without a value, the answer says that layers depend on the input."""
    path = tmp_path / "merged.onnx"
    onnx.save(branches, path)
    asked = ("capacity", path, "--system", SYSTEM.name, "--scenario", "offline", "--json")
    said = "which layers run depends on the input cached"
    assert said in " ".join(run(ready, *asked).document["warnings"])
    for flag in (0, 1):
        latency_us = run(
            ready, "predict", path, "--system", SYSTEM.name, "--value", f"cached={flag}", "--json"
        ).document["latency_us"]
        found = run(ready, *asked, "--value", f"cached={flag}").document
        assert found["latencies"][0]["latency_us"] == pytest.approx(latency_us)
        assert said not in " ".join(found["warnings"])
    assert "cannot be 2" in run(ready, *asked, "--value", "cached=2").sentence


def test_an_objective_that_is_too_hard_is_said(run: Run, ready: Home) -> None:
    """If no rate meets the objective, or the queue grows without end, the answer says so."""
    assert "no rate meets the objective" in run(ready, *ASKED, "--slo", "p99=1us", "--arrivals", "1/s").out
    flooded = run(ready, *ASKED, "--slo", "p99=10s", "--arrivals", "99999/s", "--replicas", "1").out
    assert "grows without end" in flooded
    assert "exceeds what is carried by 1" in flooded


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "needs a latency objective"),
        (("--slo", "50ms"), "write it like p99=50ms"),
        (("--slo", "p99=1s", "--arrivals", "fast"), "write it like 120/s"),
        (("--slo", "p99=1s", "--batch-policy", "big"), "write it like none, max=8 or max=8,wait=5ms"),
        (("--slo", "p99=1s", "--scenario", "burst"), "is not one of single-stream"),
        (("--slo", "p99=1s", "--replicas", "0"), "0 is not in the range"),
    ],
)
def test_wrong_usage_says_how_to_write_it(run: Run, ready: Home, arguments: tuple[str, ...], words: str) -> None:
    """Wrong usage has exit code 2 and shows the right form."""
    done = run(ready, *ASKED, *arguments)
    assert done.code == 2
    assert words in " ".join(done.err.replace("│", " ").split())


def test_values_that_contradict_each_other_are_one_sentence(run: Run, ready: Home) -> None:
    """A rate of arrivals in a scenario without arrivals is refused."""
    asked = ("--scenario", "single-stream", "--arrivals", "5/s")
    assert "has no rate of arrivals" in run(ready, *ASKED, *asked).sentence


def test_one_model_is_asked_about(run: Run, ready: Home) -> None:
    """A name that stands for several models is refused."""
    assert "give one" in run(ready, "capacity", "light", "--slo", "p99=1s").err


def test_another_machine_cannot_be_measured_here(run: Run, ready: Home) -> None:
    """What an idle time costs is measured on the machine itself, so that another system is refused."""
    refused = run(ready, *ASKED, "--slo", "p99=1s", "--measure-idle")
    assert refused.code == 1
    assert "were measured on another system" in refused.sentence
