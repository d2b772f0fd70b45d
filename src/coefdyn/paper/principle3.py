"""Principle 3: position by an embedding, or by a decaying A_t."""

from itertools import product

from matplotlib.figure import Figure

from coefdyn.paper.bars import READOUT_ORDER, draw_bars
from coefdyn.plot.style import BLUE, ORANGE
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

STEM = "principle3_position"


def draw(tables: Tables) -> Figure:
    points, bars = tables[STEM], {}
    for evolution, words, colour in (("identity", "$A=I$", BLUE), ("constant", "$A=cI$", ORANGE)):
        for position, more, hatch in (("learned", "positions", ""), ("none", "none", "////")):
            chosen = (points["evolution"] == evolution) & (points["position"] == position)
            bars[f"{words}, {more}"] = (colour, hatch, chosen)
    return draw_bars(points, bars, height=2.8, columns=2)


def _accuracy(tables: Tables, evolution: str, position: str, readout: str) -> float:
    wanted = {"evolution": evolution, "position": position, "readout": readout}
    return value_of(tables, STEM, "accuracy", **wanted)


def _position_solves(tables: Tables) -> Judgement:
    ways = (("identity", "learned"), ("constant", "learned"), ("constant", "none"))
    accuracies = [_accuracy(tables, *way, phi) for way, phi in product(ways, READOUT_ORDER)]
    worst, best = min(accuracies), max(accuracies)
    return judged(worst >= SOLVED, f"accuracies {worst:.2f} to {best:.2f}")


def _only_relu_without(tables: Tables) -> Judgement:
    chance = float(points_of(tables, STEM)["chance"].iloc[0])
    exp, softplus, relu = (_accuracy(tables, "identity", "none", phi) for phi in READOUT_ORDER)
    statistic = f"exp {exp:.2f}, softplus {softplus:.2f}, relu {relu:.2f}; chance {chance:.2f}"
    at_chance = max(exp, softplus) <= chance + ABOVE_CHANCE
    return judged(at_chance and chance + ABOVE_CHANCE < relu < SOLVED, statistic)


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Principle 3. Accuracy on noisy recall with and without positional embeddings, for "
        "A = I and a constant decay A = cI (c = 0.95 over the paper's length, or as strong over a "
        "shorter one).",
        draw=draw,
        claims=(
            Claim(
                "P3 position solves",
                "Noisy recall is solved with positions, or with a decaying A, for every readout.",
                f"one of the 9 accuracies below {SOLVED}",
                (STEM,),
                _position_solves,
            ),
            Claim(
                "P3 without position",
                "With A = I and no position, only relu is above chance, and it is not perfect.",
                f"exp or softplus more than {ABOVE_CHANCE} above chance, or relu at chance or "
                "solved",
                (STEM,),
                _only_relu_without,
            ),
        ),
    ),
)
