"""Measuring again what looks wrong: an entry point that ties labels, models and the benchmark together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from costmodel.bench import Bench, BenchReport, Progress
from costmodel.groups import Group, among_their_origins
from costmodel.jobs import decompose_models, groups_of
from costmodel.runtimes import Runtime
from costmodel.sequence import LayerSequence
from costmodel.store import Store
from costmodel.systems import System

__all__ = ["recheck"]


def recheck(
    store: Store,
    system: System,
    runtime: Runtime,
    target: str,
    cache: Path,
    *,
    budget_s: float | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> tuple[dict[str, frozenset[str]], BenchReport]:
    """Measure what looks wrong of a corpus once more, among the other layers of its models as before.

    Args:
        store: Where the measurements are, and new ones go.
        system: This host, under its name.
        runtime: What runs the networks.
        target: Name of a corpus, or a path of models.
        cache: Folder of lowered graphs.
        budget_s: No measurement starts later than this; None for no limit.
        progress: Gives what to tell about the stage of that name.

    Returns:
        Why each signature looks wrong, those of other models too, and what was done.

    Raises:
        TrainingError: Too little is measured to say what is usual.
    """
    from costmodel.training.corpus import corpus_models
    from costmodel.training.dataset import load_dataset
    from costmodel.training.labels import suspects
    from costmodel.training.regressors import LEARNERS

    tell = progress or (lambda _: lambda done, total, what: None)
    dataset = load_dataset(store, system.name)
    sequences = store.sequences(dataset.signatures)
    found = suspects(dataset, sequences, store.measurements(system.name, dataset.signatures), LEARNERS["lightgbm"])
    models = decompose_models(
        corpus_models(target), runtime, system.settings.level, cache, progress=tell("lowering models")
    )
    whole_models = [group for item in models for group in groups_of(item, (1,))]
    groups = _groups(whole_models, {signature: sequences[signature] for signature in found}, store.samples())
    with Bench(store, system, runtime) as bench:
        return found, bench.run(groups, budget_s=budget_s, progress=tell("measuring again"), again=True)


def _groups(models: Sequence[Group], wanted: Mapping[str, LayerSequence], origin_of: Mapping[str, str]) -> list[Group]:
    """What is wanted, among the layers of a model that has it, or behind the one that it was sampled around."""
    found: list[Group] = []
    layers = {sequence.signature: sequence for group in models for sequence in group.sequences}
    left = wanted.keys() & layers.keys()
    for group in models:
        own = {sequence.signature for sequence in group.sequences}
        if mine := left & own:
            left -= mine
            found.append(replace(group, whole=None, company=own - mine))
    samples = {
        signature: (sequence, layers[origin_of[signature]])
        for signature, sequence in wanted.items()
        if signature not in layers and origin_of.get(signature) in layers
    }
    return found + among_their_origins(samples, models)
