"""Tables 1 and 2 of the paper: architectures as points of one space, and their possible outputs.

Both are read off the traits of the code, not written down.
"""

from typing import NamedTuple, get_args

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from coefdyn.config.build import build_design_mixer
from coefdyn.config.compose import compose
from coefdyn.mixer.design import OutputClass
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.paper.looks import PRESETS
from coefdyn.plot.style import BLUE, PAGE, paper_style
from coefdyn.results.variance import Values

SLOTS = ("evolution", "scaling", "readout", "normalization")
VALUES = np.array([[0.3, 1.1], [1.2, 0.35]])  # of two steps, with two channels each
# output class -> a readout and a normalization that give it
EXAMPLES = {
    "convex": ("exp", "row_sum"),
    "conical": ("exp", "one"),
    "affine": ("identity", "row_sum"),
    "linear": ("identity", "one"),
}
MEANING = {
    "convex": "between the values",
    "conical": "in their cone",
    "affine": "on the line through them",
    "linear": "anywhere",
}


class Architecture(NamedTuple):
    name: str
    slots: tuple[str, ...]
    recurrent: bool
    output: OutputClass


def architectures() -> list[Architecture]:
    """The architectures of Table 1, in its order."""
    rows = []
    for preset, name in PRESETS.items():
        config = compose([f"model={preset}", "scale=smoke"])
        design = build_design_mixer(config).design
        words = tuple(config.choices[f"model/{slot}"].replace("_", " ") for slot in SLOTS)
        cheap = design.recurrence_obstacle is None
        rows.append(Architecture(name, words, cheap, design.output_class))
    return rows


def _mixer(readout: str, normalization: str) -> SequenceMixer:
    config = compose(
        ["model=softmax_attention", "scale=smoke", f"model/readout={readout}",
         f"model/normalization={normalization}", "model/scaling=one"]
    )  # fmt: skip
    return build_design_mixer(config).double()


@torch.no_grad()
def outputs(output: str, count: int = 400) -> Values:
    """Outputs of the second step, for random queries and keys."""
    torch.manual_seed(0)
    mixer = _mixer(*EXAMPLES[output])
    points: list[Values] = []
    while sum(map(len, points)) < count:
        x = 3 * torch.randn(count, len(VALUES), 16, dtype=torch.float64)
        alpha, eta, *_ = mixer.coefficients(x)
        weights = (alpha / eta[..., None])[:, 0, -1].numpy()
        points.append(weights[np.abs(weights).max(1) < 4] @ VALUES)  # those that fit in the picture
    return np.concatenate(points)[:count]


def draw() -> Figure:
    """A panel per output class: where outputs lie, and the values they are combined from."""
    with paper_style():
        figure = Figure(figsize=(PAGE, 2.1), layout="constrained")
        grid = figure.subplots(1, len(EXAMPLES), sharex=True, sharey=True)
        for axes, output in zip(grid, get_args(OutputClass), strict=True):
            axes.add_patch(Polygon([(0, 0), *(9 * VALUES)], facecolor="0.93"))
            axes.plot(*outputs(output).T, ".", color=BLUE, markersize=2, alpha=0.5)
            axes.plot(*VALUES.T, "o", color="black", markersize=4)
            axes.plot(0, 0, "+", color="0.4")
            axes.set_title(f"{output}: {MEANING[output]}", fontsize=7)
            axes.set(xlim=(-2, 2.5), ylim=(-2, 2.5), aspect="equal", xticks=[], yticks=[])
            readout, eta = (word.replace("_", " ") for word in EXAMPLES[output])
            axes.set_xlabel(f"$\\phi$ {readout}, $\\eta$ {eta}", fontsize=7)
    return figure
