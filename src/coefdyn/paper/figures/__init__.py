"""The figures: a module per stem, with `draw`, what it needs, and its caption."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from coefdyn.errors import ConfigError

STEMS = (
    "principle1_throughput",
    "principle2_readout",
    "principle2_1_kernel",
    "principle2_2_zeros",
    "principle3_position",
    "principle4_evolution",
    "principle5_scaling",
    "principle5_no_post_norm",
    "principle5_wikitext",
    "principle6_normalization",
    "principle6_no_post_norm",
    "architectures",
    "all_principles_lm",
)

# The table that a figure draws, by stem: points of a grid, or what else the stem has.
Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Drawing:
    """How the figure of a stem is made."""

    needs: tuple[str, ...]  # tables, by stem
    caption: str
    draw: Callable[[Tables], Figure]


def one_each(points: pd.DataFrame, *names: str) -> pd.DataFrame:
    """The points by these columns, which must tell them apart."""
    columns = list(names)
    twice = points[points.duplicated(columns)]
    if len(twice):
        which = ", ".join(f"{name}={twice.iloc[0][name]}" for name in columns)
        raise ConfigError(
            f"it has several points with {which} where the figure shows one; make it again from a "
            "grid without other axes"
        )
    return points.set_index(columns)


def drawing(stem: str) -> Drawing:
    module = importlib.import_module(f"coefdyn.paper.figures.{stem}")
    return Drawing((stem, *getattr(module, "ALSO", ())), module.CAPTION, module.draw)
