"""Principle 5: the spread over seeds for each b_j, against the head dimension."""

import pandas as pd
from matplotlib.figure import Figure

from coefdyn.paper.figures import Tables
from coefdyn.plot.style import (
    FAMILIES,
    PAGE,
    SCALINGS,
    accuracy_axis,
    legend_below,
    paper_style,
)

CAPTION = (
    "Principle 5. Smallest to largest accuracy over three seeds, each the best of the lr x "
    "weight-decay grid, on fuzzy recall against the head dimension; a panel per b_j."
)
STEM = "principle5_scaling"


def draw(tables: Tables) -> Figure:
    return draw_bands(tables[STEM])


def draw_bands(points: pd.DataFrame) -> Figure:
    with paper_style():
        figure = Figure(figsize=(PAGE, 2.7), layout="constrained")
        for axes, (scaling, (words, _)) in zip(
            figure.subplots(1, len(SCALINGS), sharey=True), SCALINGS.items(), strict=True
        ):
            rows = points[points["scaling"] == scaling]
            for family, (label, colour) in FAMILIES.items():
                chosen = rows[rows["model"] == family]
                if chosen.empty:
                    continue
                size = chosen["n_state"] // chosen["n_heads"]
                band = chosen.groupby(size)["accuracy"].agg(["min", "max"])
                low, high = band["min"], band["max"]
                axes.fill_between(band.index, low, high, color=colour, alpha=0.3, linewidth=0)
                line = {"color": colour, "markersize": 2.5, "linewidth": 0.8}
                axes.plot(band.index, low, "o-", label=label, **line)
                axes.plot(band.index, high, "o-", **line)
            sizes = sorted(set(points["n_state"] // points["n_heads"]))
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.set(title=f"$b_j=${words}", xlabel="head dimension")
            axes.minorticks_off()
            first = scaling == next(iter(SCALINGS))
            accuracy_axis(axes, rows["chance"].iloc[0] if len(rows) else None, label=first)
        legend_below(figure, columns=4)
    return figure
