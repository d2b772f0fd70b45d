"""Principle 6 without the norm after the sequence model."""

from matplotlib.figure import Figure

from coefdyn.paper.figures import Tables
from coefdyn.paper.figures.principle6_normalization import draw_normalizations

CAPTION = (
    "Principle 6 without the norm after the sequence model, under which eta = 1 and eta = c^i "
    "are one function. Not in the paper."
)


def draw(tables: Tables) -> Figure:
    return draw_normalizations(tables["principle6_no_post_norm"])
