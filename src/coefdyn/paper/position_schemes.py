"""Position schemes: what knows order without an embedding is an A_t."""

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
from coefdyn.results.claim import SOLVED, Claim, Effect, Region, Tables
from coefdyn.results.effects import mean
from coefdyn.results.experiment import Experiment
from coefdyn.results.variance import reach_of

STEM = "position_schemes"
Scheme = tuple[str, str]  # evolution and position
NOTHING: Mapping[Scheme, str] = {("identity", "none"): "none"}
EMBEDDINGS: Mapping[Scheme, str] = {
    ("identity", "learned"): "learned",
    ("identity", "sinusoidal"): "sinusoidal",
}
RELATIVE: Mapping[Scheme, str] = {
    ("constant", "none"): r"$cI$",
    ("rotary", "none"): "rotary",
    ("alibi", "none"): "ALiBi",
    ("forget", "none"): "FoX",
    ("diagonal_gla", "none"): "Wall",
    ("householder_free_learned", "none"): "PaTH",
    ("forget_householder", "none"): "PaTH-FoX",
}
KINDS = {
    "no position": (NOTHING, GREY),
    "embedding": (EMBEDDINGS, BLUE),
    "$A_t$": (RELATIVE, ORANGE),
}


def draw(tables: Tables) -> Figure:
    """A bar per scheme, with a dot per seed and the interval of their mean."""
    points = tables[STEM]
    rows = one_each(points, "evolution", "position")
    with paper_style():
        figure = Figure(figsize=(COLUMN * 1.5, 2.9), layout="constrained")
        axes = figure.subplots()
        names: list[str] = []
        for kind, (schemes, colour) in KINDS.items():
            for scheme, name in schemes.items():
                if scheme not in rows.index:
                    continue
                row, x = rows.loc[scheme], len(names)
                names.append(name)
                axes.bar(x, row["accuracy"], 0.8, color=colour, label=kind)
                where = row.to_dict() | {"evolution": scheme[0], "position": scheme[1]}
                seeds = seeds_of(tables, STEM, where, "accuracy")
                show_seeds(axes, x, seeds, (0.0, reach_of(seeds)), "black")
                top = max([row["accuracy"], *seeds])
                axes.annotate(f"{row['accuracy']:.2f}", (x, top), ha="center", va="bottom",
                              fontsize=6)  # fmt: skip
        axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7)
        accuracy_axis(axes, chance_of(points), chance_at="beside")
        axes.set_ylim(0, 1.12)
        legend_below(figure, len(KINDS))
    return figure


def _solves(tables: Tables) -> list[Effect]:
    return [
        mean(tables, name.replace("$", ""), STEM, {"evolution": evolution, "position": position},
             Region(SOLVED))
        for (evolution, position), name in RELATIVE.items()
    ]  # fmt: skip


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Position schemes. Accuracy of softmax attention on noisy recall: without "
        "positions, with an embedding, and with relative schemes, each of which is an A_t. Not in "
        "the paper. A dot per seed, lines 95 % intervals.",
        draw=draw,
        claims=(
            Claim(
                "Position schemes solve",
                "Every relative position scheme, as an A_t alone, solves noisy recall.",
                "ours: Principle 3, with the schemes of today",
                (STEM,),
                _solves,
            ),
        ),
    ),
)
