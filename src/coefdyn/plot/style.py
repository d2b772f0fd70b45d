"""The colours, sizes and axes that all figures share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

# Okabe and Ito's colours, which the colour-blind can tell apart.
BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#7F7F7F",
)  # fmt: skip
COLUMN, PAGE = 3.4, 7.0  # inches
ACCURACY = "test accuracy"


def task_name(task: str) -> str:
    return task.replace("_", " ")


def legend_below(figure: Figure, columns: int) -> None:
    """One legend for all panels, each label once. A panel without runs has none of them."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)


@contextmanager
def paper_style() -> Iterator[None]:
    """Sizes and lines that are readable at the width of a column."""
    with mpl.rc_context(
        {
            "font.size": 8,
            "axes.titlesize": 8.5,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.linewidth": 0.6,
            "xtick.major.width": 0.6,
            "ytick.major.width": 0.6,
            "lines.linewidth": 1.3,
            "lines.markersize": 5,
            "legend.frameon": False,
            "legend.fontsize": 7.5,
            "savefig.dpi": 200,
            "pdf.fonttype": 42,
            "svg.hashsalt": "coefdyn",
        }
    ):
        yield


def log_axis(axes: Axes) -> None:
    """A logarithmic x-axis with few ticks, written as plain numbers."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


Place = Literal["left", "right", "beside"]


def accuracy_axis(
    axes: Axes, chance: float | None = None, label: bool = True, chance_at: Place = "right"
) -> None:
    """A y-axis from 0 to 1, with a dotted line at chance."""
    axes.set_ylim(-0.03, 1.05)
    if label:
        axes.set_ylabel(ACCURACY)
    if chance is not None:
        level_line(axes, chance, "chance", chance_at)


def level_line(axes: Axes, level: float, word: str, at: Place) -> None:
    """A dotted line at a level, with its name where nothing drawn hides it."""
    axes.axhline(level, color="0.6", linestyle=":", linewidth=0.8, zorder=0)
    axes.annotate(word, (0.02 if at == "left" else 1.0, level),
                  xycoords=("axes fraction", "data"), color="0.4", fontsize=6.5,
                  ha="right" if at == "right" else "left",
                  va="center" if at == "beside" else "bottom")  # fmt: skip


def show_seeds(axes: Axes, x: Any, y: Any, reach: tuple[float, float], colour: str) -> None:
    """A dot per seed, and the intervals of their means as lines along x and along y.

    `x`, `y`: a number per seed, or one for all. `reach`: half the width of the interval along x and
    along y; 0 draws no line.
    """
    x, y = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(y, dtype=float))
    if x.size < 2:
        return
    axes.scatter(x, y, 5, color=colour, alpha=0.6, linewidths=0)
    along, up = reach
    if along:
        axes.hlines(y.mean(), x.mean() - along, x.mean() + along, color=colour, linewidth=0.8)
    if up:
        axes.vlines(x.mean(), y.mean() - up, y.mean() + up, color=colour, linewidth=0.8)
