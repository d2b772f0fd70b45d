"""Principle 6's mechanism: how coefficients grow along a sequence before training."""

from matplotlib.figure import Figure

from coefdyn.paper.bars import READOUT_ORDER
from coefdyn.paper.looks import NORMALIZATIONS, readout_look
from coefdyn.plot.style import PAGE, legend_below, paper_style
from coefdyn.results.experiment import Experiment, Tables

STEM = "principle6_growth"
COLUMNS = ("scale", "readout", "normalization", "index", "largest")
LARGEST_FLOAT32 = 3.4e38
SHOWN = (3e-2, 1e7)


def draw(tables: Tables) -> Figure:
    """A panel per eta, a line per readout."""
    table = tables[STEM]
    with paper_style():
        figure = Figure(figsize=(PAGE, 2.4), layout="constrained")
        for axes, (name, (title, _)) in zip(
            figure.subplots(1, len(NORMALIZATIONS), sharey=True),
            NORMALIZATIONS.items(),
            strict=True,
        ):
            for place, readout in enumerate(READOUT_ORDER):
                label, colour = readout_look(readout)
                chosen = (table["normalization"] == name) & (table["readout"] == readout)
                line = table[chosen & (table["largest"] > 0)]
                # softplus and relu are nearly one line: the one drawn last is dashed
                style = "--" if place == len(READOUT_ORDER) - 1 else "-"
                axes.plot(line["index"], line["largest"], style, color=colour, label=label)
                overflows = line[line["largest"] > LARGEST_FLOAT32]
                if len(overflows):
                    words = f"{label} overflows\nfloat32 at {overflows['index'].min()}"
                    axes.annotate(words, (0.97, 0.72), xycoords="axes fraction", color=colour,
                                  ha="right", fontsize=7)  # fmt: skip
            axes.set(title=title, xlabel="time index $i$", yscale="log", ylim=SHOWN)
        figure.axes[0].set_ylabel(r"largest $|\alpha_{ij}/\eta_i|$ of a row")
        legend_below(figure, columns=3)
    return figure


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Principle 6, the mechanism, before training, with A = 1.05 I. The largest "
        "coefficient of each row in the first layer, in float64: the median over "
        "initializations, sequences and heads. With eta = 1 and eta = c^i those of exp are soon "
        "larger than float32 can hold. Not in the paper.",
        draw=draw,
        columns=COLUMNS,
    ),
)
