"""The job of `costmodel bench --recheck`: measures those sequences again whose measurements look wrong."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.decomposed_models import decompose_models, measurement_groups
from costmodel.measure.groups import Group, groups_of_samples
from costmodel.progress import Stages, no_progress
from costmodel.runtimes.base import Runtime
from costmodel.store.store import Store
from costmodel.systems.system import System

__all__ = ["recheck"]


def recheck(
    store: Store,
    system: System,
    runtime: Runtime,
    target: str,
    cache: Path,
    *,
    budget_s: float | None = None,
    progress: Stages | None = None,
    bench: Callable[[Store, System, Runtime], BenchmarkSession] = BenchmarkSession,
) -> tuple[dict[str, frozenset[str]], BenchReport]:
    """Measures again the sequences of a corpus whose measurements look wrong, together with their models' other layers.

    Args:
        store: Store that has the measurements and receives the new ones.
        system: This host, described as a system; results are stored under its name.
        runtime: Runtime that lowers the models and runs their layer sequences.
        target: Name of a corpus, or path of a model or of a folder of models.
        cache: Folder in which lowered graphs are cached.
        budget_s: Seconds from the start after which no further measurement starts; None for no limit.
        progress: Function that takes the name of a stage of the job and returns its progress callback; None to report
            nothing.
        bench: Function that makes a benchmark session from a store, a system and a runtime.

    Returns:
        First the reasons why measurements on the system look wrong, by signature of the sequence, including sequences
        outside the corpus; second the report of the new measurements.

    Raises:
        TrainingError: There are too few measurements to tell which of them look wrong.
    """
    from costmodel.training.corpus import corpus_models
    from costmodel.training.dataset import load_dataset
    from costmodel.training.labels import suspects
    from costmodel.training.regressors.registry import LEARNERS

    stage = progress or no_progress
    dataset = load_dataset(store, system.name)
    sequences = store.sequences(dataset.signatures)
    reasons = suspects(dataset, sequences, store.measurements(system.name, dataset.signatures), LEARNERS["lightgbm"])
    models = decompose_models(
        corpus_models(target), runtime, system.settings.level, cache, progress=stage("lowering models")
    )
    whole_models = [group for item in models for group in measurement_groups(item, (1,))]
    groups = _groups(whole_models, {signature: sequences[signature] for signature in reasons}, store.samples())
    with bench(store, system, runtime) as session:
        return reasons, session.run(groups, budget_s=budget_s, progress=stage("measuring again"), again=True)


def _groups(models: Sequence[Group], wanted: Mapping[str, LayerSequence], origin_of: Mapping[str, str]) -> list[Group]:
    """Returns groups that measure the wanted sequences again, each in its context.

    A layer is timed among the other layers of its model, a sample beside the sequence that it was made from.

    Args:
        models: Group of all layers of each model.
        wanted: Sequences to measure, by signature.
        origin_of: Signature of the sequence that a sample was made from, by signature of the sample.
    """
    groups: list[Group] = []
    layers = {sequence.signature: sequence for group in models for sequence in group.sequences}
    left = wanted.keys() & layers.keys()
    for group in models:
        own = {sequence.signature for sequence in group.sequences}
        if mine := left & own:
            left -= mine
            groups.append(replace(group, whole=None, context_only=own - mine))
    samples = {
        signature: (sequence, layers[origin_of[signature]])
        for signature, sequence in wanted.items()
        if signature not in layers and origin_of.get(signature) in layers
    }
    return groups + groups_of_samples(samples, models)
