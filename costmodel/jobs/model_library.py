"""Finds the models that a table of observed latencies names, in the store, in a corpus or beside the table."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.errors import DataFileError
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.decomposed_models import decompose_models
from costmodel.runtimes.base import LEVELS, Runtime, lowering_key
from costmodel.store.results import StoredModel, StoredSegment
from costmodel.store.store import Store

if TYPE_CHECKING:
    from costmodel.training.corpus import CorpusModel

__all__ = ["ModelLibrary", "level_of"]


class ModelLibrary:
    """The models that a table of observed latencies may refer to, by name or path.

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
        """Returns the model with the name or path `text`.

        Raises:
            DataFileError: There is no such model, the store has several models of that name with different layers, or
                it is a mere collection of operators.
        """
        named = self._stored.get(text, [])
        stored = [model for model in named if level_of(model) in (self._level, None)]
        if len({model.whole for model in stored}) > 1:
            raise DataFileError(f"{text} was lowered in several ways here, to different layers: give its file")
        model = stored[0] if stored else self._named.get(text) or self._named.get(text.removesuffix(".onnx"))
        model = model or self._beside_table(text)
        if model is None and named:
            raise DataFileError(
                f"{text} is in the store only as the runtime lowers it at another level than {self._level}: give the "
                "folder or corpus of its file with --models"
            )
        if model is None:
            raise DataFileError(
                f"{text} is neither a model in {self._where} nor an ONNX file beside the table: correct it, or give "
                "the folder or corpus with --models"
            )
        if not model.family:
            raise DataFileError(f"{text} is a collection of operators, not a model: leave it out")
        return model

    def lowered(self, model: "StoredModel | CorpusModel") -> StoredModel:
        """Returns a model in the form that the store keeps, cut at granularity 1; lowers it unless the store has it.

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

    def wholes(self, models: Iterable[StoredModel]) -> dict[str, LayerSequence]:
        """Returns the whole models as layer sequences, by signature."""
        signatures = {model.whole for model in models}
        known = {signature: self.sequences[signature] for signature in signatures & self.sequences.keys()}
        return known | self._store.sequences(signatures - known.keys())

    @cached_property
    def _stored(self) -> dict[str, list[StoredModel]]:
        """Returns the models of the store by name; none if a folder or corpus is to be searched instead."""
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
        """Returns the model file at a path relative to the folder of the table; None if there is no such file."""
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


def level_of(model: StoredModel) -> str | None:
    """Returns the optimisation level at which a stored model was lowered; None if its lowering does not say it."""
    return next((level for level in LEVELS if f"-{level}-" in model.lowering), None)
