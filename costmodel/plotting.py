"""Shared style of all figures: palette, fonts, file format. No other module imports matplotlib."""

from pathlib import Path
from typing import Any

from costmodel.errors import MissingExtraError

__all__ = ["BAND", "GRID", "INK", "PALE", "ROW_INCHES", "SERIES", "check_installed", "new_figure", "save_figure"]

INK, PALE, BAND, GRID = "#22303c", "#9aa7b2", "#e7eef4", "#eef1f4"
SERIES = ("#1f6fb2", "#d9822b", "#3c9d6b", "#a4508b", "#7f7f2a", "#c0392b", "#5d6d7e", "#16a085", "#884ea0", "#2c3e50")
ROW_INCHES = 0.19


def check_installed() -> None:
    """Checks that figures can be drawn, before a long measurement whose results are to be drawn.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    _matplotlib()


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise MissingExtraError("drawing figures", "plots") from error
    return matplotlib


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **how: Any) -> tuple[Any, Any]:
    """Returns a new matplotlib figure in the shared style, and its axes (an array if there are several).

    Args:
        width: Width of the figure in inches.
        height: Height of the figure in inches.
        rows: Number of rows of axes.
        columns: Number of columns of axes.
        how: Further keyword arguments of `pyplot.subplots`.
    """
    matplotlib = _matplotlib()
    matplotlib.use("svg")
    matplotlib.rcParams.update({
        "svg.hashsalt": "costmodel", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9,
        "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": PALE, "axes.labelcolor": INK,
        "text.color": INK, "xtick.color": INK, "ytick.color": INK, "axes.titlelocation": "left",
        "axes.titlesize": 11, "axes.titleweight": "bold", "legend.frameon": False,
    })  # fmt: skip
    from matplotlib import pyplot

    return pyplot.subplots(rows, columns, figsize=(width, height), layout="constrained", **how)


def save_figure(figure: Any, path: Path) -> None:
    """Writes a figure to `path` as SVG and closes it; the same figure always gives the same bytes."""
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
