"""How figures look, whatever they show: palette, type, files; matplotlib is imported here and nowhere else."""

from pathlib import Path
from typing import Any

from costmodel.errors import MissingExtraError

__all__ = ["BAND", "GRID", "INK", "PALE", "ROW_INCHES", "SERIES", "check_installed", "new_figure", "save_figure"]

INK, PALE, BAND, GRID = "#22303c", "#9aa7b2", "#e7eef4", "#eef1f4"
SERIES = ("#1f6fb2", "#d9822b", "#3c9d6b", "#a4508b", "#7f7f2a", "#c0392b", "#5d6d7e", "#16a085", "#884ea0", "#2c3e50")
ROW_INCHES = 0.19


def check_installed() -> None:
    """See that figures can be drawn, before hours are spent on what is to be in them.

    Raises:
        MissingExtraError: They cannot.
    """
    _matplotlib()


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise MissingExtraError("drawing figures", "plots") from error
    return matplotlib


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **how: Any) -> tuple[Any, Any]:
    """A figure and its axes, sizes in inches.

    Args:
        width: Of the whole.
        height: Of the whole.
        rows: Of axes.
        columns: Of axes.
        how: More for `pyplot.subplots`.
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
    """Write a figure as SVG, the same bytes for the same figure."""
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
