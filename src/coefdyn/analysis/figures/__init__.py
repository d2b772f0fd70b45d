"""The figures: a module per stem, with `draw`, what it needs, and its caption."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

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


def drawing(stem: str) -> Drawing:
    module = importlib.import_module(f"coefdyn.analysis.figures.{stem}")
    return Drawing((stem, *getattr(module, "ALSO", ())), module.CAPTION, module.draw)
