"""Principle 2: accuracy against the fraction near zero and against the ratio; the readouts."""

import math

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coefdyn.paper.figures import Tables
from coefdyn.paper.readouts import near_zero_set, readout
from coefdyn.plot.style import (
    NEAR_ZERO,
    PAGE,
    READOUTS,
    accuracy_axis,
    legend_below,
    log_axis,
    paper_style,
    readout_look,
    task_name,
)

CAPTION = (
    "Principle 2. Top: accuracy of six readouts against the fraction of coefficients near zero. "
    "Middle: against the ratio of coefficients in [0.9, 1] to those near zero (a readout with "
    "none near zero has no ratio, one with none in [0.9, 1] has 0; both are left out). Bottom: "
    "the readouts around zero, and where each is at most 0.001 in size. Exp is softmax attention. "
    "Best of the lr x weight-decay grid."
)
TASKS = ("fuzzy_recall", "selective_copying", "memorization")
EPS = 1e-3


def draw(tables: Tables) -> Figure:
    points = tables["principle2_readout"]
    with paper_style():
        figure = Figure(figsize=(PAGE, 6.6), layout="constrained")
        grid = figure.add_gridspec(3, 6)
        for column, task in enumerate(TASKS):
            rows = points[points["task"] == task]
            place = slice(2 * column, 2 * column + 2)
            top = figure.add_subplot(grid[0, place])
            _scatter(top, rows, "near_zero", label=column == 0)
            top.set(title=task_name(task), xlabel=NEAR_ZERO, xlim=(-0.03, 1.03))
            middle = figure.add_subplot(grid[1, place])
            log_axis(middle)
            _scatter(middle, rows, "ratio", label=column == 0)
            middle.set(xlabel=r"in $[0.9, 1]$ / near zero")
        _curves(figure.add_subplot(grid[2, :3]))
        _sets(figure.add_subplot(grid[2, 3:]))
        legend_below(figure, len(_names()))
    return figure


def _scatter(axes: Axes, rows: pd.DataFrame, column: str, label: bool) -> None:
    shown = rows[rows[column] > 0] if column == "ratio" else rows[rows[column].notna()]
    for row in shown.to_dict("records"):
        words, colour = readout_look(row["readout"])
        marker = "*" if row["readout"] == "exp" else "o"
        size = 9 if marker == "*" else 6
        axes.plot(row[column], row["accuracy"], marker, color=colour, label=words, markersize=size,
                  linestyle="none")  # fmt: skip
    if shown.empty:
        words = "no runs" if rows.empty else "no point has one"
        axes.annotate(words, (0.5, 0.5), xycoords="axes fraction", ha="center", color="0.5")
    # identity, with the fewest near zero and the largest ratio, is the one that only guesses
    chance = rows["chance"].iloc[0] if len(rows) else None
    accuracy_axis(axes, chance, label, said="left" if column == "ratio" else "right")


def _names() -> list[str]:
    return [name for name in READOUTS if not name.startswith("kernel_")]


def _curves(axes: Axes) -> None:
    s = torch.linspace(-8, 2, 400, dtype=torch.float64)
    for name in _names():
        axes.plot(s, readout(name)(s), color=READOUTS[name][1])
    axes.axhline(0, color="0.7", linewidth=0.6, zorder=0)
    axes.set(xlabel="$s$", ylabel=r"$\phi(s)$", title="the readouts", ylim=(-2, 3))


def _sets(axes: Axes) -> None:
    low = -12.0
    for height, name in enumerate(_names()):
        colour = READOUTS[name][1]
        for start, end in near_zero_set(name, EPS):
            left, right = max(start, low), min(end, -low)
            axes.plot(
                [left, right], [height, height], color=colour, linewidth=5, solid_capstyle="butt"
            )
            if math.isinf(start):
                axes.annotate("", (low - 0.9, height), (low, height),
                              arrowprops={"arrowstyle": "->", "color": colour})  # fmt: skip
            text = f"$\\leq {end:.3f}$" if math.isinf(start) else rf"$|s| \leq {end:g}$"
            axes.annotate(text, (right, height), xytext=(4, 0), textcoords="offset points",
                          va="center", fontsize=7)  # fmt: skip
            if not math.isinf(start):
                axes.plot(0, height, "|", color=colour, markersize=7)
    axes.set_yticks(np.arange(len(_names())), [READOUTS[name][0] for name in _names()])
    axes.set(xlabel="$s$", title=r"where $|\phi(s)| \leq 10^{-3}$", xlim=(low - 1, 4.5))
    axes.set_ylim(-0.6, len(_names()) - 0.4)
