"""The architectures of Table 1, and newer ones, on the six tasks."""

from matplotlib.figure import Figure

from coefdyn.paper.looks import PRESETS
from coefdyn.paper.points import one_each
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
    with paper_style():
        figure = Figure(figsize=(PAGE, 0.9 + 0.31 * len(names)), layout="constrained")
        axes = figure.subplots()
        picture = axes.imshow(accuracy, cmap="cividis", vmin=0, vmax=1, aspect="auto")
        for row in range(len(names)):
            for column in range(len(tasks)):
                value = accuracy.iloc[row, column]
                if value != value:  # missing
                    continue
                colour = "white" if value < 0.55 else "black"
                axes.annotate(f"{value:.2f}", (column, row), ha="center", va="center", color=colour)
                if edges.iloc[row, column] in ("smallest", "largest"):
                    axes.annotate("____", (column, row), xytext=(0, -2), ha="center", va="center",
                                  textcoords="offset points", color=colour)  # fmt: skip
        axes.set_xticks(
            range(len(tasks)), [task_name(task).replace(" ", "\n", 1) for task in tasks]
        )
        axes.set_yticks(range(len(names)), [PRESETS[name] for name in names])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.colorbar(picture, ax=axes, label=ACCURACY, fraction=0.03)
    return figure


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="The architectures of Table 1, and newer ones, on the MAD tasks: mean accuracy at "
        "the best learning rate. Not in the paper. At lite, newer ones are run on two of the "
        "tasks. A line under a number: the best learning rate was the smallest or largest tried.",
        draw=draw,
    ),
)
