"""Implements `costmodel tour`, which leads from an empty store to a prediction beside its measurement on this host."""

from typing import Annotated

import typer

from costmodel.cli import app
from costmodel.cli.bench_report import bench_document, bench_line, note_failures
from costmodel.cli.context import Context
from costmodel.cli.estimates import measured_document, print_estimate
from costmodel.cli.evaluation_tables import print_evaluation
from costmodel.cli.options import JsonOption, StoreOption, SystemOption, ThreadsOption, parse_budget_s
from costmodel.cli.output import note, print_json, progress_bars, say
from costmodel.systems.host import usable_cpus

__all__ = ["tour"]

# Chosen so that samples and starter corpus fit into the default budget on a machine half as fast as the developers'.
_SAMPLES = 1000
# Share of uncertain measurements above which the user is warned.
_MOST_UNSTABLE = 0.1


@app.command()
def tour(
    command: typer.Context,
    budget: Annotated[str, typer.Option(help="Stop measuring after this long: 90s, 3m.")] = "3m",
    system: SystemOption = None,
    threads: ThreadsOption = 1,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Demonstrate bench, train and predict on this host.

    Measures the starter corpus, trains a regressor, predicts a model of a family that the corpus does not have, and
    then measures that model, too, for comparison.
    """
    from costmodel.api import CostModel
    from costmodel.jobs.bench import bench_target, measure_models
    from costmodel.onnx_io.model import read_model
    from costmodel.partition.decomposition import whole_model
    from costmodel.training.corpus import HELD_BACK, corpus_models
    from costmodel.training.train import train_system

    def step(text: str) -> None:
        if not json:
            say()
            say(text, style="bold")

    budget_s = parse_budget_s(budget)
    context = Context(store, tools=command.obj)
    runtime, here = context.here(system, threads)
    step(f"1. Benchmark the unique layers of eight models on {here.name}")
    with progress_bars() as stage:
        report = bench_target(
            context.store, here, runtime, "starter", context.home.cache, samples=_SAMPLES, budget_s=budget_s,
            progress=stage, bench=context.bench,
        )  # fmt: skip
    note_failures(report)
    if not json:
        say(bench_line(report))
    if report.unstable > _MOST_UNSTABLE * max(1, report.measured):
        note(
            f"{report.unstable} of {report.measured} times are uncertain, because the machine was busy or its times "
            "varied; what is trained on them is as uncertain: run again on a quieter machine or with more --budget"
        )
    step("2. Train, and evaluate on held-out lineages")
    with progress_bars() as stage:
        trained = train_system(
            context.store, here.name, context.bundles, tracking=context.home.tracking, seeds=(0, 1, 2),
            jobs=usable_cpus(), progress=stage("evaluating"),
        )  # fmt: skip
    if not json:
        print_evaluation(trained.evaluation)
    (held_back,) = corpus_models(HELD_BACK)
    step(f"3. Predict {held_back.name}, whose family was never measured, then measure it")
    cost_model = CostModel.load(here.name, store=store, runtime=context.tools.runtime)
    model = read_model(held_back.path)
    estimate = cost_model.predict(model)
    whole = whole_model(cost_model.lower(model))
    with progress_bars() as stage:
        measured = measure_models(
            context.store, here, runtime, {model.name: (whole, model)}, stage("running it"), bench=context.bench
        )
    measurement = measured[model.name]
    if json:
        prediction = {**estimate.to_dict(), **measured_document(estimate, measurement)}
        print_json({"bench": bench_document(report), "train": trained.to_dict(), "predict": prediction})
        return
    print_estimate(estimate, measurement)
    for warning in (*trained.warnings, *estimate.warnings):
        note(warning)
