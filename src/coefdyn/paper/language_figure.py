"""What the figures of language share: perplexities as bars, and how the losses came down."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coefdyn.paper.figures import one_each
from coefdyn.plot.style import PAGE, paper_style


@dataclass(frozen=True)
class Look:
    label: str  # under its bar; its first two lines name its curve
    colour: str
    dashed: bool = False


def draw_language(points: pd.DataFrame, curves: pd.DataFrame, looks: Mapping[str, Look]) -> Figure:
    """`looks`: by model, in the order of the bars."""
    with paper_style():
        figure = Figure(figsize=(PAGE, 2.9), layout="constrained")
        bars, losses = figure.subplots(1, 2, width_ratios=[1.25, 1])
        _draw_bars(bars, one_each(points, "model")["test/perplexity"], looks)
        for model, look in looks.items():
            rows = curves[curves["model"] == model].groupby("step")["train/loss"].mean()
            style = "--" if look.dashed else "-"
            name = " ".join(look.label.split("\n")[:2])
            losses.plot(rows.index, rows, style, color=look.colour, label=name)
        losses.set_xlabel("training step")
        losses.set_ylabel("training loss (nats per token)")
        losses.legend(fontsize=6.5)
    return figure


def _draw_bars(axes: Axes, found: "pd.Series[float]", looks: Mapping[str, Look]) -> None:
    for place, (model, look) in enumerate(looks.items()):
        if model not in found or found[model] != found[model]:
            axes.annotate("diverged" if model in found else "no run", (place, 0), ha="center",
                          va="bottom", rotation=90, fontsize=7)  # fmt: skip
            continue
        hatch = "///" if look.dashed else None
        axes.bar(place, found[model], 0.7, color=look.colour, hatch=hatch, edgecolor="white",
                 linewidth=0.5)  # fmt: skip
        text = f"{found[model]:.1f}"
        axes.annotate(text, (place, found[model]), ha="center", va="bottom", fontsize=7)
    axes.set_xticks(range(len(looks)), [look.label for look in looks.values()], fontsize=6.5)
    axes.set_ylabel("test perplexity")
    axes.margins(y=0.15)
