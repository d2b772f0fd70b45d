"""Groups of bars: accuracies per readout, a bar per choice."""

from collections.abc import Mapping
from types import MappingProxyType

import pandas as pd
from matplotlib.figure import Figure

from coefdyn.config.compose import compose
from coefdyn.paper.looks import READOUTS
from coefdyn.paper.points import chance_of, one_each, seeds_of
from coefdyn.plot.style import (
    COLUMN,
    accuracy_axis,
    legend_below,
    level_line,
    paper_style,
    show_seeds,
)
from coefdyn.results.experiment import Tables
from coefdyn.results.variance import reach_of

READOUT_ORDER = ("exp", "softplus", "relu")
WIDTH = 0.8  # of a group

Bar = tuple[str, str, "pd.Series[bool]"]


def factor_of(tables: Tables, stem: str) -> tuple[float, int]:
    """The c of A = cI at the scale of the experiment's table, and the sequence length."""
    point = tables[stem].iloc[0]
    model = compose([f"experiment={stem}", f"scale={point['scale']}"]).values["model"]
    return float(model["factor"]), int(point["seq_len"])


def draw_bars(
    tables: Tables,
    stem: str,
    bars: Mapping[str, Bar],
    height: float,
    columns: int,
    title: str,
    absent: Mapping[str, str] = MappingProxyType({}),
) -> Figure:
    """A group of bars per readout, with a dot per seed and the interval of their mean.

    `bars`: label -> (colour, hatch, which rows of the points). `columns`: of the legend.
    `absent`: label -> what stands in place of its bar where a point has no runs.
    """
    points = tables[stem]
    with paper_style():
        figure = Figure(figsize=(COLUMN * 1.25, height), layout="constrained")
        axes = figure.subplots()
        width = WIDTH / len(bars)
        for number, (label, (colour, hatch, selected)) in enumerate(bars.items()):
            rows = one_each(points[selected], "readout")
            for place, name in enumerate(READOUT_ORDER):
                x = place - WIDTH / 2 + (number + 0.5) * width
                if name not in rows.index:
                    words = absent.get(label, "not run")
                    axes.annotate(words, (x, 0.02), ha="center", va="bottom", rotation=90,
                                  color="0.4", fontsize=6)  # fmt: skip
                    continue
                row = rows.loc[name]
                top = row["accuracy"]
                axes.bar(x, top, width * 0.92, color=colour, hatch=hatch, edgecolor="white",
                         linewidth=0.5, label=label)  # fmt: skip
                seeds = seeds_of(tables, stem, row.to_dict() | {"readout": name}, "accuracy")
                show_seeds(axes, x, seeds, (0.0, reach_of(seeds)), "black")
                # At the foot, where neither dots nor intervals are.
                box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
                axes.annotate(f"{top:.2f}", (x, 0.02), ha="center", va="bottom", fontsize=5.5,
                              bbox=box)  # fmt: skip
                highest = max([top, *seeds]) if len(seeds) > 1 else top
                if row["diverged"]:
                    mark = f"{int(row['diverged'])}/{int(row['runs'])} diverged"
                    axes.annotate(mark, (x, highest + 0.02), ha="center", va="bottom", rotation=90,
                                  fontsize=6)  # fmt: skip
        axes.set_xticks(range(len(READOUT_ORDER)), [READOUTS[name][0] for name in READOUT_ORDER])
        accuracy_axis(axes, chance_of(points), chance_at="beside")
        if len(counting := points["order_free"].dropna()):
            level_line(axes, float(counting.iloc[0]), "counting\ntokens", "beside")
        axes.set_ylim(0, 1.05)
        axes.set_title(title)
        legend_below(figure, columns)
    return figure
