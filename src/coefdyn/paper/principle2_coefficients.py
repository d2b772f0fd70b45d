"""The coefficients that each readout gives one sequence, as heat maps."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from coefdyn.paper.looks import SCORES, readout_look
from coefdyn.plot.style import paper_style
from coefdyn.results.experiment import Experiment, Tables

STEM = "principle2_coefficients"
COLUMNS = ("scale", "task", "readout", "layer", "head", "index", "weights", "run_id")


def draw(tables: Tables) -> Figure:
    """A column per readout, a row per layer."""
    table = tables[STEM]
    names = [name for name in SCORES if (table["readout"] == name).any()]
    layers = sorted(table["layer"].unique())
    with paper_style():
        size = (0.7 + 1.05 * len(names), 0.6 + 0.95 * len(layers))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(layers), len(names), squeeze=False, sharex=True, sharey=True)
        for line, layer in zip(grid, layers, strict=True):
            for axes, name in zip(line, names, strict=True):
                chosen = (table["readout"] == name) & (table["layer"] == layer)
                weights = _matrix(table[chosen].sort_values("index"))
                steps = len(weights)
                # One scale for all panels: a weight of 1 means that a step is copied.
                picture = axes.imshow(weights, cmap="RdBu_r", vmin=-1, vmax=1,
                                      extent=(0.5, steps + 0.5, steps + 0.5, 0.5))  # fmt: skip
                axes.set_xticks([1, steps])
                axes.set_yticks([1, steps])
                if layer == layers[0]:
                    axes.set_title(readout_look(name)[0])
            line[0].set_ylabel(f"layer {layer}\nstep $i$ that reads")
        figure.supxlabel("step $j$ that is read", fontsize=8)
        figure.colorbar(picture, ax=grid, label=r"$\alpha_{ij}/\eta_i$", fraction=0.02, aspect=30)
    return figure


def _matrix(rows: pd.DataFrame) -> np.ndarray:
    """The weights as a square matrix: row i has i of them, and nothing above the diagonal."""
    weights = np.full((len(rows), len(rows)), np.nan)
    for i, text in enumerate(rows["weights"].astype(str)):
        weights[i, : i + 1] = [float(number) for number in text.split()]
    return weights


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="What each readout does to one sequence of fuzzy recall, after training. Row i has "
        "the coefficients alpha/eta by which step i takes from the steps j before it; of each "
        "layer the head whose rows have the lowest entropy. White is zero. Not in the paper.",
        draw=draw,
        columns=COLUMNS,
    ),
)
