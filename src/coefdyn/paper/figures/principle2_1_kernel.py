"""Principle 2.1: kernels against readouts of a score."""

from matplotlib.figure import Figure

from coefdyn.paper.figures import Tables
from coefdyn.plot.style import (
    NEAR_ZERO,
    PAGE,
    READOUTS,
    accuracy_axis,
    legend_below,
    paper_style,
    readout_look,
    task_name,
)

ALSO = ("principle2_readout",)
CAPTION = (
    "Principle 2.1. Accuracy of kernels psi(q) . psi(h) against the fraction of coefficients "
    "near zero. Dotted: accuracy of softmax attention (exp) and of the identity readout, from "
    "principle2_readout."
)
TASKS = ("fuzzy_recall", "selective_copying")


def draw(tables: Tables) -> Figure:
    points, scores = tables["principle2_1_kernel"], tables["principle2_readout"]
    with paper_style():
        figure = Figure(figsize=(PAGE * 0.75, 2.7), layout="constrained")
        for axes, task in zip(figure.subplots(1, 2), TASKS, strict=True):
            rows = points[points["task"] == task]
            for row in rows.to_dict("records"):
                label, colour = readout_look(row["readout"])
                axes.plot(row["near_zero"], row["accuracy"], "s", color=colour, label=label)
            for name in ("exp", "identity"):
                line = scores[(scores["task"] == task) & (scores["readout"] == name)]
                for level in line["accuracy"]:
                    colour = READOUTS[name][1]
                    axes.axhline(level, color=colour, linestyle=":", label=READOUTS[name][0])
            axes.set(title=task_name(task), xlabel=NEAR_ZERO)
            accuracy_axis(axes, rows["chance"].iloc[0] if len(rows) else None)
        legend_below(figure, columns=6)
    return figure
