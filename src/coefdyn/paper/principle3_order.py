"""Principle 3's mechanism: what a model knows of the order of its tokens before training."""

from matplotlib.figure import Figure

from coefdyn.paper.bars import READOUT_ORDER
from coefdyn.paper.looks import readout_look
from coefdyn.plot.style import PAGE, legend_below, paper_style
from coefdyn.results.experiment import Experiment, Tables

STEM = "principle3_order"
COLUMNS = ("scale", "readout", "evolution", "position", "layer", "seed", "order")
PANELS = {
    ("identity", "none"): "$A=I$, no positions",
    ("identity", "learned"): "$A=I$, positions",
    ("constant", "none"): "$A=cI$, no positions",
    ("constant", "learned"): "$A=cI$, positions",
}


def draw(tables: Tables) -> Figure:
    """A panel per way to know order; a dot per initialization, lines through their means."""
    table = tables[STEM]
    layers = sorted(table["layer"].unique())
    with paper_style():
        figure = Figure(figsize=(PAGE, 2.3), layout="constrained")
        for axes, (way, title) in zip(
            figure.subplots(1, len(PANELS), sharey=True), PANELS.items(), strict=True
        ):
            rows = table[(table["evolution"] == way[0]) & (table["position"] == way[1])]
            for place, readout in enumerate(READOUT_ORDER):
                label, colour = readout_look(readout)
                of_one = rows[rows["readout"] == readout]
                aside = 0.08 * (place - 1)  # equal values stay visible
                axes.plot(of_one["layer"] + aside, of_one["order"], ".", color=colour, alpha=0.35,
                          markersize=4, markeredgewidth=0)  # fmt: skip
                means = of_one.groupby("layer")["order"].mean()
                axes.plot(means.index + aside, means, "-", color=colour, label=label)
            axes.set(title=title, xlim=(min(layers) - 0.4, max(layers) + 0.4), ylim=(-0.03, 1.0))
            axes.set_xticks(layers, [f"layer {layer}" for layer in layers])
        figure.axes[0].set_ylabel("effect of the order,\nrelative to other tokens")
        legend_below(figure, columns=3)
    return figure


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Principle 3, the mechanism, before training. How far the output of the last step "
        "moves when the tokens before it change places, over how far it moves when they are "
        "other tokens. With A = I and no positions the first layer knows nothing of the order, the "
        "second does: a step sees only those before it. A dot per initialization. Not in the "
        "paper.",
        draw=draw,
        columns=COLUMNS,
    ),
)
