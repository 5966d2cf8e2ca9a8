"""The job of `costmodel survey` in simulated time, and the standard set that is shipped."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from onnx import ModelProto

from costmodel.errors import DataFileError
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.shipped_data import shipped_systems
from costmodel.jobs.survey import load_standard_set, survey
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.store.parquet import export_results, read_models, read_results
from costmodel.store.store import Store
from costmodel.training.standard_set import StandardModel, StandardSet
from tests.fakes import FakeRuntime, fake_sessions, fake_system
from tests.reproduced import TEXTS, Graphs
from tests.shipped import BASE, put_shipped_data


@pytest.fixture
def graphs(parse: Callable[..., ModelProto]) -> Graphs:
    """The layer graphs of the shipped models."""
    return {name: FakeRuntime().lower(read_model(parse(text)), "all") for name, text in TEXTS.items()}


@pytest.fixture
def standard(tmp_path: Path, graphs: Graphs) -> StandardSet:
    """The standard set of the shipped data, which this creates."""
    return put_shipped_data(tmp_path / "shipped", graphs)


@pytest.fixture
def run(store: Store, runtime: FakeRuntime, standard: StandardSet, tmp_path: Path) -> Callable[..., BenchReport]:
    """Function that calls `survey` on these fixtures, on a host whose system has the name of the shipped one."""
    return partial(
        survey,
        store,
        fake_system(BASE, runtime=runtime),
        runtime,
        standard,
        folder=tmp_path / "shipped",
        bench=fake_sessions(runtime),
    )


def _layers(graphs: Graphs, name: str) -> set[str]:
    return set(decompose(name, graphs[name], 1).unique)


def test_the_set_is_measured_and_nothing_else(run: Callable[..., BenchReport], store: Store, graphs: Graphs) -> None:
    """Layers of complete models and all whole models are measured here; shipped measurements do not count."""
    report = run()
    wholes = {whole_model(graph).signature for graph in graphs.values()}
    assert (report.measured, report.reused, report.left, report.failed) == (4, 0, 0, {})
    assert store.latencies_us(BASE).keys() == wholes | _layers(graphs, "deep")
    assert {model.name: model.family for model in store.models()} == {"deep": "chains", "wide": "branches"}
    again = run()
    assert (again.measured, again.reused) == (0, 4)


def test_a_survey_goes_on_where_it_stopped(run: Callable[..., BenchReport]) -> None:
    """What the budget leaves is measured by the next run."""
    assert run(budget_s=0.0).left == 4
    assert run().measured == 4


def test_a_second_pass_measures_each_model_once_more(run: Callable[..., BenchReport], store: Store) -> None:
    """With two passes everything is measured twice, whether in one run or in two; then nothing is left to do."""
    run()
    report = run(passes=2)
    assert (report.measured, report.repeated) == (0, 4)
    assert store.repeated_signatures(BASE) == store.latencies_us(BASE).keys()
    assert run(passes=2).repeated == 0


def test_a_failure_names_the_model(run: Callable[..., BenchReport], runtime: FakeRuntime, graphs: Graphs) -> None:
    """A model that does not run is reported by its name, and the others are measured."""
    runtime.broken.add(whole_model(graphs["wide"]).signature)
    report = run()
    assert list(report.failed) == ["wide"]
    assert report.measured == 3


def test_the_export_is_ready_to_be_shipped(
    run: Callable[..., BenchReport], store: Store, standard: StandardSet, tmp_path: Path
) -> None:
    """The exported file has the models of the set, with their families, and this host's measurements."""
    run()
    export_results(store, BASE, tmp_path / "exported.parquet", with_models=True)
    exported = read_results(tmp_path / "exported.parquet")
    assert {model.whole for model in exported.models} == {model.whole for model in standard.models}
    assert len(exported.measurements) == 4
    assert exported.system.capabilities.keys() > {"layer_us"}


def test_a_model_that_is_not_shipped_is_an_error(
    run: Callable[..., BenchReport], store: Store, standard: StandardSet
) -> None:
    """A standard set with a model that the data lack is an error that names the model."""
    more = replace(standard, models=(*standard.models, StandardModel("lost", "lost", "0" * 64, complete=True)))
    with pytest.raises(DataFileError, match="lack 1 models of the standard set \\(lost"):
        survey(
            store,
            fake_system(BASE),
            FakeRuntime(),
            more,
            folder=Path(run.keywords["folder"]),  # type: ignore[attr-defined]
        )


def test_without_a_standard_set_there_is_no_survey(tmp_path: Path) -> None:
    """A folder without the file of the runtime is an error."""
    with pytest.raises(DataFileError, match="no standard set of toy is shipped"):
        load_standard_set(tmp_path, "toy")


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_the_shipped_standard_sets_are_of_the_shipped_data(runtime: str) -> None:
    """Every model of a committed set is in the shipped data, and it has as many layers as it says."""
    standard = load_standard_set(runtime=runtime)
    wholes = {model.whole for model in standard.models}
    found = [read_models(path, wholes) for path in shipped_systems()[standard.base]]
    models = {model.whole: model for results in found for model in results.models}
    assert models.keys() == wholes
    complete = [models[entry.whole] for entry in standard.models if entry.complete]
    assert len({segment.signature for model in complete for segment in model.segments}) == standard.layers
    assert (len(standard.models), len({model.family for model in standard.models}) > 80) == (150, True)
    assert any("int8" in model.name for model in standard.models)
