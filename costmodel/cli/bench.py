"""Implements `costmodel bench`, which measures layer sequences on this host."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.bench_report import bench_document, bench_line, note_failures
from costmodel.cli.context import Context
from costmodel.cli.options import (
    BatchOption,
    GranularityOption,
    InterThreadsOption,
    JsonOption,
    LevelOption,
    RuntimeOption,
    ShapeOption,
    StoreOption,
    SystemOption,
    ThreadsOption,
    ValueOption,
    parse_budget_s,
    parse_granularity,
    parse_shapes,
    parse_values,
)
from costmodel.cli.output import note, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from costmodel.jobs.bench_report import BenchReport
    from costmodel.jobs.budget import Plan
    from costmodel.runtimes.base import Runtime
    from costmodel.serving.predictor import Predictor
    from costmodel.systems.system import System

__all__ = ["bench"]


@app.command()
def bench(
    command: typer.Context,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODELS]...",
            help="A benchmark suite, a folder of models, or one model; instead of --corpus. With --on, several.",
            show_default=False,
        ),
    ] = None,
    corpus: Annotated[str, typer.Option(help="Name of a corpus, or a folder of models.")] = "light",
    system: SystemOption = None,
    budget: Annotated[str | None, typer.Option(help="Stop measuring after this long: 90s, 10m, 1h.")] = None,
    granularity: GranularityOption = "1",
    samples: Annotated[
        int, typer.Option(min=0, help="Also measure this many samples: variants of these sequences with other sizes.")
    ] = 0,
    suggest: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Measure nothing; list the N sequences of the stored models that are most worth measuring.",
            show_default=False,
        ),
    ] = None,
    recheck: Annotated[
        bool, typer.Option("--recheck", help="Measure only sequences again whose measurements look wrong.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Measure layers only, each as briefly as sums over models allow, and no whole models."
        ),
    ] = False,
    error: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Measure only the layers without which the expected error of the models would exceed this, such as "
            "0.01 (root mean square); needs a regressor, which predicts the others.",
            show_default=False,
        ),
    ] = None,
    models_only: Annotated[
        bool, typer.Option("--models-only", help="Measure whole models only, and no layers.")
    ] = False,
    passes: Annotated[
        int,
        typer.Option(min=1, help="How often each whole model is to be measured; a second pass is best on another day."),
    ] = 1,
    batch: BatchOption = None,
    shape: ShapeOption = None,
    value: ValueOption = None,
    threads: ThreadsOption = 1,
    runtime: RuntimeOption = "onnxruntime",
    inter_threads: InterThreadsOption = 1,
    level: LevelOption = "all",
    assert_system: Annotated[
        bool,
        typer.Option("--assert-system", help="Assert that this host is the named system; marks the records."),
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="URL", show_default=False, help="Measure on the machines of a Dask cluster: tcp://scheduler:8786."
        ),
    ] = None,
    systems: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", show_default=False, help="With --on: the systems to measure on."),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Measure layer sequences that are not measured yet.

    Cuts the models into unique sequences, and measures these together with the whole models. If it is stopped, the same
    command goes on where it stopped. With --on, it spreads them over machines that run `costmodel worker`.
    """
    from costmodel.jobs.bench import REPEATED_SEQUENCES, bench_target
    from costmodel.measure.protocol import QUICK
    from costmodel.partition.granularity import AUTO

    budget_s = parse_budget_s(budget)
    most = parse_granularity(granularity)
    context = Context(store, tools=command.obj, runtime_name=runtime)
    if on is not None or systems is not None:
        from costmodel.cli.fleet import bench_on

        given = {
            "--system": system, "--granularity": most == AUTO, "--samples": samples, "--suggest": suggest,
            "--recheck": recheck, "--threads": threads > 1, "--inter-threads": inter_threads > 1,
            "--assert-system": assert_system, "--quick": quick, "--error": error is not None,
            "--models-only": models_only, "--passes": passes > 1, "--batch": batch is not None, "--shape": bool(shape),
            "--value": bool(value),
        }  # fmt: skip
        refused = [name for name, value in given.items() if value]
        bench_on(context, on, systems, targets or [corpus], most, level, budget_s, refused=refused, json=json)
        return
    if quick and (samples or suggest is not None or recheck or most == AUTO):
        raise typer.BadParameter(
            "sums over models need neither --samples, --suggest, --recheck nor --granularity auto", param_hint="--quick"
        )
    if models_only and (samples or suggest is not None or recheck or quick or most == AUTO):
        raise typer.BadParameter(
            "whole models have neither --samples, --suggest, --recheck, --quick nor --granularity auto",
            param_hint="--models-only",
        )
    if error is not None and (samples or suggest is not None or recheck or models_only or most != 1):
        raise typer.BadParameter(
            "single layers of models are chosen: leave out --samples, --suggest, --recheck, --models-only and "
            "--granularity",
            param_hint="--error",
        )
    if passes > 1 and (suggest is not None or recheck or quick or most == AUTO):
        raise typer.BadParameter(
            "whole models are measured in passes, and neither --suggest, --recheck, --quick nor --granularity auto "
            "measures each",
            param_hint="--passes",
        )
    shapes = parse_shapes(shape)
    values = parse_values(value)
    if (batch is not None or shapes or values) and (suggest is not None or recheck or most == AUTO):
        raise typer.BadParameter(
            "models are read as they are for --suggest, --recheck and --granularity auto",
            param_hint="--shape" if shapes else "--value" if values else "--batch",
        )
    if recheck and (samples or most != 1):
        raise typer.BadParameter("leave out --samples and --granularity", param_hint="--recheck")
    if targets and len(targets) > 1:
        raise typer.BadParameter("several need --on: give a folder of models instead", param_hint="MODELS")
    target = targets[0] if targets else None
    known = context.store.systems() if suggest is not None else {}
    if suggest is not None and system in known:
        _suggest(context, known[system], suggest, json=json)
        return
    adapter, here = context.here(system, threads, level=level, inter_threads=inter_threads, asserted=assert_system)
    if suggest is not None:
        _suggest(context, known.get(here.name, here), suggest, json=json)
        return
    document: dict[str, Any] = {"system": here.name, **({"quick": True} if quick else {})}
    if recheck:
        document["suspects"], report = _recheck(context, adapter, here, target or corpus, budget_s, shown=not json)
    elif most == AUTO:
        seconds = _auto_budget_s(budget_s, samples)
        plan, report = _bench_auto(context, adapter, here, target or corpus, seconds, shown=not json)
        document["plan"] = _plan_document(plan)
    else:
        with progress_bars() as stage:
            report = bench_target(
                context.store,
                here,
                adapter,
                target or corpus,
                context.home.cache,
                granularities=[most],
                samples=samples,
                budget_s=budget_s,
                repeated_sequences=0 if quick else REPEATED_SEQUENCES,
                layers=not models_only,
                wholes=not quick,
                passes=passes,
                error=error,
                batch=batch,
                shapes=shapes,
                values=values,
                predictor=None if error is None else _predictor_of(context, here),
                progress=stage,
                bench=partial(context.bench, protocol=QUICK) if quick else context.bench,
            )
    note_failures(report)
    if json:
        print_json(document | bench_document(report))
        return
    say(f"{here.name}: {bench_line(report)}")
    if report.choice is not None and report.choice.errors:
        say(
            f"{len(report.choice.signatures)} layers were chosen. With them measured and the others predicted, the "
            f"expected error of the models is {report.choice}."
        )
    if report.left:
        say("The budget is spent: run the same command again to go on.")


def _suggest(context: Context, system: "System", count: int, *, json: bool) -> None:
    """Prints the `count` sequences that are most worth measuring on a system, as a table or as JSON."""
    from costmodel.cli.adapt import print_suggestions, suggestion_document
    from costmodel.jobs.suggestion import suggest

    suggestions = suggest(context.store, system, count)
    if json:
        print_json(suggestion_document(system.name, suggestions))
    else:
        print_suggestions(suggestions)


def _recheck(
    context: Context, runtime: "Runtime", here: "System", target: str, budget_s: float | None, *, shown: bool
) -> "tuple[dict[str, int], BenchReport]":
    """Measures those sequences again whose measurements look wrong; if `shown`, prints how many there are per reason.

    Returns:
        The number of sequences whose measurements look wrong, by reason; and the report of the new measurements.
    """
    from costmodel.jobs.rechecking import recheck
    from costmodel.training.labels import REASONS, count_reasons

    with progress_bars() as stage:
        suspects, report = recheck(
            context.store, here, runtime, target, context.home.cache, budget_s=budget_s, progress=stage,
            bench=context.bench,
        )  # fmt: skip
    counts = count_reasons(suspects)
    if shown:
        print_table(
            ("suspect", "why", "sequences"), [(name, why, str(counts[name])) for name, why in REASONS.items()], left=2
        )
    return counts, report


def _auto_budget_s(budget_s: float | None, samples: int) -> float:
    """Returns the budget in seconds, after checking that `--granularity auto` has one and no samples are requested.

    Raises:
        typer.BadParameter: There is no budget, or samples are requested, which can be made from single layers only.
    """
    if budget_s is None:
        raise typer.BadParameter(
            "auto shares a time among the models: say how much with --budget", param_hint="--granularity"
        )
    if samples:
        raise typer.BadParameter(
            "samples are taken around single layers: leave them out with --granularity auto", param_hint="--samples"
        )
    return budget_s


def _bench_auto(
    context: Context, runtime: "Runtime", here: "System", target: str, budget_s: float, *, shown: bool
) -> "tuple[Plan, BenchReport]":
    """Plans the granularity of each model within the budget, prints the plan if `shown`, and measures as planned.

    Returns:
        The plan, and the report of the measurements.
    """
    from costmodel.jobs.budget import bench_plan, plan_bench

    with progress_bars() as stage:
        plan = plan_bench(
            context.store, here, runtime, target, context.home.cache, context.bundles, budget_s=budget_s,
            progress=stage, bench=context.bench,
        )  # fmt: skip
    if shown:
        _print_plan(plan)
    for planned in plan.models:
        if planned.option is None or not planned.option.measured:
            note(
                f"nothing of {planned.model} will be measured: it takes {planned.least_s:.1f} s at least, more than is "
                "left of the budget"
            )
    with progress_bars() as stage:
        return plan, bench_plan(context.store, here, runtime, plan, stage, bench=context.bench)


def _print_plan(plan: "Plan") -> None:
    rows = []
    for planned in plan.models:
        option = planned.option
        if option is None:
            rows.append((planned.model, "none", "no estimate", "0.0"))
            continue
        granularity = "whole" if planned.whole else str(option.granularity) if option.measured else "none"
        rows.append((planned.model, granularity, f"{option.error:.1%}", f"{option.seconds:.1f}"))
    print_table(("model", "granularity", "expected error", "seconds"), rows)


def _plan_document(plan: "Plan") -> list[dict[str, Any]]:
    return [
        {
            "model": planned.model,
            "granularity": planned.option.granularity if planned.option and planned.option.measured else None,
            "whole": planned.whole,
            "expected_error": planned.option.error if planned.option else None,
            "seconds": planned.option.seconds if planned.option else 0.0,
        }
        for planned in plan.models
    ]


def _predictor_of(context: Context, system: "System") -> "Predictor":
    """Returns the predictor of a system that can tell how far off its predictions of layers are.

    Raises:
        CostModelError: The system has no regressor.
    """
    from costmodel.errors import CostModelError
    from costmodel.serving.predictor import Predictor

    predictor = Predictor.load(context.store, context.bundles, system.name)
    if predictor.regression is None:
        raise CostModelError(
            f"{system.name} has no regressor that predicts the other layers: run `costmodel train`, or leave out "
            "--error"
        )
    return predictor
