"""Principle 1: time against sequence length, and the slopes that are fitted to it."""

from matplotlib.figure import Figure

from coefdyn.plot.style import BLUE, COLUMN, RED, paper_style
from coefdyn.results.claim import Claim, Judgement, NotEnoughRunsError, Tables, judged
from coefdyn.results.experiment import Experiment
from coefdyn.results.statistics import slope
from coefdyn.results.tables import LENGTH_COLUMNS

STEM = "principle1_throughput"
# form -> its name, its colour, and between which slopes the paper has it
FORMS = {
    "linear": ("linear form", RED, 0.75, 1.25),
    "quadratic": ("quadratic form", BLUE, 1.6, 2.4),
}


def draw(tables: Tables) -> Figure:
    table = tables[STEM]
    with paper_style():
        figure = Figure(figsize=(COLUMN, 2.7), layout="constrained")
        axes = figure.subplots()
        for form, (label, colour, *_) in FORMS.items():
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


def _slopes(tables: Tables) -> Judgement:
    if STEM not in tables:
        raise NotEnoughRunsError(f"no table of {STEM}")
    table, texts, holds = tables[STEM], [], True
    for form, (*_, low, high) in FORMS.items():
        rows = table[table["form"] == form]
        if len(rows) < 4:
            raise NotEnoughRunsError(f"{len(rows)} lengths of the {form} form")
        fit = slope(list(rows["length"]), list(rows["milliseconds"]))
        texts.append(f"{form} {fit.slope:.2f} (95 % {fit.low:.2f} to {fit.high:.2f})")
        holds = holds and low <= fit.slope <= high
    return judged(holds, "slope: " + ", ".join(texts))


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Principle 1. Time of the linear (recurrent) and of the quadratic form of one "
        "design, forward and backward, against sequence length; the slopes are fitted to the "
        "longer half. Plain PyTorch on the device named below stands in for the paper's GPU "
        "kernels.",
        draw=draw,
        columns=tuple(LENGTH_COLUMNS),
        claims=(
            Claim(
                "P1 slopes",
                "Time grows as L for the linear form and as L^2 for the quadratic form.",
                "a fitted slope outside [0.75, 1.25] or [1.6, 2.4]",
                (STEM,),
                _slopes,
            ),
        ),
    ),
)
