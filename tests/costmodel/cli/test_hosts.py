"""Commands that depend on the host, on every host of tests/hosts, which differ in CPUs, vectors and caches."""

import re
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from costmodel.paths import Home
from costmodel.store.store import Store
from costmodel.systems.catalogue import catalogue
from costmodel.systems.host import probe_host
from tests.shell import Run

MODEL = "light_squeezenet"
NAMES = {
    "amd-rome": "amd-epyc-7r32-zen2-8c",
    "arm-graviton2": "arm-neoverse-n1-4c",
    "container-v1": "intel-xeon-platinum-8175m-skylake-x-1c",
    "container-v2": "amd-epyc-7r13-zen3-1c",
    "intel-cascade-lake": "intel-xeon-platinum-8259cl-cascade-lake-4c",
    "one-core": "intel-xeon-e5-2676-v3-haswell-ep-1c",
    "sandbox": "intel-icelake-sp-2c",
}


@pytest.fixture
def chain(tmp_path: Path, parse: Callable[..., ModelProto]) -> Path:
    """A model of three layers that the fake runtime can run."""
    text = "(float[2,3] x) => (float[2,3] y) { a = Relu(x) \n b = Tanh(a) \n y = Exp(b) }"
    onnx.save(parse(text), tmp_path / "chain.onnx")
    return tmp_path / "chain.onnx"


def test_a_host_has_a_name_and_its_facts(run: Run, other_host: str, tmp_path: Path) -> None:
    """The document of `systems` has the host's facts and a default name with the number of threads."""
    for threads in (1, 2):
        here = run(tmp_path, "systems", "--threads", threads, "--json").document["here"]
        assert here["name"].startswith(f"{NAMES[other_host]}-ort")
        assert here["name"].endswith(f"-{threads}t")
        assert here["host"] == probe_host().facts()


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_systems_fit_the_terminal(
    run: Run, other_host: str, ready: Home, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """No line of the table is wider than the terminal, unless a name alone is; names are never broken."""
    monkeypatch.setenv("COLUMNS", str(columns))
    here = run(ready, "systems", "--threads", "2", "--json").document["here"]["name"]
    lines = run(ready, "systems", "--threads", "2").out.splitlines()
    assert any(here in line for line in lines)
    assert all(len(line) <= columns or line == here for line in lines)
    assert "It is not measured yet: `costmodel bench`" in lines


@pytest.mark.parametrize("threads", [1, 2])
def test_a_host_is_benched_and_predicted_under_its_name(
    simulated_run: Run, other_host: str, chain: Path, tmp_path: Path, threads: int
) -> None:
    """Host and measurements are stored and found by a second run, also with more threads than CPUs."""
    first = simulated_run(tmp_path, "bench", chain, "--threads", threads, "--json").document
    assert first["failed"] == {}
    assert first["measured"] > 0
    assert first["system"].startswith(NAMES[other_host])
    store = Store(Home(tmp_path).store_url)
    assert store.systems()[first["system"]].host == probe_host()
    store.close()
    again = simulated_run(tmp_path, "bench", chain, "--threads", threads)
    assert "0 measured in" in again.said
    assert max(map(len, again.out.splitlines())) <= 80
    predicted = simulated_run(tmp_path, "predict", chain, "--threads", threads, "--json").document
    assert (predicted["system"], predicted["coverage"]["measured"]) == (first["system"], 1.0)
    table = simulated_run(tmp_path, "systems", "--threads", threads).out
    assert "not measured yet" not in table
    assert max(map(len, table.splitlines())) <= 80


def test_measurements_of_one_host_are_not_continued_on_another(
    simulated_run: Run, other_host: str, chain: Path, tmp_path: Path
) -> None:
    """A user's system name is refused on another host, in a sentence with the differences."""
    assert simulated_run(tmp_path, "bench", chain, "--system", "mine", "--json").code == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSTMODEL_HOST_ROOT", str(tmp_path))  # without proc and sys, nothing is known of the host
        done = simulated_run(tmp_path, "bench", chain, "--system", "mine")
    sentence = done.err.splitlines()[-1]  # the last line, after the progress bars
    host = probe_host()
    assert (done.code, done.out) == (1, "")
    assert "the records of mine were measured on another system: " in sentence
    assert f"vendor {host.vendor} there, unknown here" in sentence
    assert f"without {', '.join(host.isa)} here" in sentence


def test_no_host_passes_for_one_of_the_catalogue(run: Run, other_host: str, tmp_path: Path) -> None:
    """A catalogued name on another host is refused with the differences and how to proceed."""
    first = {entry.processor: entry for entry in reversed(catalogue().values())}  # the smallest with each processor
    for entry in first.values():
        sentence = run(tmp_path, "bench", MODEL, "--system", entry.name).sentence
        host = probe_host()
        assert f"this host is not a {entry.name}: " in sentence
        if re.search(entry.processor_pattern, host.model_name):
            assert f"{entry.vcpus} vCPUs expected, {host.logical_cpus_total} here" in sentence
        else:
            assert f"processor {entry.processor} expected, {host.model_name or host.vendor} here" in sentence
        assert "--assert-system" in sentence


def test_a_host_without_regressor_says_how_to_get_one(run: Run, other_host: str, ready: Home) -> None:
    """A new host is not answered for by other systems' regressors, and the error says how to get one."""
    sentence = run(ready, "predict", MODEL).sentence
    assert NAMES[other_host] in sentence
    assert "costmodel bench" in sentence


def test_a_stored_system_is_predicted_alike_everywhere(
    run: Run, other_host: str, ready: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions for a stored system do not depend on the host that computes them."""
    there = run(ready, "predict", MODEL, "--system", "made.up", "--json").document
    monkeypatch.delenv("COSTMODEL_HOST_ROOT")
    assert run(ready, "predict", MODEL, "--system", "made.up", "--json").document == there
