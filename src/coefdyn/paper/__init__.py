"""The paper's experiments, a module per principle, and in ours/ our own, with figures and claims.

A claim whose runs are not in the tables is `not enough runs`. A claim that compares designs which
are the same function is `invariant by construction`; the sameness is checked numerically.
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
    """All experiments by stem, in the paper's order. Each module lists its own in EXPERIMENTS."""
    names = [module.name for module in pkgutil.walk_packages(__path__, f"{__name__}.")]
    names.sort(key=lambda name: (not name.startswith(f"{__name__}.principle"), name))
    modules = [importlib.import_module(name) for name in names]
    declared = [experiment for m in modules for experiment in getattr(m, "EXPERIMENTS", ())]
    return {experiment.stem: experiment for experiment in declared}


def experiment_of(stem: str) -> Experiment:
    """The experiment of a stem. One that no module lists, such as a plugin's, gets a default
    figure."""
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
