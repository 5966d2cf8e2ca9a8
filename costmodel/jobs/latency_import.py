"""The job of `costmodel import` for a .csv: adds observed latencies of whole models to a store."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.errors import CostModelError, DataFileError, UnknownSystemError
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.model_library import ModelLibrary
from costmodel.measure.measurement import Measurement, is_data_dependent, now
from costmodel.progress import Progress, reported
from costmodel.runtimes.base import Runtime
from costmodel.store.latency_csv import ObservedLatency, read_latencies
from costmodel.store.results import ImportSummary, Results, StoredModel
from costmodel.store.store import Store
from costmodel.systems.names import measuring_command, validate_name
from costmodel.systems.system import System
from costmodel.units import format_us

if TYPE_CHECKING:
    from costmodel.training.corpus import CorpusModel

__all__ = ["LatencyImport", "has_only_observed", "import_latencies", "system_observed"]

# A latency is refused if it is smaller than the analytical bound of the model by more than the first factor, as are
# milliseconds that are given as microseconds; or greater than the bound by more than the second factor plus the time
# that a slow call of the model may take. Measured models take 0.7 to 10 times their bounds.
_FASTEST = 8.0
_SLOWEST, _SLOWEST_CALL_US = 200.0, 10_000.0
# Maximum number of models by which optimisation levels are compared.
_MOST_COMPARED = 50


def system_observed(
    store: Store,
    name: str,
    *,
    like: str | None = None,
    here: System | None = None,
    level: str | None = None,
    runtime_version: str | None = None,
    replaces: bool = False,
) -> System:
    """Returns the system on which latencies were observed: a known one, one like a known one, or this host.

    Args:
        store: Store with the known systems.
        name: Name of the system.
        like: Name of a known system with the same hardware and threads, if the store does not know the system `name`;
            the returned system is then marked as asserted.
        here: This host, described as a system, if `name` is a name of this host; else None.
        level: Optimisation level of the runtime; None for that of the known system.
        runtime_version: Version of the runtime; None for that of the known system.
        replaces: Whether all observed latencies of the system are replaced; if it has no others, its level and the
            version of its runtime may then change.

    Raises:
        UnknownSystemError: Neither the system nor `like` is known, or the system's capabilities are unknown.
        DataFileError: The system is known, and its hardware, settings or runtime differ from what is given.
    """
    known = store.systems().get(validate_name(name))
    if known is not None and known.extrapolated:
        known = None  # its capabilities are guesses
    template = None if like is None else store.system(like)
    if known is None and template is not None:
        found = replace(template, name=name, asserted=True)
    elif known is not None and template is not None and not _alike(known, template):
        raise DataFileError(f"the system {name} is known already, and is not like {like}: leave out --like")
    elif known is not None:
        found = known
    elif here is not None:
        found = here
    else:
        raise UnknownSystemError(
            f"the system {name} is not known here: name a known one of the same hardware with --like, or pass "
            "--assert-system if it is this host"
        )
    if not found.capabilities and found is not here:
        raise UnknownSystemError(
            f"of the system {name} it is not known what its hardware can do: run `{measuring_command(name)}` on "
            "that machine and import what it exports"
        )
    settings = replace(found.settings, level=level or found.settings.level)
    given = replace(found, settings=settings, runtime_version=runtime_version or found.runtime_version)
    if known is not None and given != known and not (replaces and has_only_observed(store, name)):
        raise DataFileError(
            f"the system {name} is known already, with level {known.settings.level} and runtime version "
            f"{known.runtime_version}: choose another --system name, or replace what was imported with --replace"
        )
    return given


def has_only_observed(store: Store, name: str) -> bool:
    """Returns whether nothing was measured on a system, so that only observed latencies, if any, are stored for it."""
    return all(measurement.observed for measurement in store.measurements(name))


def _alike(one: System, other: System) -> bool:
    """Returns whether two systems have the same hardware and, apart from the optimisation level, the same settings."""
    return (one.host, _with_level(one, "").settings) == (other.host, _with_level(other, "").settings)


@dataclass(frozen=True, slots=True)
class LatencyImport:
    """The result of an import of observed latencies.

    Attributes:
        results: The new latencies as measurements on the system, with all models of the table.
        added: Summary of what was added to the store.
        warnings: Warnings for the user, one sentence each.
    """

    results: Results
    added: ImportSummary
    warnings: tuple[str, ...]


def import_latencies(
    store: Store,
    system: System,
    runtime: Runtime,
    path: Path,
    cache: Path,
    *,
    models: str | None = None,
    levels: Sequence[str] = (),
    replaces: bool = False,
    progress: Progress | None = None,
    bench: Callable[[Store, System, Runtime], BenchmarkSession] = BenchmarkSession,
) -> LatencyImport:
    """Adds a table of observed latencies, and the models in it, to a store: either everything or nothing.

    A model that was measured on the system keeps its measurement; its observed latencies are left out.

    Args:
        store: Store that receives the latencies.
        system: System on which the latencies were observed, as `system_observed` returns it.
        runtime: Runtime that lowers the models.
        path: Path of the table, in the format of `costmodel.store.latency_csv`.
        cache: Folder in which lowered graphs are cached.
        models: Folder or corpus in which the table's model names are looked up; by default the models of the store,
            those of built corpora, and files beside the table.
        levels: Optimisation levels that the runtime may have had; the system gets the one whose layers predict
            held-out rows of the table best. By default that of `system`.
        replaces: Whether to remove all latencies of the system that were imported earlier.
        progress: Progress callback, called before each model and at the end.
        bench: Function that makes a benchmark session from a store, a system and a runtime; the session measures the
            capabilities of this host if they are unknown.

    Raises:
        DataFileError: The table is invalid, a model in it is not found or cannot be used, or a latency is not
            plausible; the message names the line of the table.
        StoreError: The store has a model of the same name with other layers.
        HostBusyError: The system is this host, was never measured, and another process is measuring.
    """
    rows = read_latencies(path)
    levels = tuple(levels) or (system.settings.level,)
    libraries = {level: ModelLibrary(store, runtime, level, path.parent, cache, models) for level in levels}
    # Names are looked up first, so that a wrong one is reported before anything is lowered.
    matches: dict[str, list[StoredModel | CorpusModel]] = {}
    for level in levels:
        try:
            matches[level] = _find(path, rows, libraries[level])
        except DataFileError:
            if level == levels[-1] and not matches:
                raise
    if not system.capabilities:
        with bench(store, system, runtime) as ready:
            system = ready.system
    level, warnings = _choose_level(store, system, path, rows, libraries, matches, progress)
    system = _with_level(system, level)
    library = libraries[level]
    steps = list(zip(rows, matches[level], strict=True))
    lowered: list[StoredModel] = []
    for row, model in reported(steps, lambda step: step[0].model, progress):
        with _line_in_errors(path, row):
            lowered.append(library.lowered(model))
    wholes = library.wholes(lowered)
    for row, model in zip(rows, lowered, strict=True):
        with _line_in_errors(path, row):
            _check_plausible(row, wholes[model.whole], system)
    observed = [(row, model.whole) for row, model in zip(rows, lowered, strict=True)]
    measurements = tuple(_new_measurements(store, system.name, observed, replaces=replaces))
    results = Results(system, measurements, library.sequences, tuple(dict.fromkeys(lowered)))
    added = store.put_results(results, replace_observed=replaces)
    added = replace(added, known=len(rows) - added.measurements)
    return LatencyImport(results, added, (*warnings, *_same_graphs(rows, lowered)))


def _find(path: Path, rows: Sequence[ObservedLatency], library: ModelLibrary) -> "list[StoredModel | CorpusModel]":
    """Returns the model of each row.

    Raises:
        DataFileError: A model is not found; the message names the line of the table.
    """
    found = []
    for row in rows:
        with _line_in_errors(path, row):
            found.append(library.find(row.model))
    return found


def _with_level(system: System, level: str) -> System:
    return replace(system, settings=replace(system.settings, level=level))


def _choose_level(
    store: Store,
    system: System,
    path: Path,
    rows: Sequence[ObservedLatency],
    libraries: "Mapping[str, ModelLibrary]",
    matches: "Mapping[str, Sequence[StoredModel | CorpusModel]]",
    progress: Progress | None,
) -> tuple[str, list[str]]:
    """Returns the optimisation level whose layers predict held-out latencies best, and a sentence that says so.

    Args:
        store: Store with the models that need not be lowered.
        system: System on which the latencies were observed.
        path: Path of the table.
        rows: Rows of the table.
        libraries: For each level, the models that the table may refer to.
        matches: For each level at which all models are found, the model of each row; the first is taken if levels
            cannot be compared.
        progress: Progress callback.
    """
    from costmodel.training.level_choice import LEAST_COMPARED, held_out_errors

    usual = next(iter(matches))
    if len(libraries) == 1:
        return usual, []
    unknown = f"it is not known at which level the runtime optimised these models, and {usual} is assumed"
    if len(matches) == 1 or len(rows) < LEAST_COMPARED:
        return usual, [f"{unknown}: give it with --level"]
    chosen = range(0, len(rows), math.ceil(len(rows) / _MOST_COMPARED))
    wholes: dict[str, list[LayerSequence]] = {}
    for level, models in reported(list(matches.items()), lambda item: f"level {item[0]}", progress):
        lowered = []
        for number in chosen:
            with _line_in_errors(path, rows[number]):
                lowered.append(libraries[level].lowered(models[number]))
        sequences = libraries[level].wholes(lowered)
        found = [sequences[model.whole] for model in lowered]
        if all([one.signature for one in found] != [one.signature for one in other] for other in wholes.values()):
            wholes[level] = found  # a level that gives the same layers as an earlier one need not be compared
    if len(wholes) == 1:
        return usual, []
    systems = {level: _with_level(system, level) for level in wholes}
    errors = held_out_errors(wholes, systems, [rows[number].latency_us for number in chosen])
    best = min(errors, key=errors.__getitem__)
    compared = ", ".join(f"{level} {error:.1%}" for level, error in errors.items())
    sentence = (
        f"the level at which the runtime optimised these models was chosen by the error on held-out rows: {best} "
        f"({compared}); --level says it if you know it"
    )
    return best, [sentence]


def _check_plausible(row: ObservedLatency, whole: LayerSequence, system: System) -> None:
    """Checks that a latency is possible on a system, above all that it has the right unit.

    Raises:
        DataFileError: The latency is far below the analytical bound of the model, or far above it.
    """
    from costmodel.features.analytical_bound import bound_us as analytical_bound_us

    bound_us = analytical_bound_us(whole, system)
    shown = f"{row.model} cannot take {row.latency_us:g} microseconds on hardware like that of {system.name}"
    if row.latency_us < bound_us / _FASTEST:
        raise DataFileError(
            f"{shown}, where its operations alone take about {format_us(bound_us)}: give microseconds, not "
            "milliseconds, and check the model"
        )
    if row.latency_us > _SLOWEST * bound_us + _SLOWEST_CALL_US and not is_data_dependent(whole):
        raise DataFileError(
            f"{shown}, where its operations take about {format_us(bound_us)}: give microseconds, not nanoseconds, and "
            "check the model"
        )


def _same_graphs(rows: Sequence[ObservedLatency], models: Sequence[StoredModel]) -> Iterator[str]:
    """Yields a sentence for each row whose model has the same layers as that of an earlier row."""
    first: dict[str, ObservedLatency] = {}
    for row, model in zip(rows, models, strict=True):
        earlier = first.setdefault(model.whole, row)
        if earlier is not row:
            yield (
                f"line {row.line}: {row.model} has the same layers as {earlier.model} in line {earlier.line}; the "
                "median of their latencies is used"
            )


@contextmanager
def _line_in_errors(path: Path, row: ObservedLatency) -> Iterator[None]:
    """Turns an error inside the context into a `DataFileError` whose message begins with the table's path and line."""
    try:
        yield
    except CostModelError as error:
        raise DataFileError(f"{path}, line {row.line}: {error}") from error


def _new_measurements(
    store: Store, system: str, wholes: Sequence[tuple[ObservedLatency, str]], *, replaces: bool
) -> Iterator[Measurement]:
    """Yields observed latencies as measurements, except those that would add nothing to the store.

    Left out are latencies of models that were measured on the system, and latencies that the store has already.

    Args:
        store: Store with the measurements so far.
        system: Name of the system.
        wholes: Each observed latency with the signature of the whole model.
        replaces: Whether the latencies that the store has already will be removed.
    """
    known: dict[str, list[Measurement]] = {}
    for measurement in store.measurements(system, {signature for _, signature in wholes}):
        if not (replaces and measurement.observed):
            known.setdefault(measurement.signature, []).append(measurement)
    at = now()
    for row, signature in wholes:
        earlier = known.get(signature, ())
        if not any(not one.observed or one.times_us == (row.latency_us,) for one in earlier):
            yield row.measurement(signature, at)
