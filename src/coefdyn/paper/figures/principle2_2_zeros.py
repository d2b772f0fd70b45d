"""Principle 2.2: how many zeros a row of positive-kernel coefficients has, at each step."""

from matplotlib.figure import Figure

from coefdyn.paper.figures import Tables
from coefdyn.plot.style import PAGE, legend_below, paper_style, readout_look, task_name

ALSO = ("principle2_2_zeros_index",)
CAPTION = (
    "Principle 2.2. Number of raw coefficients of size at most 1e-6 at each step, mean over 64 "
    "sequences, for the head of layer 1 that has most; dashed: the limit n/H - 1. The same runs "
    "as principle2_1_kernel."
)
TASKS = ("fuzzy_recall", "selective_copying")


def draw(tables: Tables) -> Figure:
    table = tables["principle2_2_zeros_index"]
    with paper_style():
        figure = Figure(figsize=(PAGE * 0.75, 2.5), layout="constrained")
        for axes, task in zip(figure.subplots(1, 2, sharey=True), TASKS, strict=True):
            rows = table[table["task"] == task]
            for name, line in rows.groupby("readout", sort=False):
                label, colour = readout_look(str(name))
                axes.plot(line["index"], line["zeros"], color=colour, label=label)
            if len(rows):
                limit = rows["limit"].iloc[0]
                axes.axhline(limit, color="0.3", linestyle="--", linewidth=0.9)
                axes.annotate(f"$n/H - 1 = {limit}$", (0.02, limit), va="bottom", fontsize=7,
                              xycoords=("axes fraction", "data"))  # fmt: skip
                axes.set_ylim(-0.3, 1.2 * max(limit, table["zeros"].max()) + 0.3)
            axes.set(title=task_name(task), xlabel="time index $i$")
        figure.axes[0].set_ylabel(r"number of $|\alpha_{ij}| \leq 10^{-6}$")
        legend_below(figure, columns=2)
    return figure
