"""The job of `costmodel bench`: measures the sequences of models, or of a benchmark suite, that the store lacks."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from costmodel.errors import MeasurementError
from costmodel.ir.footprint import weight_bytes
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.decomposed_models import DecomposedModel, decompose_models, measurement_groups, put_models
from costmodel.jobs.layer_choice import LayerChoice, choose_layers
from costmodel.jobs.passes import run_passes
from costmodel.jobs.sample_choice import chosen_samples
from costmodel.measure.duration import estimated_group_seconds
from costmodel.measure.groups import Group, grouped, groups_of_samples
from costmodel.measure.measurement import Measurement
from costmodel.measure.protocol import QUICK
from costmodel.onnx_io.model import Model
from costmodel.partition.suite import is_suite, read_suite
from costmodel.progress import Progress, Stages, no_progress, reported
from costmodel.runtimes.base import Runtime, lowering_key
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from costmodel.systems.system import System

__all__ = ["bench_target", "layers_worth_measuring", "measure_models", "runnable_on", "with_chosen"]

# Number of sequences that are measured a second time by default, which gives the noise floor.
REPEATED_SEQUENCES = 40


def bench_target(
    store: Store,
    system: System,
    runtime: Runtime,
    target: str,
    cache: Path,
    *,
    granularities: Sequence[int] = (1,),
    samples: int = 0,
    budget_s: float | None = None,
    repeated_sequences: int = REPEATED_SEQUENCES,
    layers: bool = True,
    wholes: bool = True,
    passes: int = 1,
    error: float | None = None,
    batch: int | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    values: Mapping[str, float] | None = None,
    predictor: Predictor | None = None,
    progress: Stages | None = None,
    bench: Callable[[Store, System, Runtime], BenchmarkSession] = BenchmarkSession,
) -> BenchReport:
    """Measures those sequences of a corpus, a folder of models, one model or a benchmark suite that the store lacks.

    Args:
        store: Store that receives the results.
        system: This host, described as a system; results are stored under its name.
        runtime: Runtime that lowers the models and runs their layer sequences.
        target: Name of a corpus, or path of a model, a folder of models or a benchmark suite.
        cache: Folder in which lowered graphs are cached.
        granularities: Granularities to cut the models at; ignored for a benchmark suite, which is cut already.
        samples: Number of samples that are made from the target's sequences and measured as well; earlier ones count.
        budget_s: Seconds from the start after which no further measurement starts; None for no limit.
        repeated_sequences: Number of sequences that are to have two measurements, whose differences give the noise
            floor.
        layers: Whether the sequences of the models are measured; if not, only the models end to end.
        wholes: Whether each model is measured end to end as well.
        passes: Number of measurements that each model is to have end to end, and with it the layers that are measured;
            those in the store count.
        error: Only those layers are measured without which the expected error of the models would exceed this, as a
            fraction (root mean square over the models); None to measure all layers.
        batch: Batch size to use where a model leaves it symbolic; see `read_model`. A benchmark suite ignores it.
        shapes: Full shapes of inputs, by name of the input; see `read_model`. A benchmark suite ignores them.
        values: Values of inputs that control what a model does, by name of the input; see `read_model`. A benchmark
            suite ignores them.
        predictor: Predictor of the system, with a regressor; needed if there is an `error`.
        progress: Function that takes the name of a stage of the job and returns its progress callback; None to report
            nothing.
        bench: Function that makes a benchmark session from a store, a system and a runtime.

    Raises:
        MeasurementError: Only whole models, or the layers that models need for an expected error, are to be measured,
            and the target is a benchmark suite.
    """
    stage = progress or no_progress
    models: list[DecomposedModel] = []
    refused: dict[str, str] = {}
    if is_suite(Path(target)):
        if not layers or error is not None:
            raise MeasurementError(f"{target} is a benchmark suite, which has no whole models: name the models instead")
        sequences = read_suite(Path(target))
    else:
        from costmodel.training.corpus import corpus_models

        models = decompose_models(
            corpus_models(target), runtime, system.settings.level, cache, granularity=granularities[0],
            batch=batch, shapes=shapes, values=values, refused=refused, progress=stage("lowering models"),
        )  # fmt: skip
        put_models(store, models, lowering_key(runtime, system.settings.level), granularities)
        sequences = list({s: q for item in models for s, q in item.decomposition.unique.items()}.values())
    groups = [group for item in models for group in measurement_groups(item, granularities)] or grouped(sequences)
    if not wholes:
        groups = [replace(group, whole=None) for group in groups]
    if not layers:
        groups = [replace(group, sequences=()) for group in groups if group.whole is not None]
    choice = None
    if predictor is not None and error is not None:
        choice = layers_worth_measuring(models, predictor, error, known=set(store.latencies_us(system.name)))
        groups = with_chosen(groups, choice.signatures)
    with bench(store, system, runtime) as session:
        session.crashes = cache
        report = run_passes(store, session, groups, passes, budget_s=budget_s, stage=stage)
        if samples and not report.left:
            around = chosen_samples(store, session.system, sequences, samples)
            store.put_samples(around)
            sample_report = session.run(
                groups_of_samples(
                    around, [group for item in models for group in measurement_groups(item, granularities[:1])]
                ),
                budget_s=_rest(budget_s, report),
                progress=stage("measuring samples"),
            )
            # A sample whose changed size does not fit its layer cannot run; it occurs in no model, so it is no failure.
            sample_report.dropped = len(sample_report.failed)
            sample_report.failed.clear()
            report += sample_report
        if layers and not report.left:
            again = session.run(
                _to_repeat(groups, repeated_sequences, store.repeated_signatures(system.name), report.failed),
                budget_s=_rest(budget_s, report),
                progress=stage("measuring again"),
                again=True,
            )
            report.add_repeats(again)
    report.failed = refused | report.failed
    report.choice = choice
    return report


def layers_worth_measuring(
    models: Sequence[DecomposedModel], predictor: Predictor, error: float, *, known: Set[str] = frozenset()
) -> LayerChoice:
    """Chooses the layers that models need to be measured for an expected error.

    Args:
        models: Models that are cut into single layers.
        predictor: Predictor of the system, with a regressor.
        error: Root mean square of the models' expected errors that is to be reached, as a fraction.
        known: Signatures of layers that are measured already.
    """
    cuts = [model.decomposition for model in models]
    estimates = predictor.estimate_all(cuts, measured=False)
    latencies_us = {layer.signature: layer.cost.latency_us for one in estimates for layer in one.layers}
    # Which layers are worth their time hardly depends on how often they run.
    seconds = {
        signature: estimated_group_seconds([latencies_us[signature]], weight_bytes(sequence), 0, QUICK)
        for cut in cuts
        for signature, sequence in cut.unique.items()
    }
    return choose_layers(estimates, seconds, error, correlation=predictor.uncertainty.correlation, known=known)


def with_chosen(groups: Iterable[Group], chosen: Set[str]) -> list[Group]:
    """Returns the groups with the chosen sequences only, without those of which nothing is left to measure."""
    found = [replace(group, sequences=tuple(s for s in group.sequences if s.signature in chosen)) for group in groups]
    return [group for group in found if group.sequences or group.whole is not None]


def _rest(budget_s: float | None, report: BenchReport) -> float | None:
    return None if budget_s is None else max(0.0, budget_s - report.seconds)


def _to_repeat(groups: Iterable[Group], count: int, repeated: Set[str], failed: Iterable[str]) -> list[Group]:
    """Returns groups to measure once more, so that about `count` sequences are measured twice in the end.

    Args:
        groups: Groups that were measured.
        count: Number of sequences that are to be measured twice, including those in `repeated`.
        repeated: Signatures of sequences that are measured twice already.
        failed: Signatures of sequences that cannot be measured.
    """
    wanted = count - len(repeated)
    excluded = repeated | set(failed)
    found = []
    for group in groups:
        once = [sequence for sequence in group.sequences if sequence.signature not in excluded]
        if wanted > 0 and once:
            of_model = group.footprint_bytes is not None
            found.append(replace(group, whole=None, sequences=group.sequences if of_model else tuple(once[:wanted])))
            wanted -= len(once)
    return found


def measure_models(
    store: Store,
    system: System,
    runtime: Runtime,
    models: Mapping[str, tuple[LayerSequence, Model]],
    progress: Progress | None = None,
    *,
    bench: Callable[[Store, System, Runtime], BenchmarkSession] = BenchmarkSession,
) -> dict[str, Measurement]:
    """Measures models end to end on this host without storing the measurements.

    Args:
        store: Store that receives the system with its capabilities if it lacks them.
        system: This host, described as a system.
        runtime: Runtime that runs the models.
        models: By name of the model: all its layers as one sequence, and the model itself.
        progress: Progress callback, called before each model and at the end.
        bench: Function that makes a benchmark session from a store, a system and a runtime.

    Returns:
        The measurement of each model, by name of the model.

    Raises:
        HostBusyError: Another process is measuring.
        SystemMismatchError: `system` is not this host.
    """
    measurements = {}
    with bench(store, system, runtime) as session:
        for name, (whole, model) in reported(models.items(), lambda item: item[0], progress):
            measurements[name] = session.measure_model(whole, model)
    return measurements


def runnable_on(runtime: Runtime, system: System) -> Callable[[LayerSequence], bool]:
    """Returns a function that runs a layer sequence on this host and returns whether that succeeded."""

    def runs(sequence: LayerSequence) -> bool:
        try:
            runtime.open_sequence(sequence, system.settings).run()
        except MeasurementError:
            return False
        return True

    return runs
