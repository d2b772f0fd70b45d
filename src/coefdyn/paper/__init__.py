"""What the paper says and what we add: a module per principle, each with its figures and claims.

A claim that the tables do not cover is `not enough runs`; one that compares designs which are the
same function is `invariant by construction`, and is shown to be so numerically.
"""

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

from coefdyn.results.experiment import Experiment, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@cache
def experiments() -> dict[str, Experiment]:
    """By stem, in the paper's order: a module of this package adds its own by EXPERIMENTS."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    names.sort(key=lambda name: (not name.startswith("principle"), name))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    declared = [experiment for m in modules for experiment in getattr(m, "EXPERIMENTS", ())]
    return {experiment.stem: experiment for experiment in declared}


def experiment_of(stem: str) -> Experiment:
    """The declared one; any other, such as a plugin's, is drawn by what its grid varies."""
    if stem in experiments():
        return experiments()[stem]

    def draw(tables: Tables) -> "Figure":
        from coefdyn.plot.default import draw_default

        return draw_default(stem, tables)

    caption = (
        f"{stem}: accuracy by what its grid varies, a mean over seeds, each the best of the lr x "
        "weight-decay grid."
    )
    return Experiment(stem, caption, draw)
