"""The job of `costmodel interference` in simulated time: what it stores, and what becomes of it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from costmodel.errors import MeasurementError
from costmodel.estimate.interference import Interference
from costmodel.jobs.interference import InterferenceReport, fit_interference, measure_interference
from costmodel.runtimes.base import RuntimeSettings
from costmodel.store.parquet import export_results, import_results
from costmodel.store.store import Store
from tests.fakes import FakeNeighbour, FakeRuntime, elementwise, fake_bench, fake_sessions, fake_system, measured


@pytest.fixture
def job(store: Store, runtime: FakeRuntime) -> Callable[..., InterferenceReport]:
    """Function that runs the job on the fake runtime."""
    return partial(
        measure_interference,
        store,
        runtime=runtime,
        bench=fake_sessions(runtime),
        clock_s=lambda: runtime.clock() / 1e9,
    )


@pytest.fixture
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets this process use two CPUs, whatever the machine has."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: None)


@pytest.mark.usefixtures("two_cpus")
def test_the_law_is_stored_and_outlives_later_sessions(
    store: Store, runtime: FakeRuntime, job: Callable[..., InterferenceReport]
) -> None:
    """The coefficients are in the record of the system, and a later session keeps them."""
    report = job(system=fake_system(runtime=runtime))
    assert list(report.contenders)[1] == "streaming"
    assert report.measured.ratios[0].tolist() == pytest.approx(FakeNeighbour.slowdowns, abs=1e-3)
    assert report.law.memory > 0
    assert report.seconds > 0
    assert Interference.from_capabilities(store.system("fake-1").capabilities) == report.law
    document = report.to_dict()
    assert document["coefficients"] == report.law.capabilities()
    assert len(document["slowdowns"]) == len(document["contenders"]) == 6
    with fake_bench(store, runtime):
        pass
    assert Interference.from_capabilities(store.system("fake-1").capabilities) == report.law


@pytest.mark.usefixtures("two_cpus")
def test_a_pair_that_could_not_be_timed_is_left_out(
    runtime: FakeRuntime, job: Callable[..., InterferenceReport]
) -> None:
    """The law is fitted to the other pairs, and the document has no number for this one."""
    report = job(system=fake_system(runtime=runtime))
    ratios = report.measured.ratios.copy()
    ratios[1, 2] = np.nan
    measured = replace(report.measured, ratios=ratios)
    law, _ = fit_interference(report.contenders, measured, fake_system().host)
    assert law.memory > 0
    assert law.error < 1
    document = replace(report, measured=measured).to_dict()
    assert document["slowdowns"][1][2] is None
    assert document["slowdowns"][1][1] == pytest.approx(1.5)


@pytest.mark.usefixtures("two_cpus")
def test_too_few_cpus_are_said(store: Store, runtime: FakeRuntime, job: Callable[..., InterferenceReport]) -> None:
    """Two sessions of two threads need four CPUs, and the refusal leaves no system behind."""
    with pytest.raises(MeasurementError, match="side by side need 4 CPUs"):
        job(system=fake_system(runtime=runtime, settings=RuntimeSettings(threads=2)))
    assert not store.systems()


@pytest.mark.usefixtures("two_cpus")
def test_export_and_import_bring_the_law_to_a_store_that_lacks_it(
    store: Store, runtime: FakeRuntime, job: Callable[..., InterferenceReport], tmp_path: Path
) -> None:
    """A store that knows the system without its interference gets it, and one that has its own keeps that."""
    law = job(system=fake_system(runtime=runtime)).law
    sequence = elementwise(1, 7)
    store.put_measurement("fake-1", measured(sequence), sequence)
    path = tmp_path / "results.parquet"
    export_results(store, "fake-1", path)
    other = Store(f"sqlite:///{tmp_path / 'other.db'}")
    other.put_system(fake_system(runtime=runtime, capabilities={"layer_us": 2.0}))
    import_results(other, path)
    capabilities = other.system("fake-1").capabilities
    assert capabilities["layer_us"] == 2.0
    assert Interference.from_capabilities(capabilities) == law
    own = replace(law, memory=9.0)
    other.put_system(fake_system(runtime=runtime, capabilities=own.capabilities()))
    import_results(other, path)
    assert Interference.from_capabilities(other.system("fake-1").capabilities) == own
    other.close()
