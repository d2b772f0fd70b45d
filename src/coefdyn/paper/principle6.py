"""Principle 6: eta against a growing A_t, with and without the norm behind the mixer."""

from collections.abc import Iterator
from functools import partial

from matplotlib.figure import Figure

from coefdyn.paper.bars import READOUT_ORDER, draw_bars
from coefdyn.paper.looks import NORMALIZATIONS
from coefdyn.principles.invariance import same_function
from coefdyn.results.claim import (
    ABOVE_CHANCE,
    SOLVED,
    Claim,
    Judgement,
    Tables,
    judged,
    points_of,
    value_of,
)
from coefdyn.results.experiment import Experiment

NORMED, BARE = "principle6_normalization", "principle6_no_post_norm"
GOOD = 0.5  # an accuracy that is good, if not perfect


def draw(stem: str, tables: Tables) -> Figure:
    points = tables[stem]
    bars = {
        words: (colour, "", points["normalization"] == name)
        for name, (words, colour) in NORMALIZATIONS.items()
    }
    return draw_bars(points, bars, height=2.7, columns=3)


def _accuracy(tables: Tables, stem: str, normalization: str, readout: str) -> float:
    wanted = {"normalization": normalization, "readout": readout}
    return value_of(tables, stem, "accuracy", **wanted)


def _sum_solves(stem: str, tables: Tables) -> Judgement:
    accuracies = [_accuracy(tables, stem, "row_sum", phi) for phi in READOUT_ORDER]
    texts = ", ".join(f"{value:.2f}" for value in accuracies)
    return judged(min(accuracies) >= SOLVED, f"accuracies {texts} for exp, softplus, relu")


def _exp_fails(stem: str, tables: Tables) -> Judgement:
    chance = float(points_of(tables, stem)["chance"].iloc[0])
    one, power = (_accuracy(tables, stem, name, "exp") for name in ("one", "power"))
    statistic = f"{one:.2f} with eta = 1, {power:.2f} with c^i; chance {chance:.2f}"
    return judged(max(one, power) <= chance + 2 * ABOVE_CHANCE, statistic)


def _power_helps(stem: str, tables: Tables) -> Judgement:
    ones, powers = (
        [_accuracy(tables, stem, name, phi) for phi in ("softplus", "relu")]
        for name in ("one", "power")
    )
    statistic = (
        f"eta = 1: {ones[0]:.2f}, {ones[1]:.2f}; c^i: {powers[0]:.2f}, {powers[1]:.2f} "
        "(softplus, relu)"
    )
    designs = [
        [f"experiment={stem}", f"model/normalization={name}", "model/readout=softplus"]
        for name in ("one", "power")
    ]
    same, words = same_function(*designs)
    if same:
        return Judgement("invariant by construction", f"{words}; {statistic}")
    chance = float(points_of(tables, stem)["chance"].iloc[0])
    good = min(ones) > max(GOOD, chance + ABOVE_CHANCE)
    return judged(good and max(ones) < SOLVED <= min(powers), statistic)


def _claims(stem: str, words: str) -> Iterator[Claim]:
    yield Claim(
        f"P6 sum{words}",
        "With a growing A, eta = sum solves noisy recall for every readout.",
        f"one of the three accuracies below {SOLVED}",
        (stem,),
        partial(_sum_solves, stem),
    )
    yield Claim(
        f"P6 exp fails{words}",
        "With a growing A, exp fails with eta = 1 and with eta = c^i.",
        f"an accuracy more than {2 * ABOVE_CHANCE} above chance",
        (stem,),
        partial(_exp_fails, stem),
    )
    yield Claim(
        f"P6 power{words}",
        "Softplus and relu are good but not perfect with eta = 1, and perfect with eta = c^i.",
        f"one of them below {GOOD} or at {SOLVED} with eta = 1, or below {SOLVED} with c^i",
        (stem,),
        partial(_power_helps, stem),
    )


EXPERIMENTS = (
    Experiment(
        NORMED,
        caption="Principle 6. Accuracy on noisy recall for a growing A = cI (c = 1.05 over the "
        "paper's length, or as strong over a shorter one) and b = 1, by normalization. Bars say "
        "how many of the runs diverged.",
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
