"""Principle 5 without the norm after the sequence model."""

from matplotlib.figure import Figure

from coefdyn.paper.figures import Tables
from coefdyn.paper.figures.principle5_scaling import draw_bands

CAPTION = (
    "Principle 5 without the norm after the sequence model, which hides the size of b_j for "
    "identity readouts. Not in the paper. Smallest to largest accuracy over three seeds."
)


def draw(tables: Tables) -> Figure:
    return draw_bands(tables["principle5_no_post_norm"])
