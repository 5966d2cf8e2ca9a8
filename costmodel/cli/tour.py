"""`costmodel tour`: the main job on this host, from nothing to a prediction beside its measurement."""

from typing import Annotated

import typer

from costmodel.cli import app
from costmodel.cli.options import Context, StoreOption, SystemOption, ThreadsOption
from costmodel.cli.output import console, note, progress_bars
from costmodel.cli.predict import print_estimate
from costmodel.cli.train import print_evaluation

# As many as fit into the budget beside the starter corpus on a machine of half this one's speed.
_SAMPLES = 1000


@app.command()
def tour(
    budget: Annotated[str, typer.Option(help="Time for measuring.")] = "3m",
    system: SystemOption = None,
    threads: ThreadsOption = 1,
    store: StoreOption = None,
) -> None:
    """Benchmark the starter corpus on this host, train, and predict a model held back from it."""
    from costmodel.api import CostModel
    from costmodel.decomposition import whole_model
    from costmodel.jobs import bench_target, measure_models
    from costmodel.model import read_model
    from costmodel.training.corpus import HELD_BACK, corpus_models
    from costmodel.training.train import train
    from costmodel.units import parse_duration_s

    context = Context(store)
    runtime, here = context.here(system, threads)
    out, opened = console(), context.store
    out.print(f"[bold]1. Benchmark[/bold] the unique layers of eight models on {here.name}")
    with progress_bars() as stage:
        report = bench_target(
            opened, here, runtime, "starter", context.home.cache, samples=_SAMPLES,
            budget_s=parse_duration_s(budget), progress=stage,
        )  # fmt: skip
    out.print(
        f"   {report.measured} measured in {report.seconds:.0f} s, {report.reused} known before, {report.left} left"
    )
    for what, reason in report.failed.items():
        note(f"{what} was not measured: {reason}")
    out.print("\n[bold]2. Train[/bold], judged on families left out")
    with progress_bars() as stage:
        trained = train(
            opened, here.name, context.home.bundles, tracking=context.home.tracking, jobs=2,
            progress=stage("evaluating"),
        )  # fmt: skip
    print_evaluation(trained.evaluation)
    (held_back,) = corpus_models(HELD_BACK)
    out.print(f"\n[bold]3. Predict[/bold] {held_back.name}, of a family that was never measured, then measure it")
    cost_model = CostModel.load(here.name, store=store)
    model = read_model(held_back.path)
    estimate = cost_model.predict(model)
    whole = whole_model(cost_model.lower(model))
    with progress_bars() as stage:
        measured = measure_models(opened, here, runtime, {model.name: (whole, model)}, stage("running the model"))
    print_estimate(estimate, measured[model.name])
    for warning in (*trained.warnings, *estimate.warnings):
        note(warning)
