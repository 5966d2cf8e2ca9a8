"""The job of `costmodel bench`: measures what the store lacks of a corpus, of models, or of a benchmark suite."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from costmodel.errors import MeasurementError
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.benchmark_session import BenchmarkSession, BenchReport
from costmodel.jobs.decomposed_models import DecomposedModel, decompose_models, measurement_groups, put_models
from costmodel.measure.groups import Group, grouped, groups_of_samples
from costmodel.onnx_io.model import Model
from costmodel.partition.suite import is_suite, read_suite
from costmodel.progress import Progress, Stages, no_progress
from costmodel.runtimes.base import Runtime, lowering_key
from costmodel.store.store import Store
from costmodel.synthetic.sampling import sample_around
from costmodel.systems.system import System

__all__ = ["bench_target", "measure_models", "runnable_on"]

# Number of sequences that are measured a second time, which gives the noise floor.
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
    progress: Stages | None = None,
) -> BenchReport:
    """Measures what the store lacks of a corpus, a folder of models, one model, or a benchmark suite.

    Args:
        store: Store that receives the results.
        system: This host as a system under its name.
        runtime: Runtime that runs the networks.
        target: Name of a corpus, or path of a model, a folder of models or a benchmark suite.
        cache: Folder of lowered graphs.
        granularities: Maximum numbers of layers in a sequence; ignored for a benchmark suite, which is cut already.
        samples: Number of samples to measure as well, made from the target's sequences.
        budget_s: Seconds after which no measurement starts; None for no limit.
        progress: Function that returns the progress callback of a named stage.
    """
    stage = progress or no_progress
    models: list[DecomposedModel] = []
    refused: dict[str, str] = {}
    if is_suite(Path(target)):
        sequences = read_suite(Path(target))
    else:
        from costmodel.training.corpus import corpus_models

        models = decompose_models(
            corpus_models(target), runtime, system.settings.level, cache, granularity=granularities[0],
            refused=refused, progress=stage("lowering models"),
        )  # fmt: skip
        put_models(store, models, lowering_key(runtime, system.settings.level), granularities)
        sequences = list({s: q for item in models for s, q in item.decomposition.unique.items()}.values())
    groups = [group for item in models for group in measurement_groups(item, granularities)] or grouped(sequences)
    with BenchmarkSession(store, system, runtime) as bench:
        report = bench.run(groups, budget_s=budget_s, progress=stage("measuring"))
        if samples and not report.left:
            around = _samples(sequences, samples, bench.system)
            store.put_samples(around)
            sample_report = bench.run(
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
        if not report.left:
            second = bench.run(
                _to_repeat(groups, store.repeated(system.name), report.failed),
                budget_s=_rest(budget_s, report),
                progress=stage("measuring again"),
                again=True,
            )
            report.repeated += second.measured
            report.seconds += second.seconds
            report.left += second.left
    report.failed = refused | report.failed
    return report


def _rest(budget_s: float | None, report: BenchReport) -> float | None:
    return None if budget_s is None else max(0.0, budget_s - report.seconds)


def _samples(
    sequences: Sequence[LayerSequence], count: int, system: System
) -> dict[str, tuple[LayerSequence, LayerSequence]]:
    """Samples around expensive sequences and rare kinds, where an error of prediction hurts most."""
    from costmodel.features.analytical_bound import bound_us

    of_kind = Counter(sequence.kind for sequence in sequences)
    bounds = [bound_us(sequence, system) for sequence in sequences]
    total = sum(math.sqrt(bound) for bound in bounds)
    # Half of the samples are drawn by the square root of the cost (the cost itself would favour a few giants), half are
    # spread evenly over the kinds.
    weights = [
        math.sqrt(bound) / total + 1 / (len(of_kind) * of_kind[sequence.kind])
        for sequence, bound in zip(sequences, bounds, strict=True)
    ]
    return sample_around(sequences, count, weights=weights)


def _to_repeat(groups: Iterable[Group], repeated: Set[str], failed: Iterable[str]) -> list[Group]:
    """Chooses groups to measure once more, until `REPEATED_SEQUENCES` sequences are measured twice.

    Args:
        groups: Groups that were measured.
        repeated: Signatures that are measured twice already.
        failed: Signatures that cannot be measured.
    """
    wanted = REPEATED_SEQUENCES - len(repeated)
    found = []
    for group in groups:
        once = [sequence for sequence in group.sequences if sequence.signature not in repeated | set(failed)]
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
) -> dict[str, float]:
    """Measures models end to end on this host without storing the results; returns microseconds by name.

    Raises:
        HostBusyError: Another process is measuring.
        SystemMismatchError: `system` is not this host.
    """
    latencies = {}
    with BenchmarkSession(store, system, runtime) as bench:
        for done, (name, (whole, model)) in enumerate(models.items()):
            if progress is not None:
                progress(done, len(models), name)
            latencies[name] = bench.measure_model(whole, model).latency_us
    if progress is not None:
        progress(len(models), len(models), "")
    return latencies


def runnable_on(runtime: Runtime, system: System) -> Callable[[LayerSequence], bool]:
    """Returns a function that tests whether a sequence runs on this host."""

    def runs(sequence: LayerSequence) -> bool:
        try:
            runtime.open_sequence(sequence, system.settings).run()
        except MeasurementError:
            return False
        return True

    return runs
