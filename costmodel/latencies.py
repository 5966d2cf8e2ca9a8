"""Observed latencies of whole models, brought into a store: which models they are of, and on which system."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.bench import Bench, Progress
from costmodel.errors import BrickError, CostModelError, UnknownSystemError
from costmodel.jobs import decompose_models
from costmodel.measurement import Measurement, now
from costmodel.observed import Observed, read_latencies
from costmodel.results import Added, Results, StoredModel, StoredPiece
from costmodel.runtimes import Runtime, lowering_key
from costmodel.sequence import LayerSequence
from costmodel.store import Store
from costmodel.systems import System, validate_name

if TYPE_CHECKING:
    from costmodel.training.corpus import CorpusModel

__all__ = ["import_latencies", "system_observed"]


def system_observed(store: Store, name: str, *, like: str | None = None, here: System | None = None) -> System:
    """The system on which something was observed.

    Args:
        store: What is known.
        name: Of the system.
        like: A known system whose hardware, runtime and settings it has, if it is not known itself; it is then marked
            as vouched for.
        here: This host, if that is what is meant by the name.

    Raises:
        UnknownSystemError: Neither the system nor the one that it is like is known.
        BrickError: It is known, and not like that one.
    """
    known = store.systems().get(validate_name(name))
    model = None if like is None else store.system(like)
    if known is None and model is not None:
        known = replace(model, name=name, asserted=True)
    elif known is not None and model is not None and (known.host, known.settings) != (model.host, model.settings):
        raise BrickError(f"the system {name} is known already, and is not like {like}: leave out --like")
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
    bench: Callable[[Store, System, Runtime], Bench] = Bench,
) -> tuple[Results, Added]:
    """Add a table of observed latencies to a store, with the models that they are of: all of it, or nothing.

    A model that was measured on the system keeps that measurement, and what was observed of it is left out.

    Args:
        store: Where it goes.
        system: On which the latencies were observed, as `system_observed` gives it.
        runtime: What lowers the models.
        path: The table; `costmodel.observed` says what is in it.
        cache: Folder of lowered graphs.
        models: Folder or corpus where its names are looked up; by default the models of the store, those of corpora
            that are built, and files beside the table.
        progress: Told before each model.
        bench: Makes what gets to know the system, where that is this host and was never measured.

    Returns:
        What is new in the table, as records of the system, with all its models, and how much of it is new in the store.

    Raises:
        BrickError: The table is not sound, or a model in it is not found or cannot be used; the message has the line.
        StoreError: The name of a model stands for other layers here.
        HostBusyError: The system is this host, was never measured, and another process is measuring.
    """
    rows = read_latencies(path)
    library = _Library(store, runtime, system.settings.level, path.parent, cache, models)
    # Twice over the rows: a wrong name is told before anything is lowered.
    meant: list[tuple[Observed, StoredModel | CorpusModel]] = []
    for row in rows:
        with _told(path, row):
            meant.append((row, library.find(row.model)))
    found: dict[int, StoredModel] = {}
    for done, (row, model) in enumerate(meant):
        if progress is not None:
            progress(done, len(rows), row.model)
        with _told(path, row):
            found[row.line] = library.lowered(model)
    if progress is not None:
        progress(len(rows), len(rows), "")
    if not system.capabilities:
        with bench(store, system, runtime) as ready:
            system = ready.system
    wholes = [(row, found[row.line].whole) for row in rows]
    results = Results(system, tuple(_new(store, system.name, wholes)), library.sequences, tuple(found.values()))
    added = store.put_results(results)
    return results, replace(added, known=len(rows) - added.measurements)


@contextmanager
def _told(path: Path, row: Observed) -> Iterator[None]:
    """Errors with the line that they are about."""
    try:
        yield
    except CostModelError as error:
        raise BrickError(f"{path}, line {row.line}: {error}") from error


def _new(store: Store, system: str, wholes: Sequence[tuple[Observed, str]]) -> Iterator[Measurement]:
    """Measurements of what is not known of the system already, neither measured nor observed alike."""
    known: dict[str, list[Measurement]] = {}
    for measurement in store.measurements(system, {signature for _, signature in wholes}):
        known.setdefault(measurement.signature, []).append(measurement)
    at = now()
    for row, signature in wholes:
        had = known.get(signature, ())
        if not any(not one.observed or one.times_us == (row.latency_us,) for one in had):
            yield row.measurement(signature, at)


class _Library:
    """Where the models of a table are found; those that had to be lowered bring their sequences along."""

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
        """The model of that name or path.

        Raises:
            BrickError: There is none, or it is no model of anybody's.
        """
        stored = self._stored.get(text, [])
        if len({model.whole for model in stored}) > 1:
            raise BrickError(f"{text} was lowered in several ways here, to different layers: give its file")
        found = stored[0] if stored else self._named.get(text) or self._named.get(text.removesuffix(".onnx"))
        found = found or self._beside(text)
        if found is None:
            raise BrickError(
                f"{text} is neither a model in {self._where} nor an ONNX file beside the table: correct it, or give "
                "the folder or corpus with --models"
            )
        if not found.family:
            raise BrickError(f"{text} is no model of anybody's, but operators put together: leave it out")
        return found

    def lowered(self, found: "StoredModel | CorpusModel") -> StoredModel:
        """What it is made of, at granularity 1.

        Raises:
            ModelError: It cannot be read or lowered.
        """
        if isinstance(found, StoredModel):
            return found
        (item,) = decompose_models([found], self._runtime, self._level, self._cache)
        self.sequences |= {**item.decomposition.unique, item.whole.signature: item.whole}
        return StoredModel(
            name=item.model.name,
            lowering=lowering_key(self._runtime, self._level),
            granularity=1,
            family=item.family,
            whole=item.whole.signature,
            pieces=tuple(StoredPiece(p.sequence.signature, p.layers, p.needs) for p in item.decomposition.pieces),
            digest=item.model.digest,
        )

    @cached_property
    def _stored(self) -> dict[str, list[StoredModel]]:
        """The store's models by name, if they may be meant."""
        found: dict[str, list[StoredModel]] = {}
        for model in self._store.models() if self._models is None else ():
            if model.granularity == 1:
                found.setdefault(model.name, []).append(model)
        return found

    @cached_property
    def _named(self) -> "dict[str, CorpusModel]":
        from costmodel.training.corpus import corpus_models, known_models

        return {
            model.name: model for model in (known_models() if self._models is None else corpus_models(self._models))
        }

    def _beside(self, text: str) -> "CorpusModel | None":
        """The file of that path, seen from the table."""
        from costmodel.training.corpus import corpus_models

        try:
            path = self._folder / text
            if not path.is_file():
                return None
        except (OSError, ValueError):  # too long a name, or one that no file has
            return None
        (model,) = corpus_models(path)
        # Two files of one name in different folders are two models.
        return replace(model, name=str(Path(text).with_suffix("")) if not Path(text).is_absolute() else model.name)
