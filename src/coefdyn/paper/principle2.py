"""Principle 2: accuracy against the fraction near zero and against the ratio; the readouts."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coefdyn.config.build import readout
from coefdyn.paper.looks import NEAR_ZERO, READOUTS, SCORES, readout_look
from coefdyn.paper.points import ceiling_of, chance_of, seeds_of
from coefdyn.plot.style import (
    PAGE,
    accuracy_axis,
    legend_below,
    log_axis,
    paper_style,
    show_seeds,
    task_name,
)
from coefdyn.results.claim import Claim, Effect, Region, Tables
from coefdyn.results.effects import agreement, contrast, rates_inside, room, solved_by
from coefdyn.results.experiment import Experiment
from coefdyn.results.variance import reach_of

STEM = "principle2_readout"
TASKS = ("fuzzy_recall", "selective_copying", "memorization")
EPS = 1e-3
LOW = -12.0  # where the axis of scores begins
PANELS = {  # column -> label of its axis
    "near_zero": NEAR_ZERO,
    "near_zero_raw": r"fraction of $|\alpha_{ij}| \leq 10^{-3}$",
    "ratio": r"in $[0.9, 1]$ / near zero, of $\alpha_{ij}/\eta_i$",
}


def draw(tables: Tables) -> Figure:
    points = tables[STEM]
    with paper_style():
        tasks = [task for task in TASKS if (points["task"] == task).any()]
        figure = Figure(figsize=(PAGE, 8.4), layout="constrained")
        grid = figure.add_gridspec(4, 2 * len(tasks))
        for column, task in enumerate(tasks):
            place = slice(2 * column, 2 * column + 2)
            for row, (name, words) in enumerate(PANELS.items()):
                axes = figure.add_subplot(grid[row, place])
                _scatter(axes, tables, task, name, label=column == 0)
                axes.set_xlabel(words)
                if row == 0:
                    axes.set_title(task_name(task))
        _curves(figure.add_subplot(grid[3, : len(tasks)]))
        _sets(figure.add_subplot(grid[3, len(tasks) :]))
        legend_below(figure, len(SCORES))
    return figure


def _scatter(axes: Axes, tables: Tables, task: str, column: str, label: bool) -> None:
    """A mark per readout and a dot per seed. Hollow marks: the same readout before training."""
    points = tables[STEM]
    rows = points[points["task"] == task]
    shown = rows[rows[column] > 0] if column == "ratio" else rows[rows[column].notna()]
    if column == "ratio":
        log_axis(axes)
    for row in shown.to_dict("records"):
        words, colour = readout_look(row["readout"])
        words = f"{words} (softmax attention)" if row["readout"] == "exp" else words
        marker, size = ("*", 9) if row["readout"] == "exp" else ("o", 6)
        x, y = (seeds_of(tables, STEM, row, name) for name in (column, "accuracy"))
        if len(x) == len(y):
            show_seeds(axes, x, y, (reach_of(x), reach_of(y)), colour)
        start = row.get(f"{column}_initial")
        if start is not None and start == start:
            axes.plot([start, row[column]], [row["accuracy"]] * 2, ":", color=colour, linewidth=0.7)
            axes.plot(start, row["accuracy"], marker, color=colour, fillstyle="none",
                      markersize=size - 1, markeredgewidth=0.8)  # fmt: skip
        axes.plot(row[column], row["accuracy"], marker, color=colour, label=words, markersize=size,
                  linestyle="none")  # fmt: skip
    if shown.empty:
        words = "no runs" if rows.empty else "no point has one"
        axes.annotate(words, (0.5, 0.5), xycoords="axes fraction", ha="center", color="0.5")
    # The identity only guesses: left of the others by near zero, right of them by ratio. The word
    # "chance" is written on the other side.
    accuracy_axis(axes, chance_of(rows), label, "left" if column == "ratio" else "right")
    if (ceiling := ceiling_of(rows)) is not None:
        axes.axhline(ceiling, color="0.6", linestyle="--", linewidth=0.8, zorder=0)


def _curves(axes: Axes) -> None:
    s = torch.linspace(-8, 2, 400, dtype=torch.float64)
    for name in SCORES:
        axes.plot(s, readout(name)(s), color=READOUTS[name][1])
    axes.axhline(0, color="0.7", linewidth=0.6, zorder=0)
    axes.set(xlabel="$s$", ylabel=r"$\phi(s)$", title="the readouts", ylim=(-2, 3))


def _sets(axes: Axes) -> None:
    for height, name in enumerate(SCORES):
        colour = READOUTS[name][1]
        for start, end in readout(name).near_zero_set(EPS):
            left, right = max(start, LOW), min(end, -LOW)
            axes.plot(
                [left, right], [height, height], color=colour, linewidth=5, solid_capstyle="butt"
            )
            if math.isinf(start):
                axes.annotate("", (LOW - 0.9, height), (LOW, height),
                              arrowprops={"arrowstyle": "->", "color": colour})  # fmt: skip
            text = f"$\\leq {end:.3f}$" if math.isinf(start) else rf"$|s| \leq {end:g}$"
            axes.annotate(text, (right, height), xytext=(4, 0), textcoords="offset points",
                          va="center", fontsize=7)  # fmt: skip
            if not math.isinf(start):
                axes.plot(0, height, "|", color=colour, markersize=7)
    axes.set_yticks(np.arange(len(SCORES)), [READOUTS[name][0] for name in SCORES])
    axes.set(xlabel="$s$", title=r"where $|\phi(s)| \leq 10^{-3}$", xlim=(LOW - 1, 4.5))
    axes.set_ylim(-0.6, len(SCORES) - 0.4)


MIDDLE = ("exp", "softplus", "sigmoid", "elu_plus_one")  # their near-zero sets agree to 0.001
PLACE = "Principle 2 and its figure"


def _where(task: str, readout: str) -> dict[str, object]:
    return {"task": task, "readout": readout}


def _contrasts(task: str, column: str, least: float) -> Callable[[Tables], list[Effect]]:
    """The readouts with a half-line as near-zero set against the identity; relu against them."""

    def effects(tables: Tables) -> list[Effect]:
        share, words = 1 / len(MIDDLE), column.replace("_", " ")
        positive = [(share, STEM, column, _where(task, name)) for name in MIDDLE]
        negative = [(-share, STEM, column, _where(task, name)) for name in MIDDLE]
        return [
            contrast(tables, f"{words}: half-lines - identity",
                     [*positive, (-1.0, STEM, column, _where(task, "identity"))], Region(least)),
            contrast(tables, f"{words}: relu - half-lines",
                     [(1.0, STEM, column, _where(task, "relu")), *negative], Region(least)),
        ]  # fmt: skip

    return effects


def _agreement(task: str) -> Callable[[Tables], list[Effect]]:
    def effects(tables: Tables) -> list[Effect]:
        points = [_where(task, name) for name in SCORES]
        return [agreement(tables, "agreement", STEM, "ratio", points, Region(0.5))]

    return effects


def _claims() -> Iterator[Claim]:
    for task in TASKS:
        points = [_where(task, name) for name in SCORES]
        learned = (solved_by(STEM, _where(task, "exp")), rates_inside(STEM, points))
        name, reads = task_name(task), tuple(points)
        yield Claim(
            f"P2 {name}, set to near zero",
            f"On {name}, a larger near-zero set of phi gives a larger near-zero fraction.",
            PLACE,
            (STEM,),
            _contrasts(task, "near_zero", 0.05),
            learned,
            other_reading=_contrasts(task, "near_zero_raw", 0.05),
            reads=reads,
        )
        if task != "memorization":
            yield Claim(
                f"P2 {name}, near zero to accuracy",
                f"On {name}, readouts with more coefficients near zero have a higher accuracy.",
                PLACE,
                (STEM,),
                _contrasts(task, "accuracy", 0.02),
                (*learned, room(STEM, points)),
                reads=reads,
            )
        yield Claim(
            f"P2 {name}, ratio to accuracy",
            f"On {name}, a larger ratio of coefficients near 1 to near 0 gives a higher accuracy.",
            PLACE,
            (STEM,),
            _agreement(task),
            (*learned, room(STEM, points)),
            reads=reads,
        )


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Principle 2. Accuracy of six readouts against the fraction of coefficients near "
        "zero, of alpha/eta and of alpha itself, and against the ratio of coefficients in [0.9, 1] "
        "to those near zero (a readout with none near zero has no ratio, one with none in [0.9, 1] "
        "has 0; both are left out). Hollow: the same readout before training, which is the "
        "design's own share. Small dots are seeds, lines 95 % intervals of their means. Bottom: "
        "the readouts around zero, and where each is at most 0.001 in size.",
        draw=draw,
        claims=tuple(_claims()),
    ),
)
