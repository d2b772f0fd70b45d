"""The default figure of an experiment: a measure by what the grid varies, and learning curves."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from coefdyn.plot.style import (
    ACCURACY,
    BLUE,
    COLUMN,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    YELLOW,
    accuracy_axis,
    legend_below,
    paper_style,
    task_name,
)
from coefdyn.results.tables import free_axes

COLOURS = (BLUE, ORANGE, GREEN, RED, PINK, SKY, YELLOW, GREY)
STYLES = ("-", "--", ":", "-.")
WIDTH = 0.6  # over which the points at one place of the x-axis are spread
MEASURES = {"accuracy": ACCURACY, "test/perplexity": "test perplexity"}


def draw_default(stem: str, tables: Mapping[str, pd.DataFrame]) -> Figure:
    """A panel per task: above, means over seeds, smallest and largest; below, learning curves."""
    points = tables[stem]
    curves = tables.get(f"{stem}_curves", pd.DataFrame(columns=["step", "task"]))
    panel, x, hues = chosen_axes(points)
    measure = "test/perplexity" if points["test/perplexity"].notna().all() else "accuracy"
    names = list(dict.fromkeys(points[panel])) if panel else [None]
    # From the whole table: a panel may lack some of its designs.
    colours = {
        label: COLOURS[i % len(COLOURS)] for i, (label, _) in enumerate(_groups(points, hues))
    }
    with paper_style():
        figure = Figure(figsize=(max(1.2, len(names)) * COLUMN, 5.0), layout="constrained")
        grid = figure.subplots(2, len(names), squeeze=False)
        for (upper, lower), name in zip(grid.T, names, strict=True):
            rows, lines = (
                table if name is None else table[table[panel] == name] for table in (points, curves)
            )
            draw_points(upper, rows, x, hues, colours, measure)
            upper.set_title("" if name is None else task_name(str(name)))
            draw_curves(lower, lines, x, hues, colours)
        if hues:
            legend_below(figure, columns=4)
    return figure


def chosen_axes(points: pd.DataFrame) -> tuple[str | None, str | None, list[str]]:
    """The columns that the panels, the x-axis and the colours stand for.

    Only columns that vary by themselves: not those that follow from others, as slots follow from a
    preset.
    """
    varying = free_axes(points)
    panel = "task" if "task" in varying else None
    rest = [name for name in varying if name != panel]
    numbers = [name for name in rest if pd.api.types.is_numeric_dtype(points[name])]
    x = max(numbers or rest, key=lambda name: points[name].nunique(), default=None)
    return panel, x, [name for name in rest if name != x]


def draw_points(
    axes: Axes,
    points: pd.DataFrame,
    x: str | None,
    hues: Sequence[str],
    colours: Mapping[str, str],
    measure: str = "accuracy",
) -> None:
    """Means over seeds, and a line from the smallest to the largest accuracy."""
    places = _places(points, x)
    groups = _groups(points, hues)
    for number, (label, group) in enumerate(groups):
        shift = WIDTH * ((number + 0.5) / len(groups) - 0.5)
        positions = (
            np.array([places.index(value) if x else 0 for value in group[x or measure]]) + shift
        )
        colour = colours[label]
        axes.plot(positions, group[measure], "o", color=colour, label=label)
        if measure == "accuracy":
            axes.vlines(
                positions, group["accuracy_min"], group["accuracy_max"], color=colour, linewidth=1
            )
    axes.set_xticks(range(len(places)), [_word(value) for value in places])
    if len(places) > 4:
        axes.tick_params("x", rotation=30)
    axes.set_xlim(-0.6, len(places) - 0.4)
    axes.set_xlabel(_word(x or ""))
    if measure == "accuracy":
        chances = points["chance"].unique()
        accuracy_axis(axes, float(chances[0]) if len(chances) == 1 else None)
    else:
        axes.set_ylabel(MEASURES[measure])


def draw_curves(
    axes: Axes,
    curves: pd.DataFrame,
    x: str | None,
    hues: Sequence[str],
    colours: Mapping[str, str],
) -> None:
    """Mean test accuracy over seeds against the training step; for text, the validation loss.

    Colours are those of the points. Line styles stand for the places on their x-axis.
    """
    columns = [c for c in ("test/accuracy", "validation/loss", "train/loss") if c in curves]
    column = next((c for c in columns if curves[c].notna().any()), None)
    if column is None:
        axes.annotate("no curves", (0.5, 0.5), xycoords="axes fraction", ha="center", color="0.5")
        return
    rows = curves[curves[column].notna()]
    places = _places(rows, x)
    for label, group in _groups(rows, hues):
        for place, value in enumerate(places):
            mean = (group[group[x] == value] if x else group).groupby("step")[column].mean()
            style = STYLES[place % len(STYLES)]
            axes.plot(mean.index, mean, color=colours[label], linestyle=style, linewidth=1)
    if len(places) > 1:
        keys = [Line2D([], [], color="0.4", ls=s) for s in STYLES[: len(places)]]
        labels = [_word(value) for value in places[: len(STYLES)]]
        axes.legend(keys, labels, title=_word(x), fontsize=6, title_fontsize=6)
    axes.set_xlabel("training step")
    axes.set_ylabel(ACCURACY if column == "test/accuracy" else column.replace("/", " "))


def _places(table: pd.DataFrame, x: str | None) -> list[Any]:
    """The values on the x-axis: numbers by size, words in alphabetical order."""
    return sorted(table[x].unique(), key=_order) if x else [""]


def _groups(table: pd.DataFrame, hues: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """The label and the rows of each colour."""
    if not hues:
        return [("", table)]
    groups = table.groupby(list(hues), sort=False, dropna=False)
    return [(", ".join(map(_word, key)), group) for key, group in groups]


def _word(value: object) -> str:
    return str(value).replace("_", " ")


def _order(value: object) -> tuple[float, str]:
    return (float(value), "") if isinstance(value, Real) else (0.0, str(value))
