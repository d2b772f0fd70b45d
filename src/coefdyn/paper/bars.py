"""Groups of bars: accuracies per readout, a bar per choice."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from coefdyn.paper.figures import one_each
from coefdyn.plot.style import READOUTS, accuracy_axis

READOUT_ORDER = ("exp", "softplus", "relu")
WIDTH = 0.8  # of a group


Bar = tuple[str, str, "pd.Series[bool]"]


def draw_bars(axes: Axes, points: pd.DataFrame, bars: Mapping[str, Bar]) -> None:
    """`bars`: label -> (colour, hatch, which rows of the points)."""
    width = WIDTH / len(bars)
    for number, (label, (colour, hatch, chosen)) in enumerate(bars.items()):
        rows = one_each(points[chosen], "readout")
        for place, name in enumerate(READOUT_ORDER):
            if name not in rows.index:
                continue
            row = rows.loc[name]
            x = place - WIDTH / 2 + (number + 0.5) * width
            axes.bar(x, row["accuracy"], width * 0.92, color=colour, hatch=hatch, edgecolor="white",
                     linewidth=0.5, label=label)  # fmt: skip
            text = f"{row['accuracy']:.2f}"
            axes.annotate(text, (x, row["accuracy"]), ha="center", va="bottom", fontsize=6)
            if row["diverged"]:
                mark = f"{int(row['diverged'])}/{int(row['runs'])} diverged"
                above = row["accuracy"] + 0.07
                axes.annotate(mark, (x, above), ha="center", va="bottom", rotation=90, fontsize=6)
    axes.set_xticks(range(len(READOUT_ORDER)), [READOUTS[name][0] for name in READOUT_ORDER])
    accuracy_axis(axes, points["chance"].iloc[0] if len(points) else None, said="beside")
    axes.set_ylim(0, 1.12)
