"""Selects what an evaluation is about: its models at each batch size, and its systems."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from costmodel.errors import EvaluationFileError
from costmodel.jobs.decomposed_models import DecomposedModel, decompose_models
from costmodel.jobs.evaluation.spec import HERE, EvaluationSpec
from costmodel.progress import Stages, no_progress
from costmodel.runtimes.base import Runtime, RuntimeSettings
from costmodel.training.corpus import CorpusModel, corpus_models

__all__ = ["Variant", "decomposed_variants", "evaluated_models", "evaluated_settings"]


@dataclass(frozen=True, slots=True)
class Variant:
    """A model at one batch size.

    Attributes:
        model: The model.
        batch: Batch size; None for that of the model's file.
        item: The model at that batch size, decomposed.
    """

    model: CorpusModel
    batch: int | None
    item: DecomposedModel


def evaluated_models(spec: EvaluationSpec) -> list[CorpusModel]:
    """Returns the models that a spec selects, in the order of the spec.

    Raises:
        EvaluationFileError: No model is selected, or two models have the same name.
        ModelReadError: There is no such corpus, it is not built, or a folder has no model in it.
    """
    found = {model.path: model for source in spec.models.include for model in corpus_models(source)}
    chosen = [
        model
        for model in found.values()
        if any(fnmatchcase(model.name, pattern) for pattern in spec.models.match)
        and not any(fnmatchcase(model.name, pattern) for pattern in spec.models.exclude)
    ]
    if not chosen:
        raise EvaluationFileError(
            f"{spec.name} selects none of the {len(found)} models in models.include: change models.match or "
            "models.exclude"
        )
    names = Counter(model.name for model in chosen)
    if twice := [name for name, count in names.items() if count > 1]:
        raise EvaluationFileError(
            f"{spec.name} has several models called {twice[0]}: rename the files, or leave one out"
        )
    return chosen


def evaluated_settings(spec: EvaluationSpec) -> Iterator[tuple[str | None, RuntimeSettings]]:
    """Yields the name of each system and its settings; for this host, the name is None."""
    for name in dict.fromkeys(spec.systems.names):
        if name != HERE:
            yield name, RuntimeSettings()
            continue
        for level in dict.fromkeys(spec.systems.levels):
            for threads in dict.fromkeys(spec.systems.threads):
                yield None, RuntimeSettings(threads, level)


def decomposed_variants(
    spec: EvaluationSpec, runtime: Runtime, level: str, cache: Path, refused: dict[str, str], progress: Stages | None
) -> Iterator[Variant]:
    """Yields the models that a spec selects, decomposed, at each batch size; adds those that fail to `refused`."""
    stage = progress or no_progress
    models = evaluated_models(spec)
    for batch in dict.fromkeys(spec.scenario.batches or (None,)):
        # The store knows a model by its name, and at another batch size it has other layers.
        named = [model if batch is None else replace(model, name=f"{model.name}_b{batch}") for model in models]
        of_name = {one.name: model for one, model in zip(named, models, strict=True)}
        for item in decompose_models(
            named, runtime, level, cache, granularity=spec.layers.granularities[0], batch=batch, refused=refused,
            progress=stage("lowering models"),
        ):  # fmt: skip
            yield Variant(of_name[item.model.name], batch, item)
