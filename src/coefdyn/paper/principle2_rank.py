"""Principle 2.2's theorem: it bounds how many dimensions suppressed keys span, not their number."""

from matplotlib.figure import Figure

from coefdyn.paper.looks import readout_look
from coefdyn.plot.style import PAGE, legend_below, paper_style
from coefdyn.results.experiment import Experiment, Tables

STEM = "principle2_2_rank"
COLUMNS = ("scale", "readout", "evolution", "index", "zeros", "rank", "limit")
TITLES = {
    "zeros": r"number of $|\alpha_{ij}| \leq 10^{-6}$",
    "rank": "dimensions that their states span",
}


def draw(tables: Tables) -> Figure:
    table = tables[STEM]
    limit = int(table["limit"].iloc[0])
    with paper_style():
        figure = Figure(figsize=(PAGE * 0.75, 2.6), layout="constrained")
        for axes, (column, title) in zip(figure.subplots(1, 2), TITLES.items(), strict=True):
            # The first line is wider, to be seen beneath the second: both are zero.
            for place, (key, line) in enumerate(
                table.groupby(["readout", "evolution"], sort=False)
            ):
                label, colour = readout_look(key[0])
                label = label if key[1] == "identity" else f"{label}, decaying $A_t$"
                width = 2.6 if place == 0 else 1.3
                axes.plot(line["index"], line[column], color=colour, label=label, linewidth=width)
            axes.axhline(limit, color="0.3", linestyle="--", linewidth=0.9)
            axes.annotate(f"$n/H - 1 = {limit}$", (0.02, limit), va="bottom", fontsize=7,
                          xycoords=("axes fraction", "data"))  # fmt: skip
            axes.set(title=title, xlabel="time index $i$")
            top = max(limit, float(table[column].max()))
            axes.set_ylim(-0.04 * top, 1.15 * top)
        legend_below(figure, columns=4)
    return figure


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Principle 2.2, its theorem, for random queries and keys. Kernels of relu and a "
        "decaying A_t have more zeros in a row than n/H - 1; the states of these zeros span no "
        "more dimensions than that. Not in the paper.",
        draw=draw,
        columns=COLUMNS,
    ),
)
