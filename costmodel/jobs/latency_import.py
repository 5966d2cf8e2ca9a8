"""The job of `costmodel import` for a .csv: adds observed latencies of whole models to a store."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.errors import CostModelError, DataFileError, UnknownSystemError
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.decomposed_models import decompose_models
from costmodel.measure.measurement import Measurement, now
from costmodel.progress import Progress
from costmodel.runtimes.base import Runtime, lowering_key
from costmodel.store.latency_csv import ObservedLatency, read_latencies
from costmodel.store.results import ImportSummary, Results, StoredModel, StoredSegment
from costmodel.store.store import Store
from costmodel.systems.system import System, validate_name

if TYPE_CHECKING:
    from costmodel.training.corpus import CorpusModel

__all__ = ["import_latencies", "system_observed"]


def system_observed(store: Store, name: str, *, like: str | None = None, here: System | None = None) -> System:
    """Returns the system on which latencies were observed.

    Args:
        store: Store with the known systems.
        name: Name of the system.
        like: Name of a known system with the same hardware, runtime and settings, for a system that is not known; the
            new system is marked as asserted.
        here: This host as a system, if `name` stands for it.

    Raises:
        UnknownSystemError: Neither the system nor `like` is known, or the system's capabilities are unknown.
        DataFileError: The system is known, and differs from `like`.
    """
    known = store.systems().get(validate_name(name))
    template = None if like is None else store.system(like)
    if known is None and template is not None:
        known = replace(template, name=name, asserted=True)
    elif (
        known is not None
        and template is not None
        and (known.host, known.settings) != (template.host, template.settings)
    ):
        raise DataFileError(f"the system {name} is known already, and is not like {like}: leave out --like")
    known = known or here
    if known is None:
        raise UnknownSystemError(
            f"the system {name} is not known here: name a known one of the same hardware with --like, or pass "
            "--assert-system if it is this host"
        )
    if not known.capabilities and known is not here:
        raise UnknownSystemError(
            f"of the system {name} it is not known what its hardware can do: run `costmodel bench --system {name}` on "
            "that machine and import what it exports"
        )
    return known


def import_latencies(
    store: Store,
    system: System,
    runtime: Runtime,
    path: Path,
    cache: Path,
    *,
    models: str | None = None,
    progress: Progress | None = None,
    bench: Callable[[Store, System, Runtime], BenchmarkSession] = BenchmarkSession,
) -> tuple[Results, ImportSummary]:
    """Adds a table of observed latencies and their models to a store, either all of it or nothing.

    A model that was measured on the system keeps its measurement; its observed latencies are left out.

    Args:
        store: Store that receives the latencies.
        system: System on which the latencies were observed, as `system_observed` returns it.
        runtime: Runtime that lowers the models.
        path: Path of the table, in the format of `costmodel.store.latency_csv`.
        cache: Folder of lowered graphs.
        models: Folder or corpus in which the table's model names are looked up; by default the models of the store,
            those of built corpora, and files beside the table.
        progress: Progress callback, called before each model and at the end.
        bench: Constructor of the benchmark session that measures the capabilities of this host, if they are unknown.

    Returns:
        The new latencies as records of the system, with all models of the table, and the numbers of records that the
        store added.

    Raises:
        DataFileError: The table is invalid, or a model in it is not found or cannot be used; the message has the line.
        StoreError: The store has a model of the same name with other layers.
        HostBusyError: The system is this host, was never measured, and another process is measuring.
    """
    rows = read_latencies(path)
    library = _Library(store, runtime, system.settings.level, path.parent, cache, models)
    # Two passes over the rows, so that a wrong name is reported before anything is lowered.
    matches: list[tuple[ObservedLatency, StoredModel | CorpusModel]] = []
    for row in rows:
        with _line_in_errors(path, row):
            matches.append((row, library.find(row.model)))
    lowered: dict[int, StoredModel] = {}
    for done, (row, model) in enumerate(matches):
        if progress is not None:
            progress(done, len(rows), row.model)
        with _line_in_errors(path, row):
            lowered[row.line] = library.lowered(model)
    if progress is not None:
        progress(len(rows), len(rows), "")
    if not system.capabilities:
        with bench(store, system, runtime) as ready:
            system = ready.system
    wholes = [(row, lowered[row.line].whole) for row in rows]
    measurements = tuple(_new_measurements(store, system.name, wholes))
    results = Results(system, measurements, library.sequences, tuple(lowered.values()))
    added = store.put_results(results)
    return results, replace(added, known=len(rows) - added.measurements)


@contextmanager
def _line_in_errors(path: Path, row: ObservedLatency) -> Iterator[None]:
    """Adds the line of the table to the messages of errors."""
    try:
        yield
    except CostModelError as error:
        raise DataFileError(f"{path}, line {row.line}: {error}") from error


def _new_measurements(
    store: Store, system: str, wholes: Sequence[tuple[ObservedLatency, str]]
) -> Iterator[Measurement]:
    """Yields the rows, as measurements, of models that are neither measured nor have the same observed latency."""
    known: dict[str, list[Measurement]] = {}
    for measurement in store.measurements(system, {signature for _, signature in wholes}):
        known.setdefault(measurement.signature, []).append(measurement)
    at = now()
    for row, signature in wholes:
        earlier = known.get(signature, ())
        if not any(not one.observed or one.times_us == (row.latency_us,) for one in earlier):
            yield row.measurement(signature, at)


class _Library:
    """The models that a table may refer to.

    Attributes:
        sequences: Layer sequences, by signature, of the models that had to be lowered.
    """

    def __init__(
        self, store: Store, runtime: Runtime, level: str, folder: Path, cache: Path, models: str | None
    ) -> None:
        self.sequences: dict[str, LayerSequence] = {}
        self._store = store
        self._runtime = runtime
        self._level = level
        self._folder = folder
        self._cache = cache
        self._models = models
        self._where = models if models is not None else "the store, in a corpus that is built"

    def find(self, text: str) -> "StoredModel | CorpusModel":
        """Finds the model with a name or path.

        Raises:
            DataFileError: There is no such model, it was lowered in several ways, or it is a mere collection of
                operators.
        """
        stored = self._stored.get(text, [])
        if len({model.whole for model in stored}) > 1:
            raise DataFileError(f"{text} was lowered in several ways here, to different layers: give its file")
        model = stored[0] if stored else self._named.get(text) or self._named.get(text.removesuffix(".onnx"))
        model = model or self._beside_table(text)
        if model is None:
            raise DataFileError(
                f"{text} is neither a model in {self._where} nor an ONNX file beside the table: correct it, or give "
                "the folder or corpus with --models"
            )
        if not model.family:
            raise DataFileError(f"{text} is a collection of operators, not a model: leave it out")
        return model

    def lowered(self, model: "StoredModel | CorpusModel") -> StoredModel:
        """Lowers a model, unless the store has it, and cuts it at granularity 1.

        Raises:
            ModelError: The model cannot be read or lowered.
        """
        if isinstance(model, StoredModel):
            return model
        (item,) = decompose_models([model], self._runtime, self._level, self._cache)
        self.sequences |= {**item.decomposition.unique, item.whole.signature: item.whole}
        return StoredModel(
            name=item.model.name,
            lowering=lowering_key(self._runtime, self._level),
            granularity=1,
            family=item.family,
            whole=item.whole.signature,
            segments=tuple(
                StoredSegment(p.sequence.signature, p.layers, p.predecessors) for p in item.decomposition.segments
            ),
            digest=item.model.digest,
        )

    @cached_property
    def _stored(self) -> dict[str, list[StoredModel]]:
        """Models of the store by name; empty if a folder or corpus was given."""
        by_name: dict[str, list[StoredModel]] = {}
        for model in self._store.models() if self._models is None else ():
            if model.granularity == 1:
                by_name.setdefault(model.name, []).append(model)
        return by_name

    @cached_property
    def _named(self) -> "dict[str, CorpusModel]":
        from costmodel.training.corpus import corpus_models, known_models

        return {
            model.name: model for model in (known_models() if self._models is None else corpus_models(self._models))
        }

    def _beside_table(self, text: str) -> "CorpusModel | None":
        """The model file at a path relative to the folder of the table; None if there is none."""
        from costmodel.training.corpus import corpus_models

        try:
            path = self._folder / text
            if not path.is_file():
                return None
        except (OSError, ValueError):  # the name is too long, or contains a null character
            return None
        (model,) = corpus_models(path)
        # Named by its path: files of one name in different folders are different models.
        return replace(model, name=str(Path(text).with_suffix("")) if not Path(text).is_absolute() else model.name)
