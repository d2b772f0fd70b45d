"""Hybrids: how many layers of softmax attention a recurrent model needs for recall, and where."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from coefdyn.paper.points import chance_of, one_each, seeds_of
from coefdyn.plot.style import (
    BLUE,
    COLUMN,
    GREY,
    ORANGE,
    accuracy_axis,
    legend_below,
    paper_style,
    show_seeds,
)
from coefdyn.results.claim import Claim, Effect, Region, Tables
from coefdyn.results.effects import contrast, values_of
from coefdyn.results.experiment import Experiment
from coefdyn.results.variance import reach_of

STEM = "hybrids"
M, S = "mamba2", "softmax_attention_conv"
RECURRENT, ATTENTION = M, S
# As tables name them: the presets that take turns over four layers, and what they come to.
ONE: Mapping[str, str] = {
    f"{S}+{M}+{M}+{M}": "SMMM",
    f"{M}+{S}+{M}+{M}": "MSMM",
    f"{M}+{M}+{S}+{M}": "MMSM",
    f"{M}+{M}+{M}+{S}": "MMMS",
}
PATTERNS = {RECURRENT: "MMMM", **ONE, f"{S}+{M}": "SMSM", f"{M}+{S}": "MSMS", ATTENTION: "SSSS"}
COLOURS = {0: GREY, 1: ORANGE, 2: BLUE, 4: "black"}  # by the number of softmax layers
CLOSED = 0.8  # of the gap between the two pure models
TOO_GOOD = 0.7  # accuracy of the recurrent model, above which there is no gap to close


def draw(tables: Tables) -> Figure:
    """A bar per pattern, with a dot per seed and the interval of their mean."""
    points = tables[STEM]
    rows = one_each(points, "model")
    with paper_style():
        figure = Figure(figsize=(COLUMN * 1.5, 2.9), layout="constrained")
        axes = figure.subplots()
        names = [name for name in PATTERNS if name in rows.index]
        for x, name in enumerate(names):
            row, count = rows.loc[name], PATTERNS[name].count("S")
            word = {0: "no softmax layer", 1: "one", 2: "two", 4: "all"}[count]
            axes.bar(x, row["accuracy"], 0.8, color=COLOURS[count], label=word)
            seeds = seeds_of(tables, STEM, row.to_dict() | {"model": name}, "accuracy")
            show_seeds(axes, x, seeds, (0.0, reach_of(seeds)), "black" if count < 4 else GREY)
            top = max([row["accuracy"], *seeds])
            axes.annotate(f"{row['accuracy']:.2f}", (x, top), ha="center", va="bottom", fontsize=6)
        axes.set_xticks(range(len(names)), [PATTERNS[name] for name in names], fontsize=7)
        axes.set_xlabel("layers from the input up: M Mamba-2, S softmax attention")
        accuracy_axis(axes, chance_of(points), chance_at="beside")
        axes.set_ylim(0, 1.12)
        legend_below(figure, 4)
    return figure


def _closes(tables: Tables) -> list[Effect]:
    """hybrid - recurrent less 0.8 of (attention - recurrent), wherever the softmax layer is."""
    effects = []
    for name, words in ONE.items():
        terms = [
            (1.0, STEM, "accuracy", {"model": name}),
            (-CLOSED, STEM, "accuracy", {"model": ATTENTION}),
            (CLOSED - 1.0, STEM, "accuracy", {"model": RECURRENT}),
        ]
        effects.append(contrast(tables, f"{words}: beyond 80 % of the gap", terms, Region(0.0)))
    return effects


def _no_gap(tables: Tables) -> str | None:
    mean = float(values_of(tables, STEM, "accuracy", {"model": RECURRENT}).mean())
    return None if mean < TOO_GOOD else f"the recurrent model already has {mean:.2f}"


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Hybrids of four layers on multi-query associative recall: Mamba-2 (M) and softmax "
        "attention (S), each with a short convolution. Not in the paper. A dot per seed, 95 % "
        "intervals.",
        draw=draw,
        claims=(
            Claim(
                "Hybrids, one layer",
                "One layer of softmax attention among four closes 80 % of the gap, at any place.",
                "ours: how much attention recall needs",
                (STEM,),
                _closes,
                (_no_gap,),
                reads=tuple({"model": name} for name in (RECURRENT, ATTENTION, *ONE)),
            ),
            Claim(
                "Hybrids, some place",
                "One layer of softmax attention among four closes 80 % of the gap, at some place.",
                "ours: how much attention recall needs",
                (STEM,),
                _closes,
                (_no_gap,),
                any_of=True,
                reads=tuple({"model": name} for name in (RECURRENT, ATTENTION, *ONE)),
            ),
        ),
    ),
)
