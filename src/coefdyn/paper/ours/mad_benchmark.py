"""The MAD benchmark as its authors run it: scores per task and architecture, and their average."""

import pandas as pd
from matplotlib.figure import Figure

from coefdyn.paper.looks import PRESETS
from coefdyn.plot.squares import squares
from coefdyn.plot.style import PAGE, paper_style, task_name
from coefdyn.results.claim import Tables
from coefdyn.results.experiment import Experiment, Records

STEM = "mad_benchmark"
SCORES = f"{STEM}_scores"
COLUMNS = ["scale", "model", "task", "settings", "score", "score_micro"]


def scores(points: pd.DataFrame, _: Records) -> pd.DataFrame:
    """The mean over the settings of a task, of the macro accuracy of the best run of each.

    The best run is the one with the highest (micro) accuracy on the test set.
    """
    rows = [
        [*key, len(group), group["accuracy_macro"].mean(), group["accuracy"].mean()]
        for key, group in points.groupby(["scale", "model", "task"], sort=False)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def draw(tables: Tables) -> Figure:
    """A square per architecture and task, and the average over tasks; best architectures first."""
    table = tables[SCORES]
    tasks = list(dict.fromkeys(table["task"]))
    most = table.groupby("task")["settings"].transform("max")
    table = table[table["settings"] == most]  # a mean without the hard settings would look better
    cells = table.set_index(["model", "task"])["score"].unstack().reindex(columns=tasks)
    cells["average"] = cells.mean(axis="columns", skipna=False)  # of all tasks, or none
    cells = cells.sort_values("average", ascending=False)
    cells.index = pd.Index([PRESETS.get(str(name), str(name)) for name in cells.index])
    cells.columns = pd.Index(
        [*(task_name(task).replace(" ", "\n", 1) for task in tasks), "average"]
    )
    with paper_style():
        figure = Figure(figsize=(PAGE, 0.9 + 0.31 * len(cells)), layout="constrained")
        axes = figure.subplots()
        picture = squares(axes, cells, font_size=8.0)
        axes.axvline(len(tasks) - 0.5, color="white", linewidth=3)
        figure.colorbar(picture, ax=axes, label="MAD score", fraction=0.03)
    return figure


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="The MAD benchmark as its authors run it: per task the mean of the macro accuracy "
        "over several settings, at each the best of the runs tried; one seed. Not in the paper. At "
        "lite the settings are 20 instead of 66, and smaller. Blank: not all settings have run.",
        draw=draw,
        more={SCORES: scores},
    ),
)
