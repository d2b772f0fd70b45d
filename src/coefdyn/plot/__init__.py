"""Figures of your own runs, in the style of the paper's. Each function returns a matplotlib Figure.

coefdyn.plot.coefficients(run, tokens)                      # heat maps of alpha/eta
coefdyn.plot.curves([run, other])                           # learning curves
coefdyn.plot.ablation(coefdyn.load_runs("results"), x="readout", hue="task")
"""

from coefdyn.plot.yours import ablation, coefficients, curves, examples

__all__ = ["ablation", "coefficients", "curves", "examples"]
