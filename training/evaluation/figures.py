"""Draws the figures of an evaluation from its report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.plotting import BAND, GRID, INK, PALE, ROW_INCHES, SERIES, new_figure, save_figure
from costmodel.training.evaluation.intervals import CoveragePoint
from costmodel.training.evaluation.learning_curve import REDUCTIONS, LearningPoint
from costmodel.training.evaluation.results import ClassErrors, FamilyErrors, ModelResult
from costmodel.units import format_us

__all__ = ["coverage", "families", "learning_curve", "predictions", "shares_and_errors"]

_GOOD, _BAD = SERIES[0], SERIES[1]
_SOFT = "#6b7a86"  # colour of secondary text
_NAMED = 6  # number of models that are labelled with their names
_TOLERANCE = 0.1  # half-width of the band, as a share of the measured latency; tables count models within 10% too
_RATIOS = (0.1, 0.25, 0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 4, 10)
_LABEL_GAP = 0.06  # share of the axis; a model that is nearer to a labelled one gets no label of its own


def predictions(path: Path, title: str, models: Sequence[ModelResult]) -> None:
    """Draws the predicted against the measured latency of each model and, in a panel below, the ratio of the two.

    All layers of a model are predicted. The models with the largest errors are labelled.

    Args:
        path: File to write.
        title: Title above the figure.
        models: Results of models in a report.
    """
    measured = np.array([model.latency_us for model in models])
    predicted = np.array([model.unseen_us for model in models])
    ratio = predicted / measured
    far = np.abs(ratio - 1) > _TOLERANCE
    figure, (above, below) = new_figure(7.2, 8.2, 2, sharex=True, height_ratios=(3, 2))
    ends = np.array([measured.min() / 1.5, measured.max() * 1.5])
    above.fill_between(ends, ends * (1 - _TOLERANCE), ends * (1 + _TOLERANCE), color=BAND, linewidth=0, zorder=0)
    above.plot(ends, ends, color=INK, linewidth=0.8, zorder=1)
    below.axhspan(1 - _TOLERANCE, 1 + _TOLERANCE, color=BAND, linewidth=0, zorder=0)
    below.axhline(1, color=INK, linewidth=0.8, zorder=1)
    for axes, values in ((above, predicted), (below, ratio)):
        for chosen, colour in ((~far, _GOOD), (far, _BAD)):
            axes.scatter(measured[chosen], values[chosen], s=16, color=colour, alpha=0.75, linewidths=0, zorder=3)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.minorticks_off()
    above.set_xlim(*ends)
    above.set_ylim(*ends)
    above.yaxis.set_major_formatter(lambda value, _: _round_us(value))
    above.set_ylabel("predicted, every layer of it")
    for line, (text, colour) in enumerate(
        ((f"{1 - far.mean():.0%} of {len(models)} models within 10%", _GOOD), ("the others", _BAD))
    ):
        above.annotate(text, (0.03, 0.95 - 0.05 * line), xycoords="axes fraction", color=colour)
    least, most = min(1 / 1.15, ratio.min() / 1.08), max(1.15, ratio.max() * 1.08)
    below.set_ylim(least, most)
    steps = [step for step in _RATIOS if least < step < most]
    below.set_yticks(steps, [f"{step:g}" for step in steps])
    # Positions on the axes, from 0 to 1.
    across, up = (np.log(measured / ends[0]) / np.log(ends[1] / ends[0]), np.log(ratio / least) / np.log(most / least))
    named: list[int] = []
    for i in np.argsort(-np.abs(np.log(ratio))).tolist():
        if len(named) < _NAMED and all(
            max(abs(across[i] - across[k]) / 3, abs(up[i] - up[k])) > _LABEL_GAP for k in named
        ):
            named.append(i)
            right = across[i] < 0.6
            below.annotate(
                models[i].model, (measured[i], ratio[i]), (5 if right else -5, 0), textcoords="offset points",
                ha="left" if right else "right", va="center", fontsize=7,
            )  # fmt: skip
    below.set_ylabel("predicted / measured")
    below.set_xlabel("measured")
    below.xaxis.set_major_formatter(lambda value, _: _round_us(value))
    _write_title(above, title)
    save_figure(figure, path)


def families(path: Path, title: str, rows: Sequence[FamilyErrors]) -> None:
    """Draws the mean error of each family's models, once with predicted and once with measured layers.

    Args:
        path: File to write.
        title: Title above the figure.
        rows: Errors of the families, in order from the top of the figure.
    """
    figure, axes = new_figure(7.2, 1.3 + ROW_INCHES * len(rows))
    positions = np.arange(len(rows))
    predicted, summed = [row.unseen for row in rows], [row.sum for row in rows]
    axes.hlines(positions, summed, predicted, color=GRID, linewidth=2, zorder=1)
    axes.scatter(summed, positions, s=22, color=PALE, linewidths=0, zorder=2, clip_on=False)
    axes.scatter(predicted, positions, s=22, color=_GOOD, linewidths=0, zorder=3, clip_on=False)
    _name_rows(axes, [f"{row.family} ({row.models})" for row in rows])
    _percent(axes.xaxis)
    axes.set_xlim(left=0)
    axes.annotate(
        "layers measured", (summed[0], 0), (0, 7), textcoords="offset points", ha="left", color=_SOFT, fontsize=8
    )
    axes.annotate(
        "layers predicted", (predicted[0], 0), (0, 7), textcoords="offset points", ha="right", color=_GOOD, fontsize=8
    )
    axes.set_ylim(len(rows) - 0.4, -1.6)
    axes.set_xlabel("mean error of the lineage's models (how many)")
    _write_title(axes, title)
    save_figure(figure, path)


def shares_and_errors(path: Path, title: str, classes: Mapping[str, ClassErrors], time_us: float) -> None:
    """Draws the errors of each class of layers (such as an operator), and beside them its share of the total time.

    Args:
        path: File to write.
        title: Title above the figure.
        classes: Errors of the classes by name, in order from the top of the figure.
        time_us: Sum of the latencies of all classes in microseconds, including those that are not drawn.
    """
    rows = list(classes.values())
    shares = [row.latency_us / time_us for row in rows]
    figure, (left, right) = new_figure(
        7.2, 1.4 + ROW_INCHES * 1.15 * len(rows), 1, 2, sharey=True, width_ratios=(3, 1.2)
    )
    positions = np.arange(len(rows))
    plain, weighted = [row.mape for row in rows], [row.weighted_mape for row in rows]
    left.hlines(positions, plain, weighted, color=GRID, linewidth=2, zorder=1)
    left.scatter(plain, positions, s=22, color=PALE, linewidths=0, zorder=2)
    left.scatter(weighted, positions, s=22, color=_GOOD, linewidths=0, zorder=3)
    _name_rows(left, list(classes))
    _percent(left.xaxis)
    left.set_xlim(left=0)
    for label, across, colour in (("each alike", 0.01, _SOFT), ("weighted by time", 0.25, _GOOD)):
        left.annotate(label, (across, -1), xycoords=("axes fraction", "data"), va="center", color=colour, fontsize=8)
    left.set_xlabel("mean error")
    right.barh(positions, shares, color=PALE, height=0.6)
    for position, row, share in zip(positions, rows, shares, strict=True):
        right.annotate(
            f"{share:.1%}, {row.layers:,}",
            (share, position),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    right.set_xlim(0, 1.9 * max(shares))
    right.spines[:].set_visible(False)
    right.tick_params(length=0, labelbottom=False, labelleft=False)
    right.set_xlabel("share of the time, how many", fontsize=8)
    left.set_ylim(len(rows) - 0.4, -1.6)
    _write_title(left, title)
    save_figure(figure, path)


def coverage(path: Path, title: str, points: Sequence[CoveragePoint]) -> None:
    """Draws the share of models inside their interval against the nominal coverage of the interval.

    Args:
        path: File to write.
        title: Title above the figure.
        points: Coverage of models at each nominal coverage, the lowest first.
    """
    figure, axes = new_figure(5.2, 4.8)
    levels = [point.level for point in points]
    axes.plot([levels[0], 1], [levels[0], 1], color=INK, linewidth=0.8)
    axes.annotate("as promised", (0.8, 0.8), (8, -4), textcoords="offset points", va="top")
    curves = [
        (
            np.array([point.model for point in points], dtype=np.float64),
            "layers measured where another lineage has them",
            _GOOD,
        ),
        (np.array([point.model_unseen for point in points], dtype=np.float64), "all predicted", _BAD),
    ]
    # Labels in the colours of the curves, in the order of the curves from above.
    for line, (shares, label, colour) in enumerate(sorted(curves, key=lambda curve: -curve[0][len(points) // 2])):
        axes.plot(levels, shares, marker="o", markersize=4, color=colour)
        axes.annotate(label, (0.03, 0.95 - 0.05 * line), xycoords="axes fraction", color=colour)
    _percent(axes.xaxis)
    _percent(axes.yaxis)
    axes.set_xlabel("nominal level of the interval")
    axes.set_ylabel("models inside")
    _write_title(axes, title)
    save_figure(figure, path)


def learning_curve(path: Path, title: str, points: Sequence[LearningPoint], errors: np.ndarray, label: str) -> None:
    """Draws two curves of a predictor's error: by the share of the lineages, and of the rows, that it was trained on.

    A row is a measured sequence. Each dot is a training run with one seed; the lines connect the means over seeds.

    Args:
        path: File to write.
        title: Title above the figure.
        points: Points of a learning curve.
        errors: Error to draw at each point, shape [num_points].
        label: Label of the vertical axis.
    """
    figure, axes = new_figure(6.4, 4)
    of_points, shares_of_points = np.array([point.of for point in points]), np.array([point.share for point in points])
    shares = sorted({point.share for point in points})
    middles = {}
    colours = dict(zip(REDUCTIONS, (_GOOD, _BAD), strict=True))
    for reduction, colour in colours.items():
        chosen = of_points == reduction
        axes.scatter(shares_of_points[chosen], errors[chosen], s=12, color=colour, alpha=0.4, linewidths=0)
        middle = [float(np.mean(errors[chosen & (shares_of_points == share)])) for share in shares]
        axes.plot(shares, middle, color=colour, marker="o", markersize=4)
        middles[reduction] = middle
    # Where the curves are farthest apart, a label beside each is clear of the other.
    first, second = middles.values()
    at = max(range(len(shares)), key=lambda place: abs(first[place] - second[place]))
    for reduction, colour in colours.items():
        height = middles[reduction][at]
        what = "lineages" if reduction == "families" else reduction
        upper = height == max(first[at], second[at])
        axes.annotate(
            f"a part of the {what}", (shares[at], height), (3, 6) if upper else (-3, -13),
            textcoords="offset points", color=colour, ha="left" if upper else "right",
        )  # fmt: skip
    most = next(point for point in reversed(points) if point.of == "families" and point.share == shares[-1])
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(shares, [f"{share:.0%}" for share in shares])
    _percent(axes.yaxis)
    axes.set_ylim(0, 1.15 * errors.max())
    axes.set_xlabel(f"trained on (all: {most.families:.0f} lineages, {most.rows:,.0f} rows)")
    axes.set_ylabel(label)
    _write_title(axes, title)
    save_figure(figure, path)


def _write_title(axes: Any, title: str) -> None:
    """Writes the first line of a title in bold above the figure, and the other lines small beneath it."""
    first, _, rest = title.partition("\n")
    axes.set_title(first, pad=20 if rest else 6)
    axes.annotate(rest, (0, 1), (0, 7), xycoords="axes fraction", textcoords="offset points", fontsize=8, color=_SOFT)


def _name_rows(axes: Any, names: Sequence[str]) -> None:
    axes.set_yticks(np.arange(len(names)), names, fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)


def _percent(axis: Any) -> None:
    axis.set_major_formatter(lambda value, _: f"{round(100 * value, 1):g}%")


def _round_us(value: float) -> str:
    """Formats a power of ten of microseconds without decimals, such as 100 µs or 1 ms."""
    number, _, unit = format_us(value).partition(" ")
    return f"{float(number):g} {unit}"
