"""`costmodel predict` for systems that nobody has measured, and `costmodel evaluate` across systems."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.cli.context import Tools
from costmodel.ir.graph import LayerGraph
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.onnx_io.model import Model
from costmodel.paths import Home
from costmodel.runtimes.base import RuntimeSettings, get_runtime
from costmodel.store.parquet import export_results
from costmodel.store.store import Store
from costmodel.systems.system import System, this_system
from costmodel.training.artefact import champion_of, load_bundle
from tests.fakes import FakeRuntime, fake_sessions
from tests.shell import Run
from tests.synthetic import MEASURED, SYSTEM, copied, corpus, fill

assert SYSTEM.host is not None
BASE = replace(SYSTEM, name="made.base", host=replace(SYSTEM.host, microarchitecture="cascade-lake"))
OTHER = replace(SYSTEM, name="made.other", host=replace(SYSTEM.host, microarchitecture="icelake-sp"))


@pytest.fixture(scope="module")
def shipped(ready: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of shipped data with two systems of known microarchitectures."""
    folder = tmp_path_factory.mktemp("shipped")
    store = Store(copied(ready, folder / "home").store_url)
    for system in (BASE, OTHER):
        fill(store, [corpus(ready.cache)[name] for name in MEASURED], system=system, samples=0)
        export_results(store, system.name, folder / f"{system.name}.parquet", with_models=True)
    return folder


class _Runtime(FakeRuntime):
    """A fake runtime that executes what ONNX Runtime would, in simulated time."""

    def lower(self, model: Model, level: str) -> LayerGraph:
        """Returns the layers that ONNX Runtime executes."""
        return get_runtime().lower(model, level)


@pytest.fixture
def run_here(run_with: Callable[[Tools], Run], shipped: Path) -> Run:
    """Function that runs a command with the fake runtime and these shipped data."""
    runtime = _Runtime(name="onnxruntime")
    return run_with(Tools(runtime, fake_sessions(runtime), shipped))


def _systems(home: Path) -> dict[str, System]:
    return Store(Home(home).store_url).systems()


def test_a_machine_of_the_catalogue_is_extrapolated_once(
    run_with: Callable[[Tools], Run], shipped: Path, tmp_path: Path
) -> None:
    """On a fresh home the answer names the systems that it rests on, with a wide interval, and comes at once later."""
    run, home = run_with(Tools(shipped_data=shipped)), tmp_path / "new"
    first = run(home, "predict", "light_resnet50", "--system", "c5.xlarge", "--json")
    assert "nobody has measured c5.xlarge" in first.err
    document = first.document
    warning = next(text for text in document["warnings"] if "extrapolated from" in text)
    assert "made.base, made.other" in warning
    assert "costmodel predict --probe" in warning
    low, high = document["interval_us"]
    assert high / low > 2
    again = run(home, "predict", "light_resnet50", "--system", "c5.xlarge", "--json")
    assert "a regressor is made" not in again.err
    assert again.document == document
    assert _systems(home)["c5.xlarge"].extrapolated
    assert "c5.xlarge (guessed)" in run(home, "systems").out


def test_a_shipped_system_is_imported_when_it_is_named(
    run_with: Callable[[Tools], Run], shipped: Path, tmp_path: Path
) -> None:
    """A model whose layers are measured there has an answer at once; any other needs a regressor, as the error says."""
    run, home = run_with(Tools(shipped_data=shipped)), tmp_path / "new"
    done = run(home, "predict", MEASURED[0], "--system", "made.base", "--json")
    assert "made.base was imported from the data that is shipped" in done.err
    assert done.document["coverage"]["measured"] == 1
    assert "costmodel train" in run(home, "predict", "light_resnet50", "--system", "made.base").sentence


@pytest.mark.parametrize("command", [("predict", MEASURED[0]), ("train",)])
def test_what_is_shipped_of_such_a_machine_is_offered(
    run_with: Callable[[Tools], Run], shipped: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """On a host of which nothing is known, the error names what is shipped of its kind, which is not used unasked."""
    name = this_system(get_runtime(), RuntimeSettings(2)).name
    own = tmp_path / "shipped"
    own.mkdir()
    shutil.copy(shipped / f"{BASE.name}.parquet", own / f"{name}.parquet")
    run = run_with(Tools(shipped_data=own))
    sentence = run(tmp_path / "new", *command, "--threads", "2").sentence
    assert f"use them with `--system {name}`, or run `costmodel bench --threads 2`" in sentence
    other_threads = run(tmp_path / "new", *command, "--threads", "1").sentence
    assert "ships" not in other_threads


def test_a_regressor_is_trained_on_a_shipped_system(
    run_with: Callable[[Tools], Run], shipped: Path, tmp_path: Path
) -> None:
    """Training and evaluating import the system that they name; a store that the command names is left as it is."""
    run, chosen = run_with(Tools(shipped_data=shipped)), ("--predictors", "log_linear", "--seeds", "1")
    done = run(tmp_path / "new", "train", "--system", "made.base", "--no-tracking", *chosen, "--json")
    assert "made.base was imported from the data that is shipped" in done.err
    assert done.document["predictor"]["name"] == "log_linear"
    assert set(run(tmp_path / "other", "evaluate", "--system", "made.other", *chosen, "--json").document["predictors"])
    Store(f"sqlite:///{tmp_path / 'own.db'}").close()
    refused = run(tmp_path / "new", "evaluate", "--system", "made.base", "--store", f"sqlite:///{tmp_path / 'own.db'}")
    assert "made.base" in refused.sentence


def test_shipped_data_do_not_pass_for_the_measurements_of_this_host(
    run_with: Callable[[Tools], Run], ready: Home, tmp_path: Path
) -> None:
    """Training on this host, which is not named, imports nothing, even if a system of its name is shipped."""
    folder, runtime = tmp_path / "shipped", _Runtime(name="onnxruntime")
    own = replace(SYSTEM, name=this_system(runtime, RuntimeSettings()).name)
    folder.mkdir()
    store = Store(copied(ready, folder / "home").store_url)
    fill(store, [corpus(ready.cache)[name] for name in MEASURED], system=own, samples=0)
    export_results(store, own.name, folder / f"{own.name}.parquet", with_models=True)
    run, home = run_with(Tools(runtime, fake_sessions(runtime), folder)), tmp_path / "new"
    chosen = ("--predictors", "log_linear", "--seeds", "1", "--no-tracking")
    assert own.name in run(home, "train", *chosen).sentence
    assert own.name not in _systems(home)
    assert "was imported" in run(home, "train", "--system", own.name, *chosen, "--json").err


def test_what_fewer_threads_have_measured_is_imported_as_well(
    run_with: Callable[[Tools], Run], ready: Home, tmp_path: Path
) -> None:
    """A regressor of two threads learns from the same machine with one, if that is shipped."""
    folder, one = tmp_path / "shipped", replace(BASE, name="made.one")
    two = replace(BASE, name="made.two", settings=replace(BASE.settings, threads=2))
    folder.mkdir()
    store = Store(copied(ready, folder / "home").store_url)
    for system in (one, two):
        fill(store, [corpus(ready.cache)[name] for name in MEASURED], system=system, samples=0)
        export_results(store, system.name, folder / f"{system.name}.parquet", with_models=True)
    chosen = ("--predictors", "log_linear", "--seeds", "1", "--json")
    done = run_with(Tools(shipped_data=folder))(tmp_path / "new", "evaluate", "--system", "made.two", *chosen)
    assert "made.one was imported" in done.err
    assert done.document["borrowed_rows"] > 0


def test_measuring_replaces_what_was_extrapolated(
    run_with: Callable[[Tools], Run], shipped: Path, tmp_path: Path
) -> None:
    """Once the machine is measured, its capabilities are the measured ones and estimates say nothing of guesses."""
    run, home = run_with(Tools(shipped_data=shipped)), tmp_path / "new"
    run(home, "predict", "light_resnet50", "--system", "c5.xlarge", "--json")
    guessed = _systems(home)["c5.xlarge"]
    store, runtime = Store(Home(home).store_url), FakeRuntime()
    here = replace(guessed, host=SYSTEM.host, capabilities={}, extrapolated=False)
    session: BenchmarkSession = fake_sessions(runtime)(store, here, runtime)
    with session:
        pass
    found = store.system("c5.xlarge")
    assert not found.extrapolated
    assert found.host == SYSTEM.host
    assert found.capabilities != guessed.capabilities


def test_importing_replaces_what_was_extrapolated(
    run_with: Callable[[Tools], Run], shipped: Path, tmp_path: Path
) -> None:
    """Measurements that somebody made on the machine replace the guess, whatever its settings."""
    run, home = run_with(Tools(shipped_data=shipped)), tmp_path / "new"
    run(home, "predict", "light_resnet50", "--system", "c5.xlarge", "--json")
    run(home, "import", shipped / "made.base.parquet", "--system", "c5.xlarge")
    found = _systems(home)["c5.xlarge"]
    assert (found.extrapolated, found.capabilities) == (False, BASE.capabilities)
    run(home, "train", "--system", "c5.xlarge", "--no-tracking", "--seeds", "1")
    warnings = run(home, "predict", "light_resnet50", "--system", "c5.xlarge", "--json").document["warnings"]
    assert not any("extrapolated" in text for text in warnings)


def test_threads_that_no_system_has_are_extrapolated(
    run_with: Callable[[Tools], Run], shipped: Path, tmp_path: Path
) -> None:
    """Two threads make a model quicker than one, as a guess that the answer names; more than there are is an error."""
    run, home = run_with(Tools(shipped_data=shipped)), tmp_path / "new"
    ask = ("predict", "light_resnet50", "--system", "c5.xlarge", "--json", "--threads")
    one, two = run(home, *ask, "1").document, run(home, *ask, "2").document
    assert 1.3 < one["latency_us"] / two["latency_us"] < 2.1
    assert any("by how 2 threads divide the work" in text for text in two["warnings"])
    assert not any("divide the work" in text for text in one["warnings"])
    widths = [document["interval_us"][1] / document["interval_us"][0] for document in (one, two)]
    assert widths[0] < widths[1]
    assert "has 4 CPUs" in run(home, *ask, "8").sentence


def test_a_lost_regressor_is_made_again(run_with: Callable[[Tools], Run], shipped: Path, tmp_path: Path) -> None:
    """If the store knows the guessed system and its regressor is gone, the next prediction makes a new one."""
    run, home = run_with(Tools(shipped_data=shipped)), tmp_path / "new"
    ask = ("predict", "light_resnet50", "--system", "c5.xlarge", "--json")
    first = run(home, *ask).document
    shutil.rmtree(Home(home).bundles)
    assert run(home, *ask).document["latency_us"] == pytest.approx(first["latency_us"])


def test_probing_gives_an_unknown_host_a_regressor(run_here: Run, tmp_path: Path) -> None:
    """With --probe some layers are measured here, the others are adapted from all shipped systems."""
    home = tmp_path / "new"
    done = run_here(home, "predict", "light_squeezenet", "--probe", "--system", "this.one", "--json")
    assert "adapted from made.base, made.other" in done.err
    assert done.document["coverage"]["measured"] > 0
    assert not _systems(home)["this.one"].extrapolated
    path = champion_of(Home(home).bundles, "this.one")
    assert path is not None
    assert load_bundle(path).facts["bases"] == ["made.base", "made.other"]


def test_without_probing_an_unknown_host_is_an_error(run_here: Run, tmp_path: Path) -> None:
    """The error names the quick way to an answer."""
    assert "costmodel predict --probe" in run_here(tmp_path / "new", "predict", "light_squeezenet").sentence


def test_a_service_cannot_probe_this_host(run_here: Run, tmp_path: Path) -> None:
    """Probing is for this host, and a service runs nothing."""
    done = run_here(tmp_path / "new", "predict", "light_squeezenet", "--probe", "--server", "http://localhost:1")
    assert done.code == 2


def test_systems_are_evaluated_against_each_other(run_here: Run, tmp_path: Path) -> None:
    """Each named system is predicted from the other, in a document or in tables."""
    arguments = ("evaluate", "--systems", "made.base,made.other", "--folds", "2")
    document = run_here(tmp_path / "new", *arguments, "--json").document
    assert [(one["system"], one["bases"]) for one in document["systems"]] == [
        ("made.base", ["made.other"]), ("made.other", ["made.base"]),
    ]  # fmt: skip
    shown = run_here(tmp_path / "new", *arguments).out
    assert "made.base from made.other, lineages held out in 2 groups" in shown
    assert shown.count("affine, ten models") == 2


def test_systems_exclude_options_of_one_system(run_here: Run, tmp_path: Path) -> None:
    """Options about one system are refused together with --systems."""
    assert run_here(tmp_path / "new", "evaluate", "--systems", "a,b", "--system", "a").code == 2


def test_machines_that_nobody_has_measured_are_ranked(
    run_with: Callable[[Tools], Run], shipped: Path, tmp_path: Path
) -> None:
    """Machines of the catalogue that are named are guessed first, with as many threads as asked for, and priced."""
    run, home = run_with(Tools(shipped_data=shipped)), tmp_path / "new"
    asked = ("rank", "light_resnet50", "--system", "c5.large", "--system", "made.base", "--threads", "2", "--json")
    document = run(home, *asked, "--slo", "10s").document
    assert [failure["system"] for failure in document["failed"]] == ["made.base"]  # it has no regressor
    (ranked,) = document["ranking"]
    assert (ranked["system"], ranked["meets"]) == ("c5.large", True)
    assert ranked["usd_per_million"] == pytest.approx(0.085 / 3600 * ranked["latency_us"])
    assert _systems(home)["c5.large"].settings.threads == 2
    refused = run(home, "rank", "light_resnet50", "--system", "c4.xlarge", *asked[2:4], "--threads", "3")
    assert "c5.large has 2 CPUs" in refused.sentence
    assert "c4.xlarge" not in _systems(home)  # nothing is made before all are known to be possible
    assert "named with --system" in run(home, "rank", "light_resnet50", "--threads", "2").err


def test_a_size_that_the_catalogue_lacks_is_no_system(run: Run, tmp_path: Path) -> None:
    """The error names the sizes that there are."""
    sentence = run(tmp_path / "new", "predict", "light_resnet50", "--system", "c5.9xlarge").sentence
    assert "the catalogue has no c5.9xlarge: name one of c5.large, c5.xlarge, c5.2xlarge" in sentence
