"""Principle 5: the spread over seeds for each b_j, with and without the norm behind the mixer."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import pandas as pd
from matplotlib.figure import Figure

from coefdyn.paper.looks import FAMILIES, SCALINGS
from coefdyn.paper.points import chance_of
from coefdyn.plot.style import PAGE, accuracy_axis, legend_below, paper_style
from coefdyn.principles.invariance import same_function
from coefdyn.results.claim import (
    POINT,
    Claim,
    Judgement,
    NotEnoughRunsError,
    Tables,
    judged,
    points_of,
)
from coefdyn.results.experiment import Experiment

NORMED, BARE = "principle5_scaling", "principle5_no_post_norm"
SEEDS = 3
SCALED, UNSCALED = ("inverse_sqrt", "gate_inverse_sqrt"), ("one", "gate")
SPREAD = 1.2  # times the other, to be larger


def draw(stem: str, tables: Tables) -> Figure:
    points = tables[stem]
    head = points["n_state"] // points["n_heads"]
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
                sizes = chosen.groupby(head)
                low, high = sizes["accuracy_min"].min(), sizes["accuracy_max"].max()
                axes.fill_between(low.index, low, high, color=colour, alpha=0.3, linewidth=0)
                line = {"color": colour, "markersize": 2.5, "linewidth": 0.8}
                axes.plot(low.index, low, "o-", label=label, **line)
                axes.plot(low.index, high, "o-", **line)
            ticks = sorted(set(head))
            axes.set_xscale("log", base=2)
            axes.set_xticks(ticks, [str(size) for size in ticks])
            axes.set(title=f"$b_j=${words}", xlabel="head dimension")
            axes.minorticks_off()
            accuracy_axis(axes, chance_of(rows), label=scaling == next(iter(SCALINGS)))
        legend_below(figure, columns=4)
    return figure


def _spreads(tables: Tables, stem: str, families: tuple[str, ...]) -> pd.DataFrame:
    """Largest minus smallest accuracy over seeds, for each family, b_j and head dimension."""
    points = points_of(tables, stem)
    sizes = sorted(points["n_state"].unique())
    groups = points[points["model"].isin(families)].groupby(["model", "scaling", "n_state"])
    seeds = groups["seeds"].sum()
    wanted = list(product(families, SCALINGS, sizes))
    lacking = sum(seeds.get(key, 0) < SEEDS for key in wanted)
    if lacking or len(sizes) < 2:
        raise NotEnoughRunsError(
            f"{lacking} of {len(wanted)} points of {stem} have fewer than {SEEDS} seeds"
            + "; one head dimension" * (len(sizes) < 2)
        )
    spread = groups["accuracy_max"].max() - groups["accuracy_min"].min()
    return spread.rename("spread").reset_index()


def _unscaled_spreads_more(stem: str, family: str) -> Callable[[Tables], Judgement]:
    def check(tables: Tables) -> Judgement:
        rows = _spreads(tables, stem, (family,))
        scaled, unscaled = (
            float(rows[rows["scaling"].isin(names)]["spread"].mean())
            for names in (SCALED, UNSCALED)
        )
        statistic = f"mean spread {unscaled:.3f} without 1/sqrt(n), {scaled:.3f} with"
        norm = "none" if stem == BARE else "all"
        designs = [
            [f"experiment={stem}", f"model={family}", f"model/scaling={name}",
             f"model.block.post_norm={norm}"]
            for name in ("one", "inverse_sqrt")
        ]  # fmt: skip
        same, words = same_function(*designs)
        if same:
            return Judgement("invariant by construction", f"{words}; {statistic}")
        return judged(unscaled > max(SPREAD * scaled, scaled + POINT), statistic)

    return check


def _unscaled_spreads(tables: Tables, stem: str) -> pd.DataFrame:
    spreads = _spreads(tables, stem, tuple(FAMILIES))
    return spreads[spreads["scaling"].isin(UNSCALED)]


def _exp_spreads_most(stem: str, tables: Tables) -> Judgement:
    rows = _unscaled_spreads(tables, stem)
    mean = rows.groupby("model")["spread"].mean().sort_values(ascending=False)
    statistic = ", ".join(f"{name} {value:.3f}" for name, value in mean.items())
    first, second = mean.iloc[0], mean.iloc[1]
    larger = first > max(SPREAD * second, second + POINT)
    return judged(mean.index[0] == "softmax_attention" and larger, statistic)


def _no_trend(stem: str, tables: Tables) -> Judgement:
    rows = _unscaled_spreads(tables, stem).sort_values("n_state")
    steps = [group["spread"].diff().iloc[1:] for _, group in rows.groupby(["model", "scaling"])]
    rises, falls = (sum((way * step > 0).all() for step in steps) for way in (1, -1))
    statistic = f"from size to size it rises in {rises} and falls in {falls} of {len(steps)} rows"
    return judged(max(rises, falls) < len(steps), statistic)


def _claims(stem: str, words: str) -> Iterator[Claim]:
    for family in FAMILIES:
        yield Claim(
            f"P5 spread, {family.replace('_', ' ')}{words}",
            f"For {family.replace('_', ' ')}, accuracies of three seeds lie further apart "
            "without 1/sqrt(n) in b_j.",
            f"a mean spread for b in {{1, z}} of at most {SPREAD} times that for b/sqrt(n), or "
            "less than a point above it",
            (stem,),
            _unscaled_spreads_more(stem, family),
        )
    yield Claim(
        f"P5 exp spreads most{words}",
        "Without 1/sqrt(n), the spread is largest for phi = exp.",
        f"another family whose mean spread for b in {{1, z}}, times {SPREAD} or plus a point, "
        "is as large",
        (stem,),
        partial(_exp_spreads_most, stem),
    )
    yield Claim(
        f"P5 head dimension{words}",
        "Without 1/sqrt(n), the spread has no consistent trend with the head dimension.",
        "a spread that rises from each size to the next in all 8 rows, or falls in all",
        (stem,),
        partial(_no_trend, stem),
    )


EXPERIMENTS = (
    Experiment(
        NORMED,
        caption="Principle 5. Smallest to largest accuracy over three seeds, each the best of the "
        "lr x weight-decay grid, on fuzzy recall against the head dimension; a panel per b_j.",
        draw=partial(draw, NORMED),
        claims=tuple(_claims(NORMED, "")),
    ),
    Experiment(
        BARE,
        caption="Principle 5 without the norm after the sequence model, which hides the size of "
        "b_j for identity readouts. Not in the paper. Smallest to largest accuracy over three "
        "seeds.",
        draw=partial(draw, BARE),
        claims=tuple(_claims(BARE, " (no post-norm)")),
    ),
)
