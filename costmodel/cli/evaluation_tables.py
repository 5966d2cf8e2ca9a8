"""Prints evaluations as tables: of the predictors of one system, and of one system predicted from others."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from costmodel.cli.output import print_table, say, terminal_columns
from costmodel.units import format_us

if TYPE_CHECKING:
    from costmodel.training.evaluation.across_systems import AcrossSystems
    from costmodel.training.evaluation.results import EvaluationReport, PredictorResult

__all__ = ["print_across", "print_evaluation"]

# Width of a terminal, in columns, from which on all metrics are in one table; a narrower one gets two tables.
_ONE_TABLE_WIDTH = 120
# Columns of the table of predictors: the head of each, and its cell.
_Columns = tuple[tuple[str, Callable[["PredictorResult"], str]], ...]
_LAYERS: _Columns = (
    ("layers", lambda result: _percent(result.layer.mape)),
    ("in 10%", lambda result: _percent(result.layer.within_10pct)),
)
_MODELS: _Columns = (
    ("models", lambda result: _percent(result.model.mape)),
    ("in 5%", lambda result: _percent(result.model.within_5pct)),
    ("in 10%", lambda result: _percent(result.model.within_10pct)),
    ("tau", lambda result: _number(result.model.kendall_tau)),
    ("covered", lambda result: _percent(result.model.interval_coverage)),
)
_UNSEEN: _Columns = (
    ("unseen", lambda result: _percent(result.model_unseen.mape)),
    ("in 5%", lambda result: _percent(result.model_unseen.within_5pct)),
    ("in 10%", lambda result: _percent(result.model_unseen.within_10pct)),
    ("macro", lambda result: _percent(result.model_unseen.macro_mape)),
    ("p95", lambda result: _percent(result.model_unseen.percentile_95)),
)


def print_evaluation(report: "EvaluationReport") -> None:
    """Prints the predictors' errors, the most accurate first, and the champion's predictions of held-out models."""
    floor = report.noise_floor_mape
    say(
        f"{report.system}, {report.split}, seeds {list(report.seeds)}, {report.rows} sequences"
        + (f" ({report.borrowed_rows} of them with fewer threads)" if report.borrowed_rows else "")
        + (f", noise floor {floor:.1%}" if floor is not None else ", noise floor unknown: too few were measured twice")
    )
    one_table = terminal_columns() >= _ONE_TABLE_WIDTH
    tables = [_LAYERS + _MODELS + _UNSEEN] if one_table else [_LAYERS + _MODELS, _UNSEEN]
    ranked = sorted(report.predictors.items(), key=lambda item: _error(item[1]))
    for columns in tables:
        print_table(
            ("predictor", *(head for head, _ in columns)),
            [(name, *(cell(result) for _, cell in columns)) for name, result in ranked],
        )
    say("layers, models: mean error; unseen: of models as if no layer had been measured", style="dim")
    say("in 5%, in 10%: share within; tau: order kept; covered: inside their interval", style="dim")
    say("macro: mean over lineages; p95: error that 95% of the models do not exceed", style="dim")
    _print_long_layers(report)
    if report.measured.mape is not None:
        best = report.measured
        say(
            f"with every layer measured, models have {best.mape:.1%} error, {_percent(best.within_5pct)} within 5% and "
            f"{_percent(best.within_10pct)} within 10%: predicting layers cannot be expected to do better"
        )
    if report.truth is not None:
        truth = report.truth
        say(
            f"one measurement of a model has a standard deviation of {truth.noise:.1%} ({truth.repeated} were measured "
            f"more than once): root mean square error {truth.rms:.1%}, without that noise {truth.rms_without_noise:.1%}"
        )
        say(
            f"{truth.uncertain} models are known to no better than 2%; the mean error of the others is "
            f"{_percent(truth.certain_mape)}"
        )
    models = report.predictors[report.champion].models
    if models:
        say()
        print_table(
            ("held-out model", "measured", "predicted", "error"),
            [
                (
                    m.model, format_us(m.latency_us), format_us(m.predicted_us),
                    f"{m.predicted_us / m.latency_us - 1:+.1%}",
                )
                for m in models
            ],
        )  # fmt: skip


def _print_long_layers(report: "EvaluationReport") -> None:
    """Prints the champion's error over layers above 20 us, beside the difference of two measurements of them."""
    error, floor = report.predictors[report.champion].layer.weighted_mape_above_20us, report.noise_floor_above_20us
    if error is not None and floor is not None:
        say(
            f"layers over 20 us, weighted by time: {report.champion} {error:.1%}; two measurements of one differ by "
            f"{floor:.1%}, so that is {error / floor:.1f} noise floors"
        )


def print_across(result: "AcrossSystems", folds: int) -> None:
    """Prints how well one system was predicted from others."""
    say(f"{result.system} from {', '.join(result.bases)}, lineages held out in {folds} groups", style="bold")
    ordered = sorted(result.judgements, key=lambda one: ("known", "unmeasured", "unseen").index(one.lineages))
    print_table(
        ("lineages", "from", "models", "error", "in 10%", "bias", "tau", "expected"),
        [
            (
                one.lineages, one.method, str(one.models), _percent(one.error), _percent(one.within_10pct),
                f"{one.bias:.3f}", _number(one.kendall_tau), _percent(one.expected),
            )
            for one in ordered
        ],
        left=2,
    )  # fmt: skip
    say()


def _error(result: "PredictorResult") -> float:
    """Returns the mean relative error over models; over layers if no model was judged; infinity if no layer was."""
    return next((mape for mape in (result.model.mape, result.layer.mape) if mape is not None), float("inf"))


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
