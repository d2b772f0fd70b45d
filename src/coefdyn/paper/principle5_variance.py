"""Principle 5's mechanism: the variance of q . h before training, against the head dimension."""

from matplotlib.figure import Figure

from coefdyn.paper.looks import SCALINGS
from coefdyn.plot.style import COLUMN, paper_style
from coefdyn.results.claim import Claim, Effect, NotEnoughRunsError, Region, Tables
from coefdyn.results.effects import mean_slope
from coefdyn.results.experiment import Experiment
from coefdyn.results.statistics import slope

STEM = "principle5_variance"
COLUMNS = ("scale", "scaling", "head_dimension", "seed", "score_variance", "device")
INITIALIZATIONS, WIDTHS = 20, 3  # the fewest that the claim needs
SLOPES = {"one": Region(0.9, 1.1), "inverse_sqrt": Region(-0.1, 0.1)}


def draw(tables: Tables) -> Figure:
    table = tables[STEM]
    with paper_style():
        figure = Figure(figsize=(COLUMN, 2.7), layout="constrained")
        axes = figure.subplots()
        for scaling in SLOPES:
            words, colour = SCALINGS[scaling]
            rows = table[table["scaling"] == scaling]
            axes.plot(rows["head_dimension"], rows["score_variance"], ".", color=colour, alpha=0.35,
                      markersize=4, markeredgewidth=0)  # fmt: skip
            means = rows.groupby("head_dimension")["score_variance"].mean()
            fitted = slope(list(means.index), list(means)).slope
            axes.plot(
                means.index, means, "-", color=colour, label=f"$b=${words}: slope {fitted:.2f}"
            )
        widths = sorted(table["head_dimension"].unique())
        axes.set(xscale="log", yscale="log", xlabel="head dimension $n$",
                 ylabel=r"variance of $q_i \cdot h_{ij}$, untrained")  # fmt: skip
        axes.set_xticks(widths, [str(width) for width in widths])
        axes.minorticks_off()
        axes.legend()
    return figure


def _slopes(tables: Tables) -> list[Effect]:
    """The slope for each scaling, with an interval over initializations."""
    if STEM not in tables:
        raise NotEnoughRunsError(f"no table of {STEM}; coefdyn bench suite=variance makes it")
    table, effects = tables[STEM], []
    for scaling, region in SLOPES.items():
        rows = table[table["scaling"] == scaling]
        groups = [g for _, g in rows.groupby("seed") if g["head_dimension"].nunique() >= WIDTHS]
        if len(groups) < INITIALIZATIONS:
            raise NotEnoughRunsError(
                f"{len(groups)} of {INITIALIZATIONS} initializations have {WIDTHS} head dimensions "
                f"with b {scaling}"
            )
        name, columns = f"slope, b {scaling}", ("head_dimension", "score_variance")
        effects.append(mean_slope(name, groups, *columns, region))
    return effects


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Principle 5, the mechanism. Variance of the scores q . h of softmax attention on "
        "fuzzy recall before training, against the head dimension; a dot per initialization.",
        draw=draw,
        columns=COLUMNS,
        claims=(
            Claim(
                "P5 mechanism",
                "Before training, the variance of q . h grows as the head dimension with b = 1, "
                "and not at all with b = 1/sqrt(n).",
                "Principle 5 and its lemma on the variance",
                (STEM,),
                _slopes,
            ),
        ),
    ),
)
