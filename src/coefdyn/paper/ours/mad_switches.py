"""Why MAD scores of one architecture differ between papers: habits of scoring and training."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coefdyn.errors import ConfigError
from coefdyn.plot.style import BLUE, GREY, ORANGE, PAGE, paper_style, task_name
from coefdyn.results.claim import Tables
from coefdyn.results.experiment import Experiment
from coefdyn.results.variance import Values, weighted_sum

STEM = "mad_switches"
AS_BUILT = "as_built"
LEVEL = 0.95
Side = tuple[str, str]  # a column of tables, and a reading
# A habit -> what is measured with it, and without it.
SWITCHES: Mapping[str, tuple[Side, Side]] = {
    "macro accuracy, not micro": (("accuracy_macro", AS_BUILT), ("accuracy", AS_BUILT)),
    "best epoch, not last": (("accuracy_best", AS_BUILT), ("accuracy", AS_BUILT)),
    "constant rate, not cosine": (("accuracy", "constant_rate"), ("accuracy", AS_BUILT)),
    "betas 0.9, 0.999, not 0.98": (("accuracy", "torch_betas"), ("accuracy", AS_BUILT)),
    "the original's data": (("accuracy", "original_data"), ("accuracy", AS_BUILT)),
}
TASKS = ("compression", "fuzzy_recall", "in_context_recall", "memorization", "noisy_recall",
         "selective_copying")  # fmt: skip
# Published scores of a Transformer over the 66 settings, in the order of TASKS.
PUBLISHED: Mapping[str, tuple[float, ...]] = {
    "Yang et al. 2024 (arXiv 2406.06484)": (0.516, 0.298, 0.941, 0.852, 0.868, 0.996),
    "lin-attn-bench (github.com/HassanJbara)": (0.432, 0.565, 0.905, 0.788, 0.897, 0.998),
}
AVERAGE = "average"
COLUMNS = ["switch", "task", "difference", "low", "high", "seeds"]


def differences(tables: Tables) -> pd.DataFrame:
    """A row per habit and task, and one for their average, with an interval over seeds.

    Two columns of the same runs are compared run by run, two readings as separate samples. A habit
    without runs has no rows, and without all tasks no average.
    """
    if "reading" not in tables[f"{STEM}_runs"]:
        raise ConfigError("it has one reading, and compares nothing")
    rows = []
    for switch, sides in SWITCHES.items():
        found = {task: _samples(tables, task, *sides) for task in TASKS}
        found = {task: samples for task, samples in found.items() if samples}
        if len(found) == len(TASKS):
            every = [(w / len(TASKS), x) for samples in found.values() for w, x in samples]
            found[AVERAGE] = every
        for task, samples in found.items():
            total = weighted_sum([x for _, x in samples], [w for w, _ in samples], None, 0)
            seeds = min(len(x) for _, x in samples)
            rows.append([switch, task, total.value, *total.interval(LEVEL), seeds])
    if not rows:
        raise ConfigError("no task has two seeds as built, so nothing can be compared")
    return pd.DataFrame(rows, columns=COLUMNS)


def _samples(tables: Tables, task: str, one: Side, other: Side) -> list[tuple[float, Values]]:
    """Weights and values per seed, whose weighted sum is the difference; none below two seeds."""
    with_it, without = (_values(tables, task, *side) for side in (one, other))
    if min(len(with_it), len(without)) < 2:
        return []
    same_runs = one[1] == other[1]
    return [(1.0, with_it - without)] if same_runs else [(1.0, with_it), (-1.0, without)]


def _values(tables: Tables, task: str, column: str, reading: str) -> Values:
    runs = tables[f"{STEM}_runs"]
    rows = runs[(runs["task"] == task) & (runs["reading"] == reading)].sort_values("seed")
    return pd.to_numeric(rows[column]).dropna().to_numpy(dtype=float)


def draw(tables: Tables) -> Figure:
    """Above, what each habit adds to an accuracy; below, scores as published and as built."""
    found = differences(tables)
    tasks = [task for task in TASKS if task in set(tables[f"{STEM}_runs"]["task"])]
    with paper_style():
        figure = Figure(figsize=(PAGE, 4.4), layout="constrained")
        above, below = figure.subplots(2, height_ratios=[1.25, 1])
        _draw_switches(above, found, tasks)
        _draw_published(below, tables, tasks)
    return figure


def _draw_switches(axes: Axes, found: pd.DataFrame, tasks: list[str]) -> None:
    names = [name for name in SWITCHES if name in set(found["switch"])]
    columns = [*tasks, AVERAGE]
    values = found.pivot_table("difference", "switch", "task", sort=False)
    values = values.reindex(index=names, columns=columns)
    reach = max(0.05, float(np.nanmax(np.abs(values.to_numpy(dtype=float)), initial=0.0)))
    axes.imshow(values, cmap="PuOr_r", vmin=-reach, vmax=reach, aspect="auto")
    for row in found.to_dict("records"):
        at = (columns.index(row["task"]), names.index(row["switch"]))
        told = row["low"] > 0 or row["high"] < 0
        dark = abs(row["difference"]) > 0.6 * reach
        text = f"{row['difference']:+.3f}\n[{row['low']:+.3f}, {row['high']:+.3f}]"
        axes.annotate(text, at, ha="center", va="center", fontsize=6,
                      fontweight="bold" if told else "normal",
                      color="white" if dark else "black")  # fmt: skip
    axes.set_xticks(range(len(columns)), [_words(name) for name in columns], fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_title("What a habit adds to the accuracy of softmax attention", fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_published(axes: Axes, tables: Tables, tasks: list[str]) -> None:
    for (source, numbers), colour, shift in zip(
        PUBLISHED.items(), (BLUE, ORANGE), (-0.15, 0.15), strict=True
    ):
        x = [tasks.index(task) + shift for task in TASKS if task in tasks]
        y = [n for task, n in zip(TASKS, numbers, strict=True) if task in tasks]
        axes.plot(x, y, "D", color=colour, label=source, markersize=5)
    for place, task in enumerate(tasks):
        seeds = _values(tables, task, "accuracy_macro", AS_BUILT)
        label = "ours, one setting, a dot per seed" if place == 0 else None
        axes.plot([place] * len(seeds), seeds, "o", color=GREY, markersize=3, label=label)
    axes.set_xticks(range(len(tasks)), [_words(task) for task in tasks], fontsize=7)
    axes.set(ylim=(0, 1.05), xlim=(-0.5, len(tasks) + 0.5), ylabel="macro accuracy")
    axes.set_title("Published scores of a Transformer", fontsize=8)
    axes.legend(fontsize=6, loc="lower center", ncols=3, bbox_to_anchor=(0.5, -0.42))


def _words(task: str) -> str:
    return task if task == AVERAGE else task_name(task).replace(" ", "\n", 1)


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Why MAD scores of one architecture differ. Above: one habit of scoring or "
        "training changed at a time; with 95 % intervals over seeds, bold where they exclude zero. "
        "Below: two published sets of scores, which are means over 66 settings of a larger model, "
        "and ours at one setting of this scale, which are no estimate of them. Not in the paper.",
        draw=draw,
    ),
)
