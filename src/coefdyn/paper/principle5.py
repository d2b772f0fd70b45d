"""Principle 5: the spread over seeds for each b_j, with and without the norm behind the mixer."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

from matplotlib.figure import Figure

from coefdyn.paper.looks import FAMILIES, SCALINGS
from coefdyn.paper.points import chance_of
from coefdyn.plot.style import PAGE, accuracy_axis, legend_below, paper_style
from coefdyn.principles.invariance import same_function
from coefdyn.results.claim import Claim, Effect, NotEnoughRunsError, Region, Tables
from coefdyn.results.effects import ratio_of_spreads
from coefdyn.results.experiment import Experiment

NORMED, BARE = "principle5_scaling", "principle5_no_post_norm"
SCALED, UNSCALED = ("inverse_sqrt", "gate_inverse_sqrt"), ("one", "gate")
EXP = "softmax_attention"
OTHERS = tuple(name for name in FAMILIES if name != EXP)
SPREAD, MOST = 1.5, 1.2  # ratios of deviations that count
PLACE = "Principle 5 and its figure"


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


def _where(family: str, scaling: str, size: int) -> dict[str, object]:
    return {"model": family, "scaling": scaling, "n_state": size}


def _sizes(tables: Tables, stem: str, family: str) -> list[int]:
    if stem not in tables:
        raise NotEnoughRunsError(f"no table of {stem}")
    rows = tables[stem]
    found = sorted(int(size) for size in rows[rows["model"] == family]["n_state"].unique())
    if not found:
        raise NotEnoughRunsError(f"{stem} has no {family}")
    return found


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
    """Where the other family was run."""
    found = []
    for family in OTHERS:
        sizes, rows = _sizes(tables, stem, family), tables[stem]
        run = rows[(rows["model"] == family) & rows["scaling"].isin(UNSCALED)]
        pairs = [
            (_where(EXP, scaling, size), _where(family, scaling, size))
            for size, scaling in product(sizes, dict.fromkeys(run["scaling"]))
        ]
        name = f"deviation of exp / {family.replace('_', ' ')}"
        found.append(ratio_of_spreads(tables, name, stem, pairs, Region(MOST)))
    return found


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
        caption="Principle 5. Smallest to largest accuracy over three seeds, each the best of the "
        "lr x weight-decay grid, on fuzzy recall against the head dimension; a panel per b_j.",
        draw=partial(draw, NORMED),
        claims=(*_claims(NORMED, tuple(FAMILIES), ""), EXP_MOST),
    ),
    Experiment(
        BARE,
        caption="Principle 5 without the norm after the sequence model, which hides the size of "
        "b_j for identity readouts. Not in the paper. Smallest to largest accuracy over three "
        "seeds.",
        draw=partial(draw, BARE),
        claims=tuple(_claims(BARE, OTHERS, " (no post-norm)")),
    ),
)
