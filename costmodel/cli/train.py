"""`costmodel train` and `costmodel evaluate`."""

from typing import Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.options import Context, JsonOption, StoreOption, SystemOption, ThreadsOption
from costmodel.cli.output import console, note, print_json, progress_bars

_Seeds = Annotated[int, typer.Option("--seeds", min=1, help="How many seeds to average over.")]
_JOBS = 2


@app.command()
def train(
    system: SystemOption = None,
    threads: ThreadsOption = 1,
    seeds: _Seeds = 3,
    tracking: Annotated[bool, typer.Option(help="Record the run in MLflow.")] = True,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Train the regressor of a system: evaluated on families left out, tracked, and put in charge."""
    from costmodel.training.train import train as train_system

    context = Context(store)
    name = context.system_name(system, threads)
    with progress_bars() as stage:
        report = train_system(
            context.store,
            name,
            context.home.bundles,
            tracking=context.home.tracking if tracking else None,
            seeds=range(seeds),
            jobs=_JOBS,
            progress=stage("evaluating"),
        )
    for warning in report.warnings:
        note(warning)
    if json:
        print_json(report.to_dict())
        return
    print_evaluation(report.evaluation)
    console().print(f"{report.system}: {report.version} answers now, trained on {report.rows} sequences.")


@app.command()
def evaluate(
    system: SystemOption = None,
    threads: ThreadsOption = 1,
    seeds: _Seeds = 3,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Accuracy on families left out: every predictor on the same rows, baselines included."""
    from costmodel.training.dataset import load_dataset
    from costmodel.training.evaluation import evaluate as evaluate_dataset

    context = Context(store)
    dataset = load_dataset(context.store, context.system_name(system, threads))
    with progress_bars() as stage:
        report = evaluate_dataset(dataset, seeds=range(seeds), jobs=_JOBS, progress=stage("evaluating")).report
    if json:
        print_json(report)
    else:
        print_evaluation(report)


def print_evaluation(report: dict[str, Any]) -> None:
    """The table of predictors, best first, and the champion's models."""
    from rich.table import Table

    from costmodel.units import format_us

    table = Table(
        "predictor", "layer MAPE", "within 10%", "model MAPE", "within 10%", "Kendall tau", "interval covers",
        box=None, header_style="bold",
    )  # fmt: skip
    ranked = sorted(report["predictors"].items(), key=lambda item: item[1]["model"]["mape"] or 0.0)
    for name, result in ranked:
        layer, model = result["layer"], result["model"]
        table.add_row(
            name, _percent(layer["mape"]), _percent(layer["within_10pct"]), _percent(model["mape"]),
            _percent(model["within_10pct"]), _number(model["kendall_tau"]), _percent(model["interval_coverage"]),
        )  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    out = console()
    floor = report["noise_floor_mape"]
    out.print(
        f"{report['system']}, {report['split']}, seeds {report['seeds']}, {report['rows']} sequences"
        + (f", noise floor {floor:.1%}" if floor is not None else "")
    )
    out.print(table)
    models = Table("held-out model", "measured", "predicted", "error", box=None, header_style="bold")
    for name, result in report["predictors"][report["champion"]]["models"].items():
        error = result["predicted_us"] / result["latency_us"] - 1
        models.add_row(name, format_us(result["latency_us"]), format_us(result["predicted_us"]), f"{error:+.1%}")
    for column in models.columns[1:]:
        column.justify = "right"
    out.print(models)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
