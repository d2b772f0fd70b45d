"""Principle 6: eta against a growing A_t."""

import pandas as pd
from matplotlib.figure import Figure

from coefdyn.paper.bars import draw_bars
from coefdyn.paper.figures import Tables
from coefdyn.plot.style import COLUMN, NORMALIZATIONS, legend_below, paper_style

CAPTION = (
    "Principle 6. Accuracy on noisy recall for a growing A = cI (c = 1.05 over the paper's "
    "length, or as strong over a shorter one) and b = 1, by normalization. Bars say how many of "
    "the runs diverged."
)


def draw(tables: Tables) -> Figure:
    return draw_normalizations(tables["principle6_normalization"])


def draw_normalizations(points: pd.DataFrame) -> Figure:
    bars = {
        words: (colour, "", points["normalization"] == name)
        for name, (words, colour) in NORMALIZATIONS.items()
    }
    with paper_style():
        figure = Figure(figsize=(COLUMN * 1.25, 2.7), layout="constrained")
        draw_bars(figure.subplots(), points, bars)
        legend_below(figure, columns=3)
    return figure
