"""Tables in which every number is another one, and what a figure shows of them.

Figures are read from their axes, not from pixels: a test can then say which number stands where.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from coefdyn.paper import experiments
from coefdyn.results.tables import AXES, CURVE_COLUMNS, POINT_COLUMNS, WORDS

TASKS = ("fuzzy_recall", "selective_copying", "memorization")
CHANCES = dict(zip(TASKS, (0.0625, 0.125, 0.25), strict=True))
SIZES = {"n_heads": 4, "n_state": 32, "seq_len": 16}
# How the figures write the choices; colours may change, words may not change places.
READOUTS = {
    "exp": "$e^s$",
    "softplus": "softplus",
    "relu": "relu",
    "identity": "identity",
    "sigmoid": "sigmoid",
    "elu_plus_one": "elu$+1$",
}
KERNELS = {
    "kernel_relu": r"$\psi=$relu",
    "kernel_elu_plus_one": r"$\psi=$elu$+1$",
    "kernel_softplus": r"$\psi=$softplus",
    "kernel_exp": r"$\psi=e^s$",
}
NEAR_ZERO = r"fraction of $|\alpha_{ij}/\eta_i| \leq 10^{-3}$"

Point = tuple[float, float]
Look = tuple[str, str]  # a colour, and the marker and line, or the hatch of a bar


def made_up(**axes: Sequence[Any]) -> pd.DataFrame:
    """Points of a grid, a row per combination, in no order."""
    table = _combinations(POINT_COLUMNS, axes)
    accuracies = ["accuracy_min", "accuracy", "accuracy_max"]
    table[accuracies] = np.sort(table[accuracies])
    table["chance"] = table["task"].map(CHANCES).fillna(0.1)
    return table.assign(diverged=0, lr_at_edge="inside")


def made_up_curves(**axes: Sequence[Any]) -> pd.DataFrame:
    """Two seeds of three steps each."""
    return _combinations(CURVE_COLUMNS, {**axes, "seed": (0, 1), "step": (10, 20, 30)})


def _combinations(columns: Sequence[str], axes: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    rows = pd.DataFrame(list(product(*axes.values())), columns=list(axes))
    rows = rows.sample(frac=1, random_state=1, ignore_index=True)
    after = columns.index(AXES[-1]) + 1  # where tables have what else a grid varies
    table = rows.reindex(columns=list(dict.fromkeys([*columns[:after], *axes, *columns[after:]])))
    numbers = [name for name in columns if name not in (*axes, *WORDS, *SIZES)]
    count = len(table) * len(numbers)
    distinct = np.random.default_rng(0).permutation(count).reshape(len(table), -1)
    table[numbers] = 0.05 + np.round(distinct / count * 0.9, 4) + 2e-5  # no ties in rounding
    same = dict.fromkeys(WORDS, "same") | SIZES | {"scale": "smoke"}
    return table.assign(**{k: v for k, v in same.items() if k in table and k not in axes})


def the(table: pd.DataFrame, column: str, **where: object) -> Any:
    """The one value of a column where the others have these."""
    for name, value in where.items():
        table = table[table[name] == value]
    assert len(table) == 1
    return number(table[column].iloc[0])


def mean_over_seeds(curves: pd.DataFrame, column: str, **where: object) -> list[Point]:
    seeds = [[the(curves, column, step=s, seed=k, **where) for k in (0, 1)] for s in (10, 20, 30)]
    return [(s, number(sum(v) / 2)) for s, v in zip((10.0, 20.0, 30.0), seeds, strict=True)]


def number(value: Any) -> Any:
    return round(float(value), 6) if isinstance(value, float | int | np.number) else value


def wording(axes: Axes) -> tuple[str, str, str]:
    return axes.get_title(), axes.get_xlabel(), axes.get_ylabel()


def ticks(axis: Axis) -> dict[float, str]:
    words = [label.get_text() for label in axis.get_ticklabels()]
    return dict(zip(map(number, axis.get_ticklocs()), words, strict=True))


def marks(axes: Axes) -> dict[str, list[Point]]:
    """Points and lines by their label; those that have none, by their colour."""
    found: dict[str, list[Point]] = {}
    for line in axes.get_lines():
        if not _across(axes, line):
            points = [(number(x), number(y)) for x, y in line.get_xydata()]
            found.setdefault(_label(line) or look(line)[0], []).extend(points)
    return found


def levels(axes: Axes) -> dict[float, tuple[str, str]]:
    """The label and style of each line across the whole panel, by where it stands."""
    lines = [line for line in axes.get_lines() if _across(axes, line)]
    return {number(line.get_ydata()[0]): (_label(line), look(line)[1]) for line in lines}


def _across(axes: Axes, line: Line2D) -> bool:
    return line.get_transform().contains_branch_seperately(axes.transData) == (False, True)


def _label(artist: Any) -> str:
    label = str(artist.get_label())
    return "" if label.startswith("_") else label


def bars(axes: Axes) -> dict[float, tuple[float, str, Look]]:
    """Height, label and look of the bar at each place."""
    found = {}
    for group in axes.containers:
        for bar in group.patches:
            middle = number(bar.get_x() + bar.get_width() / 2)
            found[middle] = (number(bar.get_height()), _label(group), look(bar))
    return found


def texts(axes: Axes) -> list[tuple[str, float, float]]:
    """What is written into the panel, and at which x and y."""
    notes = [text for text in axes.texts if isinstance(text, Annotation)]
    return sorted((note.get_text(), number(note.xy[0]), number(note.xy[1])) for note in notes)


def look(artist: Any) -> Look:
    if isinstance(artist, Line2D):
        parts = (artist.get_marker(), artist.get_linestyle())
        style = "".join(part for part in parts if part != "None")
        return to_hex(artist.get_color()).upper(), style
    patch = artist.patches[0] if hasattr(artist, "patches") else artist
    return to_hex(patch.get_facecolor()).upper(), patch.get_hatch() or ""


def looks(axes: Axes) -> dict[str, Look]:
    """Of each label of a panel. One that has two is an error."""
    pairs = [(k, look(handle)) for handle, k in zip(*axes.get_legend_handles_labels(), strict=True)]
    assert len(set(pairs)) == len(dict(pairs))
    return dict(pairs)


def legend(of: Figure | Axes) -> dict[str, Look]:
    box = of.legends[0] if isinstance(of, Figure) else of.get_legend()
    assert isinstance(box, Legend)
    words = [text.get_text() for text in box.get_texts()]
    return dict(zip(words, map(look, box.legend_handles), strict=True))


def drawn(stem: str, **tables: pd.DataFrame) -> Figure:
    return experiments()[stem].draw(tables)


def chance_is_marked(axes: Axes, task: str, x: float = 1.0) -> bool:
    chance = CHANCES[task]
    return levels(axes)[chance] == ("", ":") and ("chance", x, chance) in texts(axes)
