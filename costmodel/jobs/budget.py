"""The job of `costmodel bench -G auto`: chooses granularities by expected error and measures within a budget."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from costmodel.errors import SuiteError
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.decomposed_models import DecomposedModel, decompose_models, put_models
from costmodel.measure.groups import Group
from costmodel.partition.granularity import GranularityChoice, choose_granularities
from costmodel.partition.suite import is_suite
from costmodel.progress import Stages, no_progress, reported
from costmodel.runtimes.base import Runtime, lowering_key
from costmodel.store.store import Store
from costmodel.systems.system import System

__all__ = ["Plan", "PlannedModel", "bench_plan", "plan_bench"]


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """The planned measurements of one model.

    Attributes:
        model: Name of the model.
        option: Chosen granularity, with the expected error and the time that measuring takes; None if the model cannot
            be estimated without measurements, and these do not fit the budget.
        whole: Whether the whole model is to be measured as one sequence.
        least_s: Time in seconds that measuring all sequences takes at the granularity at which it is shortest; 0 if
            all sequences of some granularity are measured already.
        group: Group of the sequences to measure; None if there is nothing to measure.
    """

    model: str
    option: GranularityChoice | None
    whole: bool
    least_s: float
    group: Group | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned measurements of several models within a budget.

    Attributes:
        models: Planned measurements of each model, in the order of the corpus.
        budget_s: Measuring time for all models together in seconds.
        refused: Reasons why models cannot be used, by name of the model.
    """

    models: tuple[PlannedModel, ...]
    budget_s: float
    refused: Mapping[str, str]


def plan_bench(
    store: Store,
    system: System,
    runtime: Runtime,
    target: str,
    cache: Path,
    bundles: Path,
    *,
    budget_s: float,
    progress: Stages | None = None,
    bench: Callable[[Store, System, Runtime], BenchmarkSession] = BenchmarkSession,
) -> Plan:
    """Chooses the granularity at which each model of a target is to be measured; stores the models' sequences.

    Args:
        store: Store with the measurements so far.
        system: This host, described as a system; results are stored under its name.
        runtime: Runtime that lowers the models and runs their layer sequences.
        target: Name of a corpus, or path of a model or of a folder of models.
        cache: Folder in which lowered graphs are cached.
        bundles: Folder of trained regressors.
        budget_s: Measuring time in seconds that the models share.
        progress: Function that takes the name of a stage of the job and returns its progress callback; None to report
            nothing.
        bench: Function that makes a benchmark session from a store, a system and a runtime.

    Raises:
        SuiteError: The target is a benchmark suite.
        ArtefactError: The regressor of the system cannot be loaded.
    """
    from costmodel.serving.benchmark_planner import Planner
    from costmodel.serving.predictor import Predictor
    from costmodel.training.corpus import corpus_models

    if is_suite(Path(target)):
        raise SuiteError(f"{target} is a benchmark suite, which is cut already: bench it without --granularity auto")
    stage = progress or no_progress
    refused: dict[str, str] = {}
    level = system.settings.level
    items = decompose_models(
        corpus_models(target), runtime, level, cache, refused=refused, progress=stage("lowering models")
    )
    # Entering a session measures the capabilities of a system that the store does not know.
    with bench(store, system, runtime):
        planner = Planner(Predictor.load(store, bundles, system.name))
    options: dict[str, list[GranularityChoice]] = {}
    for item in reported(items, lambda item: item.model.name, stage("planning")):
        options[item.model.name] = planner.options(item.model.name, item.graph)
    chosen = choose_granularities(options, budget_s)
    planned = [_planned(item, options[item.model.name], chosen[item.model.name]) for item in items]
    for item, plan in zip(items, planned, strict=True):
        granularity = 1 if plan.option is None or plan.whole else plan.option.granularity
        put_models(store, [item], lowering_key(runtime, level), [granularity])
    return Plan(tuple(planned), budget_s, refused)


def _planned(item: DecomposedModel, options: list[GranularityChoice], option: GranularityChoice | None) -> PlannedModel:
    least_s = min(o.seconds for o in options if o.measured)
    whole = option is not None and option.measured and option.granularity == len(item.graph.layers)
    group = None
    if option is not None and option.seconds > 0:
        group = Group(
            label=item.model.name,
            sequences=() if whole else tuple(item.cut(option.granularity).unique.values()),
            whole=item.whole if whole else None,
            model=item.model,
            footprint_bytes=item.footprint_bytes,
        )
    return PlannedModel(item.model.name, option, whole, least_s, group)


def bench_plan(
    store: Store,
    system: System,
    runtime: Runtime,
    plan: Plan,
    progress: Stages | None = None,
    *,
    bench: Callable[[Store, System, Runtime], BenchmarkSession] = BenchmarkSession,
) -> BenchReport:
    """Measures the sequences of a plan, and no others; returns a report.

    Each model gets its planned time plus the time that earlier models left over. If a model's times vary so much that
    it would take longer, its laps end when that time is spent, so that later models keep their planned time.

    Args:
        store: Store that receives the results.
        system: This host, described as a system; results are stored under its name.
        runtime: Runtime that lowers the models and runs their layer sequences.
        plan: Result of `plan_bench`.
        progress: Function that takes the name of a stage of the job and returns its progress callback; None to report
            nothing.
        bench: Function that makes a benchmark session from a store, a system and a runtime.
    """
    groups = [(m.group, m.option.seconds) for m in plan.models if m.group is not None and m.option is not None]
    spare_s = plan.budget_s - math.fsum(seconds for _, seconds in groups)
    report = BenchReport()
    with bench(store, system, runtime) as session:
        for group, seconds in reported(groups, lambda group: group[0].label, (progress or no_progress)("measuring")):
            group_report = session.run([group], budget_s=max(0.0, seconds + spare_s))
            spare_s += seconds - group_report.seconds
            report += group_report
    report.failed = {**plan.refused, **report.failed}
    return report
