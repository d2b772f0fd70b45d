"""Principle 5: the spread over seeds for each b_j, with and without the norm behind the mixer."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coefdyn.paper.looks import FAMILIES, SCALINGS
from coefdyn.paper.points import chance_of, seeds_of
from coefdyn.plot.style import ACCURACY, PAGE, accuracy_axis, paper_style, show_seeds
from coefdyn.principles.invariance import same_function
from coefdyn.results.claim import Claim, Effect, NotEnoughRunsError, Region, Tables
from coefdyn.results.effects import ratio_of_spreads
from coefdyn.results.experiment import Experiment

NORMED, BARE = "principle5_scaling", "principle5_no_post_norm"
SCALED, UNSCALED = ("inverse_sqrt", "gate_inverse_sqrt"), ("one", "gate")
EXP = "softmax_attention"
OTHERS = tuple(name for name in FAMILIES if name != EXP)
SPREAD, MOST = 1.5, 1.2  # smallest ratios of deviations that count
PLACE = "Principle 5 and its figure"


def draw(stem: str, tables: Tables) -> Figure:
    """A row per design, a column per b_j, a dot per seed."""
    points = tables[stem]
    head = points["n_state"] // points["n_heads"]
    families = [name for name in FAMILIES if (points["model"] == name).any()]
    widths = sorted(set(head))
    with paper_style():
        figure = Figure(figsize=(PAGE, 0.9 + 1.35 * len(families)), layout="constrained")
        grid = figure.subplots(
            len(families), len(SCALINGS), sharex=True, sharey=True, squeeze=False
        )
        for line, family in zip(grid, families, strict=True):
            words, colour = FAMILIES[family]
            for axes, scaling in zip(line, SCALINGS, strict=True):
                rows = points[(points["model"] == family) & (points["scaling"] == scaling)]
                ones = points[(points["model"] == family) & (points["scaling"] == "one")]
                same = stem == NORMED and family != EXP and scaling == "inverse_sqrt"
                _panel(axes, tables, stem, rows, colour, same and len(ones) > 0)
                accuracy_axis(axes, chance_of(points), label=False, chance_at="left")
            line[0].set_ylabel(words, fontsize=7)
        for axes, (words, _) in zip(grid[0], SCALINGS.values(), strict=True):
            axes.set_title(f"$b_j=${words}")
        for axes in grid[-1]:
            axes.set_xlabel("head dimension")
        grid[0, 0].set_xscale("log", base=2)
        grid[0, 0].set_xticks(widths, [str(width) for width in widths])
        grid[0, 0].set_xlim(widths[0] / 1.5, widths[-1] * 1.5)
        grid[0, 0].minorticks_off()
        figure.supylabel(ACCURACY, fontsize=8)
    return figure


def _panel(
    axes: Axes, tables: Tables, stem: str, rows: pd.DataFrame, colour: str, same: bool
) -> None:
    """`same`: b = 1/sqrt(n) was not run, because it is one function with b = 1."""
    for row in rows.to_dict("records"):
        width, seeds = row["n_state"] // row["n_heads"], seeds_of(tables, stem, row, "accuracy")
        show_seeds(axes, width, seeds, (0.0, 0.0), colour)
        low, high = row["accuracy_min"], row["accuracy_max"]
        axes.plot([width, width], [low, high], "-", color=colour, linewidth=0.8)
    means = rows.sort_values("n_state")
    axes.plot(means["n_state"] // means["n_heads"], means["accuracy"], "_:", color=colour,
              label="mean over seeds")  # fmt: skip
    if rows.empty:
        words = "one function\nwith $b_j=1$" if same else "not run"
        axes.annotate(words, (0.5, 0.5), xycoords="axes fraction", ha="center", va="center",
                      color="0.4", fontsize=7)  # fmt: skip


def _where(family: str, scaling: str, size: int) -> dict[str, object]:
    return {"model": family, "scaling": scaling, "n_state": size}


def _sizes(tables: Tables, stem: str, family: str) -> list[int]:
    if stem not in tables:
        raise NotEnoughRunsError(f"no table of {stem}")
    rows = tables[stem]
    sizes = sorted(int(size) for size in rows[rows["model"] == family]["n_state"].unique())
    if not sizes:
        raise NotEnoughRunsError(f"{stem} has no {family}")
    return sizes


def _unscaled_spreads_more(stem: str, family: str) -> Callable[[Tables], list[Effect]]:
    def effects(tables: Tables) -> list[Effect]:
        pairs = [
            (_where(family, one, size), _where(family, other, size))
            for size in _sizes(tables, stem, family)
            for one, other in zip(UNSCALED, SCALED, strict=True)
        ]
        name = "deviation without 1/sqrt(n) / with"
        return [ratio_of_spreads(tables, name, stem, pairs, Region(SPREAD))]

    return effects


def _one_function(stem: str, family: str) -> Callable[..., str | None]:
    def invariance(*more: str) -> str | None:
        norm = "none" if stem == BARE else "all"
        designs = [
            [f"experiment={stem}", f"model={family}", f"model/scaling={name}",
             f"model.block.post_norm={norm}", *more]
            for name in ("one", "inverse_sqrt")
        ]  # fmt: skip
        same, words = same_function(*designs)
        return words if same else None

    return invariance


def _exp_spreads_most(stem: str, tables: Tables) -> list[Effect]:
    """The spread of exp against each other family, at the points where that family was run."""
    effects = []
    for family in OTHERS:
        sizes, rows = _sizes(tables, stem, family), tables[stem]
        unscaled = rows[(rows["model"] == family) & rows["scaling"].isin(UNSCALED)]
        pairs = [
            (_where(EXP, scaling, size), _where(family, scaling, size))
            for size, scaling in product(sizes, dict.fromkeys(unscaled["scaling"]))
        ]
        name = f"deviation of exp / {family.replace('_', ' ')}"
        effects.append(ratio_of_spreads(tables, name, stem, pairs, Region(MOST)))
    return effects


def _claims(stem: str, families: Sequence[str], words: str) -> Iterator[Claim]:
    for family in families:
        yield Claim(
            f"P5 spread, {family.replace('_', ' ')}{words}",
            f"For {family.replace('_', ' ')}, accuracies of seeds lie further apart without "
            "1/sqrt(n) in b_j.",
            PLACE,
            (stem,),
            _unscaled_spreads_more(stem, family),
            invariance=_one_function(stem, family),
            reads=({"model": family},),
        )


EXP_MOST = Claim(
    "P5 exp spreads most",
    "Without 1/sqrt(n), the spread is largest for phi = exp.",
    PLACE,
    (NORMED,),
    partial(_exp_spreads_most, NORMED),
    reads=tuple({"scaling": scaling} for scaling in UNSCALED),
)

EXPERIMENTS = (
    Experiment(
        NORMED,
        caption="Principle 5. Accuracy on fuzzy recall against the head dimension: a row per "
        "design,"
        " a column per b_j, a dot per seed. Designs that are one function with b = 1 and with "
        "1/sqrt(n) are run once (relu at one size twice, to show how far rounding goes).",
        draw=partial(draw, NORMED),
        claims=(*_claims(NORMED, tuple(FAMILIES), ""), EXP_MOST),
    ),
    Experiment(
        BARE,
        caption="Principle 5 without the norm after the sequence model, which hides the size of "
        "b_j for identity readouts. Not in the paper. A dot per seed.",
        draw=partial(draw, BARE),
        claims=tuple(_claims(BARE, OTHERS, " (no post-norm)")),
    ),
)
