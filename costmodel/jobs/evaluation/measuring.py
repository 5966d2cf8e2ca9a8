"""Measures on this host what an evaluation needs."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.decomposed_models import DecomposedModel, measurement_groups, put_models
from costmodel.jobs.evaluation.selection import decomposed_variants
from costmodel.jobs.evaluation.spec import EvaluationSpec
from costmodel.measure.groups import Group
from costmodel.progress import Stages, no_progress
from costmodel.runtimes.base import Runtime, lowering_key
from costmodel.store.store import Store
from costmodel.systems.system import System

__all__ = ["measure_here"]


def measure_here(
    spec: EvaluationSpec,
    store: Store,
    system: System,
    runtime: Runtime,
    cache: Path,
    *,
    progress: Stages | None = None,
    bench: Callable[[Store, System, Runtime], BenchmarkSession] = BenchmarkSession,
) -> BenchReport:
    """Measures what an evaluation needs of this host and the store lacks; resumable at any moment.

    Each seed is a pass over the models, in an order of its own. In the first pass sequences are measured that the store
    has no measurement of, in the second those that it has only one of, and so on.

    Args:
        spec: What to evaluate.
        store: Store that receives the models and the measurements.
        system: This host, described as a system.
        runtime: Runtime that lowers and runs the models.
        cache: Folder in which lowered graphs are cached.
        progress: Function that takes the name of a stage of the job and returns its progress callback; None to report
            nothing.
        bench: Function that makes a benchmark session from a store, a system and a runtime.

    Raises:
        HostBusyError: Another process is measuring.
        SystemMismatchError: The store has a system of that name with another machine, runtime or settings.
    """
    stage = progress or no_progress
    refused: dict[str, str] = {}
    variants = list(decomposed_variants(spec, runtime, system.settings.level, cache, refused, progress))
    granularities = spec.layers.granularities
    put_models(store, [one.item for one in variants], lowering_key(runtime, system.settings.level), granularities)
    groups = [group for one in variants for group in _groups(spec, one.item)]
    with bench(store, system, runtime) as session:
        report = BenchReport()
        for number, seed in enumerate(spec.seeds, 1):
            order = random.Random(seed).sample(groups, len(groups))  # noqa: S311 - not for cryptography
            if number == 1:
                report += session.run(order, progress=stage("measuring"))
                continue
            done = Counter(m.signature for m in store.measurements(system.name, _members(order)))
            lacking = [g for g in order if any(0 < done[signature] < number for signature in _members([g]))]
            later = session.run(lacking, progress=stage(f"measuring, pass {number}"), again=True)
            report.add_repeats(later)
    return report


def _groups(spec: EvaluationSpec, item: DecomposedModel) -> Iterator[Group]:
    for group in measurement_groups(item, spec.layers.granularities):
        wanted = replace(
            group,
            sequences=group.sequences if "layers" in spec.measure.what else (),
            whole=group.whole if "models" in spec.measure.what else None,
        )
        if wanted.sequences or wanted.whole is not None:
            yield wanted


def _members(groups: Iterable[Group]) -> set[str]:
    return {s.signature for g in groups for s in g.members}
