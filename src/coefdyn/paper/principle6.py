"""Principle 6: eta against a growing A_t, with and without the norm behind the mixer."""

from collections.abc import Iterator
from functools import partial

from matplotlib.figure import Figure

from coefdyn.paper.bars import READOUT_ORDER, draw_bars, factor_of
from coefdyn.paper.looks import NORMALIZATIONS
from coefdyn.principles.invariance import same_function
from coefdyn.results.claim import ABOVE_CHANCE, SOLVED, Claim, Effect, Region, Tables
from coefdyn.results.effects import level_of, mean, runs_of
from coefdyn.results.experiment import Experiment

NORMED, BARE = "principle6_normalization", "principle6_no_post_norm"
PLACE = "Principle 6 and its figure"


def draw(stem: str, tables: Tables) -> Figure:
    points = tables[stem]
    bars = {
        words: (colour, "", points["normalization"] == name)
        for name, (words, colour) in NORMALIZATIONS.items()
    }
    c, length = factor_of(tables, stem)
    title = f"$A={c:g}I$: a key grows {c**length:,.0f}-fold in {length} steps"
    # Under the norm the two are one function, and only one of them may have been trained.
    absent = {NORMALIZATIONS["power"][0]: r"same as $\eta_i=1$"} if stem == NORMED else {}
    return draw_bars(tables, stem, bars, height=2.9, columns=3, title=title, absent=absent)


def _where(normalization: str, readout: str) -> dict[str, object]:
    return {"normalization": normalization, "readout": readout}


def _sum_solves(stem: str, tables: Tables) -> list[Effect]:
    return [
        mean(tables, phi, stem, _where("row_sum", phi), Region(SOLVED)) for phi in READOUT_ORDER
    ]


def _exp_fails(stem: str, tables: Tables) -> list[Effect]:
    """exp is no better than chance. A diverged run has its accuracy before that, or chance."""
    border, effects = level_of(tables, stem, "chance") + ABOVE_CHANCE, []
    for name, words in (("one", "eta = 1"), ("power", "eta = c^i")):
        where = _where(name, "exp")
        rows = runs_of(tables, stem, where)
        failed = int(((rows["status"] == "diverged") | (rows["accuracy"] <= border)).sum())
        words = f"exp, {words} ({failed} of {len(rows)} seeds diverged or at chance)"
        effects.append(mean(tables, words, stem, where, Region(high=border)))
    return effects


def _power_helps(stem: str, tables: Tables) -> list[Effect]:
    good = level_of(tables, stem, "order_free") + ABOVE_CHANCE
    regions = {"one": Region(good, SOLVED), "power": Region(SOLVED)}
    return [
        mean(tables, f"{phi}, eta {name}", stem, _where(name, phi), region)
        for name, region in regions.items()
        for phi in ("softplus", "relu")
    ]


def _one_function(stem: str, *more: str) -> str | None:
    """Why eta = 1 and eta = c^i are one function for both readouts; None if not for both."""
    reasons = []
    for phi in ("softplus", "relu"):
        designs = [
            [f"experiment={stem}", f"model/normalization={name}", f"model/readout={phi}", *more]
            for name in ("one", "power")
        ]
        same, reason = same_function(*designs)
        reasons.append(reason if same else None)
    return None if None in reasons else reasons[0]


def _claims(stem: str, words: str) -> Iterator[Claim]:
    yield Claim(
        f"P6 sum{words}",
        "With a growing A, eta = sum solves noisy recall for every readout.",
        PLACE,
        (stem,),
        partial(_sum_solves, stem),
        reads=({"normalization": "row_sum"},),
    )
    yield Claim(
        f"P6 exp fails{words}",
        "With a growing A, exp fails with eta = 1 and with eta = c^i.",
        PLACE,
        (stem,),
        partial(_exp_fails, stem),
        reads=({"readout": "exp"},),
    )
    yield Claim(
        f"P6 power{words}",
        "Softplus and relu are good but not perfect with eta = 1, and perfect with eta = c^i.",
        PLACE,
        (stem,),
        partial(_power_helps, stem),
        invariance=partial(_one_function, stem),
        reads=({"readout": "softplus"}, {"readout": "relu"}),
    )


EXPERIMENTS = (
    Experiment(
        NORMED,
        caption="Principle 6. Accuracy on noisy recall for a growing A = cI (c = 1.05) and "
        "b = 1, by normalization. Bars say how many of the runs diverged; a dot per seed.",
        draw=partial(draw, NORMED),
        claims=tuple(_claims(NORMED, "")),
    ),
    Experiment(
        BARE,
        caption="Principle 6 without the norm after the sequence model, under which eta = 1 and "
        "eta = c^i are one function. Not in the paper.",
        draw=partial(draw, BARE),
        claims=tuple(_claims(BARE, " (no post-norm)")),
    ),
)
