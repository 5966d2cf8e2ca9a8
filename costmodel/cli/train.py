"""`costmodel train` and `costmodel evaluate`."""

from typing import Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.options import Context, JsonOption, StoreOption, SystemOption, ThreadsOption
from costmodel.cli.output import note, print_json, print_table, progress_bars, say

__all__ = ["JOBS", "evaluate", "print_evaluation", "train"]

_Seeds = Annotated[int, typer.Option("--seeds", min=1, help="How many seeds to average over.")]
JOBS = 2


@app.command()
def train(
    system: SystemOption = None,
    threads: ThreadsOption = 1,
    seeds: _Seeds = 3,
    tracking: Annotated[bool, typer.Option(help="Record the run in MLflow.")] = True,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Train the regressor of a system and put it in charge.

    It is evaluated on families left out, and the run is recorded in MLflow.
    """
    from costmodel.training.train import train as train_system

    context = Context(store, reads=True)
    name = context.system_name(system, threads)
    with progress_bars() as stage:
        report = train_system(
            context.store,
            name,
            context.bundles,
            tracking=context.home.tracking if tracking else None,
            seeds=range(seeds),
            jobs=JOBS,
            progress=stage("evaluating"),
        )
    for warning in report.warnings:
        note(warning)
    if json:
        print_json(report.to_dict())
        return
    print_evaluation(report.evaluation)
    say(f"{report.system}: {report.version} answers now, trained on {report.rows} sequences.")


@app.command()
def evaluate(
    system: SystemOption = None,
    threads: ThreadsOption = 1,
    seeds: _Seeds = 3,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Accuracy on families that were left out of training.

    Every predictor is judged on the same rows, the baselines included.
    """
    from costmodel.training.dataset import load_dataset
    from costmodel.training.evaluation import evaluate as evaluate_dataset

    context = Context(store, reads=True)
    dataset = load_dataset(context.store, context.system_name(system, threads))
    with progress_bars() as stage:
        report = evaluate_dataset(dataset, seeds=range(seeds), jobs=JOBS, progress=stage("evaluating")).report
    if json:
        print_json(report)
    else:
        print_evaluation(report)


def print_evaluation(report: dict[str, Any]) -> None:
    """The table of predictors, best first, and the champion's models."""
    from costmodel.units import format_us

    floor = report["noise_floor_mape"]
    say(
        f"{report['system']}, {report['split']}, seeds {report['seeds']}, {report['rows']} sequences"
        + (f", noise floor {floor:.1%}" if floor is not None else ", noise floor unknown: nothing was measured twice")
    )
    rows = []
    for name, result in sorted(report["predictors"].items(), key=lambda item: _error(item[1])):
        layer, model = result["layer"], result["model"]
        rows.append(
            (
                name, _percent(layer["mape"]), _percent(layer["within_10pct"]), _percent(model["mape"]),
                _percent(model["within_10pct"]), _number(model["kendall_tau"]), _percent(model["interval_coverage"]),
            )
        )  # fmt: skip
    print_table(("predictor", "layer MAPE", "in 10%", "model MAPE", "in 10%", "tau", "covered"), rows)
    say("in 10%: share within 10%; covered: share of models inside their interval", style="dim")
    models = report["predictors"][report["champion"]]["models"]
    if models:
        say()
        print_table(
            ("held-out model", "measured", "predicted", "error"),
            [
                (
                    m["model"], format_us(m["latency_us"]), format_us(m["predicted_us"]),
                    f"{m['predicted_us'] / m['latency_us'] - 1:+.1%}",
                )
                for m in models
            ],
        )  # fmt: skip


def _error(result: dict[str, Any]) -> float:
    of_models = result["model"]["mape"]
    return float(result["layer"]["mape"] if of_models is None else of_models)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
