"""Principle 1: time against sequence length, and the slopes that are fitted to it."""

import pandas as pd
from matplotlib.figure import Figure

from coefdyn.plot.style import BLUE, COLUMN, RED, paper_style
from coefdyn.results.claim import (
    Claim,
    Effect,
    NotEnoughRunsError,
    Region,
    Tables,
)
from coefdyn.results.effects import mean_slope
from coefdyn.results.experiment import Experiment
from coefdyn.results.statistics import slope

STEM = "principle1_throughput"
COLUMNS = ("scale", "form", "length", "milliseconds", "device")
LONG, LENGTHS, PROCESSES = 4096, 3, 5  # shortest length fitted; fewest lengths and processes
# form -> its name, its colour, and the smallest and largest slope that agree with the paper
FORMS = {
    "linear": ("Mamba-2, recurrent", RED, 0.85, 1.15),
    "quadratic": ("softmax attention", BLUE, 1.8, 2.2),
}


def draw(tables: Tables) -> Figure:
    table = tables[STEM]
    with paper_style():
        figure = Figure(figsize=(COLUMN, 2.7), layout="constrained")
        axes = figure.subplots()
        for form, (label, colour, *_) in FORMS.items():
            times = table[table["form"] == form].groupby("length")["milliseconds"]
            rows = times.median()
            if len(rows) < 2:
                continue
            text = f"{label}: slope {slope(list(rows.index), list(rows)).slope:.2f}"
            axes.plot(rows.index, rows, "o-", color=colour, label=text)
            axes.vlines(rows.index, times.min(), times.max(), color=colour, linewidth=1)
            guide = 1 if form == "linear" else 2  # the principle's slope, through the last point
            line = rows.iloc[-1] * (rows.index / rows.index[-1]) ** guide
            axes.plot(rows.index, line, ":", color="0.5", linewidth=0.9, zorder=0)
        axes.set(xscale="log", yscale="log", xlabel="sequence length $L$", ylabel="milliseconds")
        axes.set_xscale("log", base=2)
        axes.legend()
    return figure


def _slopes(tables: Tables) -> list[Effect]:
    """The slope of each form, with an interval over the processes that timed enough lengths."""
    if STEM not in tables:
        raise NotEnoughRunsError(f"no table of {STEM}")
    table, effects = tables[STEM], []
    process = table["process"] if "process" in table else pd.Series(0, index=table.index)
    for form, (*_, low, high) in FORMS.items():
        rows = table[(table["form"] == form) & (table["length"] >= LONG)]
        groups = [group for _, group in rows.groupby(process) if len(group) >= LENGTHS]
        if len(groups) < PROCESSES:
            raise NotEnoughRunsError(
                f"{len(groups)} of {PROCESSES} processes have timed {LENGTHS} lengths from {LONG} "
                f"of the {form} form"
            )
        region = Region(low, high)
        effects.append(mean_slope(f"slope, {form}", groups, "length", "milliseconds", region))
    return effects


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Principle 1. Time of Mamba-2, which has a recurrent form, and of softmax "
        "attention, which has none, forward and backward, against sequence length; lines from the "
        "fastest to the slowest process, slopes fitted to the longer half. Dotted: slopes 1 and 2. "
        "Our own kernels on the device named below stand in for the paper's.",
        draw=draw,
        columns=COLUMNS,
        claims=(
            Claim(
                "P1 slopes",
                "Time grows as L for the linear form and as L^2 for the quadratic form.",
                "Principle 1, an illustration: the paper says that no experiment can validate it",
                (STEM,),
                _slopes,
            ),
        ),
    ),
)
