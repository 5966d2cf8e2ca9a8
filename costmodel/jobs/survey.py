"""The job of `costmodel survey`: measures the standard set on this host, and exports the results of a system."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from costmodel.errors import DataFileError
from costmodel.ir.footprint import model_read_bytes
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.passes import run_passes
from costmodel.jobs.shipped_data import shipped_systems
from costmodel.measure.groups import Group
from costmodel.paths import shipped_data_folder
from costmodel.progress import Stages, no_progress
from costmodel.runtimes.base import DEFAULT_RUNTIME, Runtime
from costmodel.store.parquet import read_models
from costmodel.store.results import StoredModel
from costmodel.store.store import Store
from costmodel.systems.system import System
from costmodel.training.standard_set import StandardSet, standard_set_file

__all__ = ["load_standard_set", "survey"]


def load_standard_set(folder: Path | None = None, runtime: str = DEFAULT_RUNTIME) -> StandardSet:
    """Returns the standard set of a runtime, which is shipped with costmodel.

    Args:
        folder: Folder of the shipped data; by default that of the source checkout.
        runtime: Name of the runtime.

    Raises:
        DataFileError: There is no source checkout, it has no set for the runtime, or the set cannot be read.
    """
    folder = folder or shipped_data_folder()
    if folder is None:
        raise DataFileError(
            "the standard set is part of the source of costmodel: run `costmodel survey` in a clone of it"
        )
    path = folder / standard_set_file(runtime)
    if not path.exists():
        raise DataFileError(
            f"no standard set of {runtime} is shipped: `python benchmarks/standard_set.py --base SYSTEM` chooses one "
            f"from the shipped measurements of a system of {runtime}"
        )
    return StandardSet.read(path)


def survey(
    store: Store,
    system: System,
    runtime: Runtime,
    standard: StandardSet,
    *,
    folder: Path | None = None,
    passes: int = 1,
    budget_s: float | None = None,
    progress: Stages | None = None,
    bench: Callable[[Store, System, Runtime], BenchmarkSession] = BenchmarkSession,
) -> BenchReport:
    """Measures those models and layers of the standard set that a store lacks; resumable at any moment.

    The models are read from the shipped data without the measurements there, and run with synthetic weights, so no
    model file is needed. The layers of a complete model and the whole model take turns, as in `bench_target`.

    Args:
        store: Store that receives the models and the results; it should contain nothing else, so that nothing else is
            exported.
        system: This host, described as a system; results are stored under its name.
        runtime: Runtime that runs the layers and the models.
        standard: Models to measure.
        folder: Folder of the shipped data; by default that of the source checkout.
        passes: Number of times that each model is to be measured; passes that the store has count.
        budget_s: Seconds from the start after which no further measurement starts; None for no limit.
        progress: Function that takes the name of a stage of the job and returns its progress callback; None to report
            nothing.
        bench: Function that makes a benchmark session from a store, a system and a runtime.

    Raises:
        DataFileError: The shipped data do not have a model of the standard set.
        HostBusyError: Another process is measuring.
        SystemMismatchError: The store has a system of that name with another machine, runtime or settings.
    """
    stage = progress or no_progress
    models = _put_standard_models(store, system, standard, folder)
    groups = list(_groups(store, standard, models))
    with bench(store, system, runtime) as session:
        report = run_passes(store, session, groups, passes, budget_s=budget_s, stage=stage)
    names = {model.whole: model.name for model in standard.models}
    report.failed = {names.get(signature, signature): reason for signature, reason in report.failed.items()}
    return report


def _put_standard_models(
    store: Store, system: System, standard: StandardSet, folder: Path | None
) -> dict[str, StoredModel]:
    """Adds the models of the standard set to a store that lacks them; returns each by the signature of the whole model.

    Raises:
        DataFileError: The shipped data do not have a model of the standard set.
    """
    wanted = {model.whole for model in standard.models}
    known = _stored_models(store, wanted)
    for path in shipped_systems(folder).get(standard.base, ()) if wanted - known.keys() else ():
        # The measurements in the file are those of another host, even if it is of the same kind and has the same name.
        found = read_models(path, wanted - known.keys())
        store.put_results(replace(found, system=system))
        known |= _stored_models(store, wanted)
    missing = [model.name for model in standard.models if model.whole not in known]
    if missing:
        raise DataFileError(
            f"the shipped data of {standard.base} lack {len(missing)} models of the standard set ({missing[0]}, ...): "
            "get the files in data/ of the same release"
        )
    return known


def _stored_models(store: Store, wholes: set[str]) -> dict[str, StoredModel]:
    return {model.whole: model for model in store.models() if model.granularity == 1 and model.whole in wholes}


def _groups(store: Store, standard: StandardSet, models: dict[str, StoredModel]) -> Iterator[Group]:
    """Yields a group for each model of the standard set, in its order."""
    sequences = store.sequences(signature for model in models.values() for signature in model.signatures)
    for entry in standard.models:
        layers = [sequences[segment.signature] for segment in models[entry.whole].segments]
        yield Group(
            label=entry.name,
            sequences=tuple({layer.signature: layer for layer in layers}.values()) if entry.complete else (),
            whole=sequences[entry.whole],
            footprint_bytes=model_read_bytes(layers, sequences[entry.whole]),
        )
