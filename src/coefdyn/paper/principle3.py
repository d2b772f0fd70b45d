"""Principle 3: position by an embedding, or by a decaying A_t."""

import math
from collections.abc import Callable, Iterator
from itertools import product

from matplotlib.figure import Figure

from coefdyn.paper.bars import READOUT_ORDER, draw_bars, factor_of
from coefdyn.plot.style import BLUE, ORANGE
from coefdyn.results.claim import ABOVE_CHANCE, SOLVED, Claim, Effect, Region, Tables
from coefdyn.results.effects import level_of, mean, rates_inside, solved_by
from coefdyn.results.experiment import Experiment

STEM = "principle3_position"


def draw(tables: Tables) -> Figure:
    points, bars = tables[STEM], {}
    c, length = factor_of(tables, STEM)
    decaying = ("constant", f"$A={c:g}I$", ORANGE)
    for evolution, words, colour in (("identity", "$A=I$", BLUE), decaying):
        for position, suffix, hatch in (("learned", "positions", ""), ("none", "none", "////")):
            selected = (points["evolution"] == evolution) & (points["position"] == position)
            bars[f"{words}, {suffix}"] = (colour, hatch, selected)
    half = math.log(0.5) / math.log(c)
    title = f"{length} steps; $A={c:g}I$ halves a key in {half:.0f}"
    return draw_bars(tables, STEM, bars, height=2.9, columns=2, title=title)


PLACE = "Principle 3 and its figure"
WAYS = (("identity", "learned"), ("constant", "learned"), ("constant", "none"))


def _where(evolution: str, position: str, readout: str) -> dict[str, object]:
    return {"evolution": evolution, "position": position, "readout": readout}


def _solves(tables: Tables) -> list[Effect]:
    return [
        mean(tables, f"{phi}, A {way[0]}, position {way[1]}", STEM, _where(*way, phi),
             Region(SOLVED))
        for way, phi in product(WAYS, READOUT_ORDER)
    ]  # fmt: skip


def _without(level: str) -> Callable[[Tables], list[Effect]]:
    """exp and softplus are no better than `level`; relu lies between it and a solution."""

    def effects(tables: Tables) -> list[Effect]:
        border = level_of(tables, STEM, level) + ABOVE_CHANCE
        regions = {"exp": Region(high=border), "softplus": Region(high=border),
                   "relu": Region(border, SOLVED)}  # fmt: skip
        return [
            mean(tables, phi, STEM, _where("identity", "none", phi), region)
            for phi, region in regions.items()
        ]

    return effects


def _claims() -> Iterator[Claim]:
    yield Claim(
        "P3 position solves",
        "Noisy recall is solved with positions, or with a decaying A, for every readout.",
        PLACE,
        (STEM,),
        _solves,
    )
    bare = tuple(_where("identity", "none", phi) for phi in READOUT_ORDER)
    reference = {"task": "noisy_recall", **_where("identity", "learned", "exp")}
    for level, words in (("chance", "chance"), ("order_free", "counting tokens")):
        yield Claim(
            f"P3 without position, against {words}",
            f"With A = I and no position, only relu is above {words}, and it is not perfect.",
            PLACE,
            (STEM,),
            _without(level),
            (solved_by(STEM, reference), rates_inside(STEM, bare)),
            reads=bare,
        )


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Principle 3. Accuracy on noisy recall with and without positional embeddings, for "
        "A = I and a constant decay A = cI (c = 0.95). A dot per seed, lines 95 % intervals.",
        draw=draw,
        claims=tuple(_claims()),
    ),
)
