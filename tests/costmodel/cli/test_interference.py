"""`costmodel interference`, and predictions beside other models."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.api import CostModel
from costmodel.estimate.interference import Interference
from costmodel.paths import Home
from costmodel.store.store import Store
from costmodel.systems.host import usable_cpus
from tests.shell import Run
from tests.synthetic import SYSTEM

LAW = Interference(0.5, 60.0, 0.5, memory=0.9, computing=0.0, near_share=0.7)


@pytest.fixture
def measured_home(own: Home) -> Home:
    """A home in which the interference of the synthetic system is known."""
    store = Store(own.store_url)
    system = store.system(SYSTEM.name)
    store.put_system(replace(system, capabilities={**system.capabilities, **LAW.capabilities()}))
    store.close()
    return own


@pytest.mark.skipif(usable_cpus() < 2, reason="two sessions side by side need two CPUs")
def test_the_command_measures_and_stores(simulated_run: Run, tmp_path: Path) -> None:
    """The document has all slowdowns, the table names the layers, and the system is stored."""
    document = simulated_run(tmp_path / "home", "interference", "--json").document
    assert len(document["slowdowns"]) == len(document["contenders"])
    (system,) = Store(f"sqlite:///{tmp_path / 'home/data/costmodel.db'}").systems().values()
    assert system.name == document["system"]
    assert Interference.from_capabilities(system.capabilities) is not None
    printed = simulated_run(tmp_path / "home", "interference")
    assert "waiting for memory takes" in printed.said


def test_a_system_whose_interference_is_unknown_says_so(
    run: Run, ready: Home, light_models: Mapping[str, Path]
) -> None:
    """Nothing is guessed: the sentence names the command that measures it."""
    done = run(ready, "predict", light_models["vgg19"], "--beside", light_models["squeezenet"], "--system", SYSTEM.name)
    assert done.code == 1
    assert "never measured on made.up: run `costmodel interference`" in done.sentence


def test_a_model_takes_longer_beside_another(run: Run, measured_home: Home, light_models: Mapping[str, Path]) -> None:
    """The document and the printed lines say by how much; layers are those of the model alone."""
    arguments = ("predict", light_models["vgg19"], "--system", SYSTEM.name)
    alone = run(measured_home, *arguments, "--json").document
    assert (alone["beside"], alone["slowdown"], alone["slowdown_interval"]) == ([], 1.0, [1.0, 1.0])
    beside = run(measured_home, *arguments, "--beside", light_models["zfnet512"], "--json").document
    assert beside["beside"] == ["light_zfnet512"]
    assert beside["slowdown"] > 1.05
    low, high = beside["slowdown_interval"]
    assert 1 <= low <= beside["slowdown"] <= high
    assert beside["latency_us"] == pytest.approx(beside["slowdown"] * alone["latency_us"])
    assert beside["interval_us"][0] < beside["latency_us"] < beside["interval_us"][1]
    assert beside["quantiles_us"]["p99"] == pytest.approx(beside["slowdown"] * alone["quantiles_us"]["p99"])
    assert [one["latency_us"] for one in beside["layers"]] == [one["latency_us"] for one in alone["layers"]]
    assert any("shared a last-level cache for 70% of the time" in warning for warning in beside["warnings"])
    printed = run(measured_home, *arguments, "--beside", light_models["zfnet512"])
    assert "times as long as alone" in printed.said
    three = run(
        measured_home,
        *arguments,
        "--beside",
        light_models["zfnet512"],
        "--beside",
        light_models["shufflenet"],
        "--json",
    ).document
    assert three["slowdown"] >= beside["slowdown"]
    assert any("was checked for one only" in warning for warning in three["warnings"])


def test_options_that_exclude_each_other(run: Run, ready: Home, light_models: Mapping[str, Path]) -> None:
    """A model beside others is not run here, and not asked of a service from the command line."""
    model = light_models["vgg19"]
    assert run(ready, "predict", model, "--beside", model, "--measure").code == 2
    assert run(ready, "predict", model, "--beside", model, "--server", "http://127.0.0.1:9").code == 2


def test_the_python_class_answers_the_same(measured_home: Home, light_models: Mapping[str, Path]) -> None:
    """`CostModel.predict(..., beside=[...])` returns the estimate that the command prints."""
    cost_model = CostModel.load(SYSTEM.name, home=measured_home)
    found = cost_model.predict(light_models["vgg19"], beside=[light_models["zfnet512"]])
    assert found.beside == ("light_zfnet512",)
    assert found.slowdown > 1.05
    assert found.from_dict(found.to_dict()).slowdown_interval == found.slowdown_interval
