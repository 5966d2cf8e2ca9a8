"""Draws figures like those of the DLBricks paper from values that the caller has computed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from costmodel.plotting import BAND, GRID, INK, PALE, ROW_INCHES, SERIES, new_figure, save_figure

__all__ = ["bars", "heat_map", "lines", "ratios"]


def ratios(
    path: Path, title: str, names: Sequence[str], series: Mapping[str, Sequence[float]], paper: Mapping[str, float]
) -> None:
    """Draws ratios of latencies: a row of dots for each model, the ideal line at 1 and a band of 5% around it.

    Args:
        path: Path of the file to write.
        title: Title of the figure.
        names: Names of the models, from the top.
        series: Ratios of the models, in the order of `names`, by name of the series; each series has dots of one
            colour.
        paper: Ratios that the DLBricks paper reports, by label; each is drawn as a dashed line.
    """
    figure, axes = new_figure(8, 1.6 + ROW_INCHES * len(names))
    rows = np.arange(len(names))
    axes.axvspan(0.95, 1.05, color=BAND, zorder=0, label="within 5%")
    axes.axvline(1, color=INK, linewidth=0.8, zorder=1)
    for label, value in paper.items():
        axes.axvline(value, color=PALE, linestyle="--", linewidth=1, zorder=1, label=label)
    for number, (label, values) in enumerate(series.items()):
        # The first series is drawn on top.
        color, order = SERIES[number % len(SERIES)], 3 + 1 / (1 + number)
        axes.scatter(values, rows, s=20, color=color, label=label, zorder=order, linewidths=0)
    axes.set_yticks(rows, names, fontsize=7.5)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("constructed / end-to-end latency")
    axes.set_title(title)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    save_figure(figure, path)


def bars(path: Path, title: str, names: Sequence[str], values: Sequence[float], label: str, *, percent: bool) -> None:
    """Draws a horizontal bar for each name, with its value at its end.

    Args:
        path: Path of the file to write.
        title: Title of the figure.
        names: Names of the bars, from the top.
        values: Lengths of the bars, in the order of `names`.
        label: Label of the horizontal axis.
        percent: Whether to write values as percentages.
    """
    figure, axes = new_figure(8, 1.0 + ROW_INCHES * len(names))
    rows = np.arange(len(names))
    axes.barh(rows, values, color=SERIES[0], height=0.7)
    for row, value in zip(rows, values, strict=True):
        axes.text(value, row, f" {value:.0%}" if percent else f" {value:,.0f}", va="center", fontsize=7)
    axes.set_yticks(rows, names, fontsize=7.5)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    if percent:
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    axes.set_xlabel(label)
    axes.set_title(title)
    save_figure(figure, path)


def heat_map(path: Path, title: str, names: Sequence[str], matrix: np.ndarray) -> None:
    """Draws a square matrix of values between 0 and 1, with a row and a column for each name.

    Args:
        path: Path of the file to write.
        title: Title of the figure.
        names: Names of the rows, which are also those of the columns.
        matrix: Values, shape [num_names, num_names].
    """
    side = 2.5 + 0.15 * len(names)
    figure, axes = new_figure(side + 0.8, side)
    image = axes.imshow(matrix, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=6.5)
    axes.set_yticks(range(len(names)), names, fontsize=6.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, shrink=0.5, label="Jaccard similarity of the sets of layers")
    axes.set_title(title)
    save_figure(figure, path)


def lines(
    path: Path,
    title: str,
    series: Mapping[str, Mapping[int, float]],
    label: str,
    paper: tuple[str, float] | None = None,
    band: bool = False,
) -> None:
    """Draws a line for each system: a value on the vertical axis, the granularity on the horizontal one.

    Args:
        path: Path of the file to write.
        title: Title of the figure.
        series: Values by granularity, by name of the system.
        label: Label of the vertical axis.
        paper: Label and value of the DLBricks paper's result, which is drawn as a dashed line; None for no such line.
        band: Whether to draw the ideal line at 1 and a band of 5% around it.
    """
    figure, axes = new_figure(7, 4)
    if band:
        axes.axhspan(0.95, 1.05, color=BAND, zorder=0, label="within 5%")
        axes.axhline(1, color=INK, linewidth=0.8)
    if paper is not None:
        axes.axhline(paper[1], color=PALE, linestyle="--", linewidth=1, label=paper[0])
    for number, (name, values) in enumerate(series.items()):
        colour = SERIES[number % len(SERIES)]
        axes.plot(list(values), list(values.values()), marker="o", markersize=4, color=colour, label=name)
    axes.set_xticks(sorted({granularity for values in series.values() for granularity in values}))
    axes.set_xlabel("granularity G: the most layers in a sequence")
    axes.set_ylabel(label)
    axes.set_title(title)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    save_figure(figure, path)
