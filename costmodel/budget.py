"""Benchmarking within a budget: which sequences of which model, chosen by what is to be expected of them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from costmodel.bench import Bench, BenchReport, Progress
from costmodel.bricks import is_brick_folder
from costmodel.errors import BrickError
from costmodel.granularity import Option, choose
from costmodel.groups import Group
from costmodel.jobs import Decomposed, decompose_models, put_models
from costmodel.runtimes import Runtime, lowering_key
from costmodel.store import Store
from costmodel.systems import System

__all__ = ["Plan", "PlannedModel", "bench_plan", "plan_bench"]


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """What is to be measured of one model.

    Attributes:
        model: Its name.
        option: The way to know its latency; None where there is none without measuring, and nothing fits.
        whole: Whether that is to run it as it is.
        least_s: Seconds that measuring would take at least; 0 where everything is measured in some way.
        group: What is to be measured; None for nothing.
    """

    model: str
    option: Option | None
    whole: bool
    least_s: float
    group: Group | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure of several models within a budget.

    Attributes:
        models: In the order of their corpus.
        budget_s: Seconds for all of them.
        refused: Reason for each model that cannot be used.
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
    progress: Callable[[str], Progress] | None = None,
) -> Plan:
    """Choose for each model of a target the granularity at which it is to be measured, and store what it is made of.

    Args:
        store: What is measured so far.
        system: This host, under its name.
        runtime: What runs the networks.
        target: Name of a corpus, or a path.
        cache: Folder of lowered graphs.
        bundles: Folder of trained regressors.
        budget_s: Seconds to share among the models.
        progress: Gives what to tell about the stage of that name.

    Raises:
        BrickError: The target is a folder of bricks.
        ArtefactError: The regressor of the system cannot be loaded.
    """
    from costmodel.serving.planner import Planner
    from costmodel.serving.predictor import Predictor
    from costmodel.training.corpus import corpus_models

    if is_brick_folder(Path(target)):
        raise BrickError(f"{target} is a folder of bricks, which are cut already: bench it without --granularity auto")
    tell = progress or (lambda _: lambda done, total, what: None)
    refused: dict[str, str] = {}
    level = system.settings.level
    items = decompose_models(
        corpus_models(target), runtime, level, cache, refused=refused, progress=tell("lowering models")
    )
    with Bench(store, system, runtime):  # gets to know the system, if the store does not
        planner = Planner(Predictor.load(store, bundles, system.name))
    planning = tell("planning")
    options: dict[str, list[Option]] = {}
    for done, item in enumerate(items):
        planning(done, len(items), item.model.name)
        options[item.model.name] = planner.options(item.model.name, item.graph)
    planning(len(items), len(items), "")
    chosen = choose(options, budget_s)
    planned = [_planned(item, options[item.model.name], chosen[item.model.name]) for item in items]
    for item, of_item in zip(items, planned, strict=True):
        granularity = 1 if of_item.option is None or of_item.whole else of_item.option.granularity
        put_models(store, [item], lowering_key(runtime, level), [granularity])
    return Plan(tuple(planned), budget_s, refused)


def _planned(item: Decomposed, options: list[Option], option: Option | None) -> PlannedModel:
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
    store: Store, system: System, runtime: Runtime, plan: Plan, progress: Callable[[str], Progress] | None = None
) -> BenchReport:
    """Measure what is planned, and nothing else.

    Each model has the time that was planned for it and what those before it left over: where times agree slowly, its
    passes end then, and not at the expense of the models behind it.

    Args:
        store: Where results go.
        system: This host, under its name.
        runtime: What runs the networks.
        plan: As `plan_bench` gave it.
        progress: Gives what to tell about the stage of that name.
    """
    tell = progress("measuring") if progress is not None else lambda done, total, what: None
    groups = [(m.group, m.option.seconds) for m in plan.models if m.group is not None and m.option is not None]
    spare_s = plan.budget_s - math.fsum(seconds for _, seconds in groups)
    report = BenchReport()
    with Bench(store, system, runtime) as bench:
        for done, (group, seconds) in enumerate(groups):
            tell(done, len(groups), group.label)
            of_group = bench.run([group], budget_s=max(0.0, seconds + spare_s))
            spare_s += seconds - of_group.seconds
            report += of_group
    tell(len(groups), len(groups), "")
    report.failed = {**plan.refused, **report.failed}
    return report
