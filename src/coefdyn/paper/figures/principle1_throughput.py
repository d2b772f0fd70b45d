"""Principle 1: time against sequence length, and the slopes that are fitted to it."""

from matplotlib.figure import Figure

from coefdyn.paper.figures import Tables
from coefdyn.plot.style import BLUE, COLUMN, RED, paper_style
from coefdyn.results.statistics import slope

CAPTION = (
    "Principle 1. Time of the linear (recurrent) and of the quadratic form of one design, "
    "forward and backward, against sequence length; the slopes are fitted to the longer half. "
    "Plain PyTorch on the device named below stands in for the paper's GPU kernels."
)
FORMS = {"linear": ("linear form", RED), "quadratic": ("quadratic form", BLUE)}


def draw(tables: Tables) -> Figure:
    table = tables["principle1_throughput"]
    with paper_style():
        figure = Figure(figsize=(COLUMN, 2.7), layout="constrained")
        axes = figure.subplots()
        for form, (label, colour) in FORMS.items():
            rows = table[table["form"] == form].sort_values("length")
            if len(rows) < 2:
                continue
            fit = slope(list(rows["length"]), list(rows["milliseconds"]))
            text = f"{label}: slope {fit.slope:.2f}"
            axes.plot(rows["length"], rows["milliseconds"], "o-", color=colour, label=text)
        axes.set(xscale="log", yscale="log", xlabel="sequence length $L$", ylabel="milliseconds")
        axes.set_xscale("log", base=2)
        axes.legend()
    return figure
