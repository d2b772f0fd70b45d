"""Noise as our seeds have it: accuracies of 48 points of principle5_scaling at lite, of the first
edition, three seeds each. Unequal, bimodal, some at the ceiling."""

from pathlib import Path

import pandas as pd

from coefdyn.results.variance import Values

SEEDS = Path(__file__).parents[1] / "assets/seeds.csv"


def residuals() -> list[Values]:
    """Of each point, from its mean, as wide as one more seed would lie from it."""
    groups = pd.read_csv(SEEDS).groupby(["model", "scaling", "n_state"])["accuracy"]
    return [
        (g - g.mean()).to_numpy() * (len(g) / (len(g) - 1)) ** 0.5 for _, g in groups if len(g) > 2
    ]
