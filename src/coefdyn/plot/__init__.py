"""Pictures of your own runs, in the style of the paper's figures. Each is a matplotlib Figure.

coefdyn.plot.coefficients(run, tokens)                      # heat maps of alpha/eta
coefdyn.plot.curves([run, other])                           # how training came there
coefdyn.plot.ablation(coefdyn.load_runs("results"), x="readout", hue="task")
"""

from coefdyn.plot.yours import ablation, coefficients, curves, examples

__all__ = ["ablation", "coefficients", "curves", "examples"]
