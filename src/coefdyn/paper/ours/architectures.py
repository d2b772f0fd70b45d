"""The architectures of Table 1, and newer ones, on the six tasks."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from coefdyn.paper.looks import PRESETS
from coefdyn.paper.points import one_each
from coefdyn.plot.squares import squares
from coefdyn.plot.style import ACCURACY, PAGE, paper_style, task_name
from coefdyn.results.claim import Tables
from coefdyn.results.experiment import Experiment

STEM = "architectures"


def draw(tables: Tables) -> Figure:
    points = tables[STEM]
    tasks = list(dict.fromkeys(points["task"]))
    cells = one_each(points, "model", "task")
    accuracy, edges = cells["accuracy"].unstack(), cells["lr_at_edge"].unstack()
    names = [name for name in PRESETS if name in accuracy.index]
    accuracy, edges = accuracy.loc[names, tasks], edges.loc[names, tasks]
    accuracy.index = pd.Index([PRESETS[name] for name in names])
    accuracy.columns = pd.Index([task_name(task).replace(" ", "\n", 1) for task in tasks])
    at_edge = edges.isin(["smallest", "largest"]).to_numpy()
    with paper_style():
        figure = Figure(figsize=(PAGE, 0.9 + 0.31 * len(names)), layout="constrained")
        axes = figure.subplots()
        picture = squares(axes, accuracy, font_size=8.0)
        for row, column in np.argwhere(at_edge):
            colour = "white" if accuracy.iloc[row, column] < 0.55 else "black"
            axes.annotate("____", (column, row), xytext=(0, -2), ha="center", va="center",
                          textcoords="offset points", color=colour)  # fmt: skip
        figure.colorbar(picture, ax=axes, label=ACCURACY, fraction=0.03)
    return figure


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="The architectures of Table 1, and newer ones, on the MAD tasks: mean accuracy at "
        "the best learning rate. Not in the paper. At lite, newer ones are run on two of the "
        "tasks, and copying, noisy and fuzzy recall have one learning rate. A line under a number: "
        "the best learning rate was the smallest or largest tried.",
        draw=draw,
    ),
)
