"""Principle 3: position by an embedding, or by a decaying A_t."""

from matplotlib.figure import Figure

from coefdyn.paper.bars import draw_bars
from coefdyn.paper.figures import Tables
from coefdyn.plot.style import BLUE, COLUMN, ORANGE, legend_below, paper_style

CAPTION = (
    "Principle 3. Accuracy on noisy recall with and without positional embeddings, for A = I "
    "and a constant decay A = cI (c = 0.95 over the paper's length, or as strong over a shorter "
    "one)."
)


def draw(tables: Tables) -> Figure:
    points = tables["principle3_position"]
    bars = {}
    for evolution, words, colour in (("identity", "$A=I$", BLUE), ("constant", "$A=cI$", ORANGE)):
        for position, more, hatch in (("learned", "positions", ""), ("none", "none", "////")):
            chosen = (points["evolution"] == evolution) & (points["position"] == position)
            bars[f"{words}, {more}"] = (colour, hatch, chosen)
    with paper_style():
        figure = Figure(figsize=(COLUMN * 1.25, 2.8), layout="constrained")
        axes = figure.subplots()
        draw_bars(axes, points, bars)
        legend_below(figure, columns=2)
    return figure
