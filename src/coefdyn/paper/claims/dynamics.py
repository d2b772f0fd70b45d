"""Principles 3 and 4: position, and what A_t can do."""

from collections.abc import Callable
from itertools import product

from coefdyn.paper.figures.principle4_evolution import STRUCTURES
from coefdyn.plot.style import task_name
from coefdyn.results.claim import (
    ABOVE_CHANCE,
    POINT,
    SOLVED,
    Claim,
    Finding,
    Tables,
    judged,
    points_of,
    value_of,
)

PHIS = ("exp", "softplus", "relu")
P3, P4 = "principle3_position", "principle4_evolution"


def _accuracy(tables: Tables, evolution: str, position: str, readout: str) -> float:
    wanted = {"evolution": evolution, "position": position, "readout": readout}
    return value_of(tables, P3, "accuracy", **wanted)


def _position_solves(tables: Tables) -> Finding:
    ways = (("identity", "learned"), ("constant", "learned"), ("constant", "none"))
    found = [_accuracy(tables, *way, phi) for way, phi in product(ways, PHIS)]
    return judged(min(found) >= SOLVED, f"accuracies {min(found):.2f} to {max(found):.2f}")


def _only_relu_without(tables: Tables) -> Finding:
    chance = float(points_of(tables, P3)["chance"].iloc[0])
    exp, softplus, relu = (_accuracy(tables, "identity", "none", phi) for phi in PHIS)
    statistic = f"exp {exp:.2f}, softplus {softplus:.2f}, relu {relu:.2f}; chance {chance:.2f}"
    at_chance = max(exp, softplus) <= chance + ABOVE_CHANCE
    return judged(at_chance and chance + ABOVE_CHANCE < relu < SOLVED, statistic)


def _both(tables: Tables, task: str, structure: str) -> list[float]:
    """The accuracies of a structure's two parameterizations."""
    choices = STRUCTURES[structure][1:]
    return [value_of(tables, P4, "accuracy", task=task, evolution=name) for name in choices]


def _structures_rise(task: str) -> Callable[[Tables], Finding]:
    def check(tables: Tables) -> Finding:
        best = {name: max(_both(tables, task, name)) for name in STRUCTURES}
        scalar, diagonal = best["scalar"], best["diagonal"]
        householder = max(best["householder_key"], best["householder_free"])
        statistic = f"scalar {scalar:.3f}, diagonal {diagonal:.3f}, Householder {householder:.3f}"
        rises = scalar <= diagonal + POINT and diagonal <= householder + POINT
        return judged(rises and householder > scalar + POINT, statistic)

    return check


def _parameterization_matters(tables: Tables) -> Finding:
    gaps = {
        (task, name): abs(max(both) - min(both))
        for task, name in product(("fuzzy_recall", "selective_copying"), STRUCTURES)
        if (both := _both(tables, task, name))
    }
    (task, name), gap = max(gaps.items(), key=lambda item: item[1])
    statistic = f"largest gap {gap:.3f}: {name.replace('_', ' ')} on {task_name(task)}"
    return judged(gap > 2 * POINT, statistic)


CLAIMS = (
    Claim(
        "P3 position solves",
        "Noisy recall is solved with positions, or with a decaying A, for every readout.",
        f"one of the 9 accuracies below {SOLVED}",
        (P3,),
        _position_solves,
    ),
    Claim(
        "P3 without position",
        "With A = I and no position, only relu is above chance, and it is not perfect.",
        f"exp or softplus more than {ABOVE_CHANCE} above chance, or relu at chance or solved",
        (P3,),
        _only_relu_without,
    ),
    *(
        Claim(
            f"P4 structure, {task_name(task)}",
            f"On {task_name(task)}, accuracy rises from scalar to diagonal to Householder A_t.",
            "a larger structure more than a point below a smaller one, each at its better, or "
            "Householder less than a point above scalar",
            (P4,),
            _structures_rise(task),
        )
        for task in ("fuzzy_recall", "selective_copying")
    ),
    Claim(
        "P4 parameterization",
        "How a structure is parameterized matters too.",
        "no structure whose two parameterizations are more than 2 points apart",
        (P4,),
        _parameterization_matters,
    ),
)
