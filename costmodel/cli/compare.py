"""Implements `costmodel compare`, which tests whether one predictor is better than another."""

from statistics import mean
from typing import Annotated

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import JsonOption, StoreOption, SystemOption, ThreadsOption, one_of
from costmodel.cli.output import print_json, print_table, progress_bars, say
from costmodel.systems.host import usable_cpus

__all__ = ["compare"]


def _predictors() -> tuple[str, ...]:
    from costmodel.training.regressors.registry import REGRESSORS

    return tuple(REGRESSORS)


def _metrics() -> tuple[str, ...]:
    from costmodel.training.evaluation.comparison import METRIC_NAMES

    return METRIC_NAMES


@app.command()
def compare(
    command: typer.Context,
    one: Annotated[str, typer.Argument(metavar="A", help="A predictor.", callback=one_of(_predictors))],
    other: Annotated[str, typer.Argument(metavar="B", help="Another predictor.", callback=one_of(_predictors))],
    system: SystemOption = None,
    threads: ThreadsOption = 1,
    splits: Annotated[int, typer.Option("--splits", min=2, help="Runs, each with other lineages held out.")] = 10,
    metric: Annotated[
        str, typer.Option("--metric", metavar="NAME", callback=one_of(_metrics), help="The metric to compare.")
    ] = "model_unseen.mape",
    worth: Annotated[
        float, typer.Option("--worth", min=0.0, help="Smallest difference worth having, as a fraction.")
    ] = 0.005,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Test whether one predictor is better than another.

    Trains and evaluates both predictors several times, each time with other lineages held out and with another seed.
    In each run, both predictors get the same lineages and the same seed. Prints the probability that A is better than
    B, with an interval of that probability.
    """
    from costmodel.training.dataset import load_dataset
    from costmodel.training.evaluation.comparison import compare as compare_predictors
    from costmodel.training.fewer_threads import with_fewer_threads

    if one == other:
        raise typer.BadParameter(f"{one} is no better than itself: choose two of {', '.join(_predictors())}")
    context = Context(store, reads=True, tools=command.obj)
    dataset = load_dataset(context.store, context.learnt_system(system, threads))
    dataset = with_fewer_threads(dataset, context.store)
    with progress_bars() as stage:
        found = compare_predictors(
            dataset,
            one,
            other,
            runs=splits,
            metric=metric,
            worth=worth,
            jobs=usable_cpus(),
            progress=stage("comparing"),
        )
    if json:
        print_json(found.to_dict())
        return
    percent = not metric.endswith("tau")
    say(
        f"{found.system}, {metric}, {len(found.seeds)} runs, each with {found.held_out_share:.0%} of the lineages "
        "held out at random"
    )
    print_table(
        ("predictor", "mean", "lowest", "highest"),
        [
            (name, *(f"{value:.1%}" if percent else f"{value:.3f}" for value in (mean(of), min(of), max(of))))
            for name, of in zip((one, other), zip(*found.scores, strict=True), strict=True)
        ],
    )
    middle, low, high = (
        f"{100 * value:+.2f}" if percent else f"{value:+.3f}"
        for value in (found.difference, *found.difference_interval)
    )
    say(
        f"difference {middle}{' percentage points' if percent else ''}, {found.level:.0%} interval {low} to {high}",
        style="dim",
    )
    say(f"{found.conclusion}.")
