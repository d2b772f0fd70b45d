"""The effects that claims rest on, from tables of runs: contrasts, spreads, agreement."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from coefdyn.results.claim import SEEDS, Effect, NotEnoughRunsError, Region, Tables, effect_of
from coefdyn.results.rounds import PILOT
from coefdyn.results.statistics import slope
from coefdyn.results.tables import axes_of, best_runs
from coefdyn.results.variance import Values, prior_of, spread_ratio, weighted_sum

CEILING = 0.99  # share of the best learnable accuracy: above it there is no room for differences
NEAR_CHANCE = 0.02  # accuracy above chance that still counts as chance
EQUAL = 0.02  # accuracies closer than this count as equal

Where = Mapping[str, Any]  # column -> value, selects points


def runs_of(tables: Tables, stem: str, where: Where) -> pd.DataFrame:
    """The runs of one point that claims read: the best of each seed, without pilots."""
    name = f"{stem}_runs"
    if name not in tables:
        raise NotEnoughRunsError(f"no table of {stem}")
    rows = _matching(tables[name], where)
    rows = rows[rows["seed"] < PILOT]
    if len(rows) and rows.groupby(axes_of(rows), dropna=False).ngroups > 1:
        raise NotEnoughRunsError(f"{stem} has several points with {_words(where)}")
    return best_runs(rows) if len(rows) else rows


def values_of(tables: Tables, stem: str, column: str, where: Where) -> Values:
    """The values of a column at one point, one per seed."""
    rows = runs_of(tables, stem, where)
    values = pd.to_numeric(rows[column]).dropna().to_numpy(dtype=float) if len(rows) else []
    if len(values) < SEEDS:
        raise NotEnoughRunsError(
            f"{stem} has {column} of {len(values)} of {SEEDS} seeds for {_words(where)}"
        )
    return np.asarray(values)


def family_of(tables: Tables, stem: str, column: str, task: object = None) -> list[Values]:
    """The values of all points of a table, or of those of one task, to share their variances."""
    rows = tables[f"{stem}_runs"]
    rows = rows[(rows["seed"] < PILOT) & (rows["task"] == task if task is not None else True)]
    groups = (best_runs(group) for _, group in rows.groupby(axes_of(rows), dropna=False))
    numbers = (pd.to_numeric(g[column]).dropna().to_numpy(dtype=float) for g in groups)
    return [values for values in numbers if len(values) > 1]


def contrast(
    tables: Tables,
    name: str,
    terms: Sequence[tuple[float, str, str, Where]],
    region: Region,
    logarithm: bool = False,
) -> Effect:
    """A weighted sum of means over seeds. Each term is (weight, stem, column, point).

    `logarithm`: the means are of the logarithms of the values.
    """
    transform: Callable[[Values], Values] = np.log if logarithm else np.asarray
    samples, family = [], []
    for _, stem, column, where in terms:
        samples.append(transform(values_of(tables, stem, column, where)))
    for stem, column, task in dict.fromkeys((s, c, w.get("task")) for _, s, c, w in terms):
        family += [transform(values) for values in family_of(tables, stem, column, task)]
    pooled = sum(len(values) - 1 for values in family)
    total = weighted_sum(samples, [term[0] for term in terms], prior_of(family), pooled)
    return effect_of(name, total, region, min(map(len, samples)))


def mean(
    tables: Tables, name: str, stem: str, where: Where, region: Region, column: str = "accuracy"
) -> Effect:
    return contrast(tables, name, [(1.0, stem, column, where)], region)


def share_of_seeds(
    tables: Tables,
    name: str,
    stem: str,
    where: Where,
    least: float,
    region: Region,
    column: str = "accuracy",
) -> Effect:
    """The share of seeds that reach `least`, with Clopper and Pearson's exact interval.

    For outcomes of all or nothing, whose mean is that of no seed.
    """
    values = values_of(tables, stem, column, where)
    reached = int((values >= least).sum())

    def interval(level: float) -> tuple[float, float]:
        found = binomtest(reached, len(values)).proportion_ci(level)
        return float(found.low), float(found.high)

    words = f"{name} ({reached} of {len(values)} seeds)"
    return Effect(words, reached / len(values), region, interval, len(values))


def mean_slope(name: str, groups: Sequence[pd.DataFrame], x: str, y: str, region: Region) -> Effect:
    """The slope of log y on log x, fitted in each group, with an interval over the groups."""
    fits = [slope(list(group[x]), list(group[y])).slope for group in groups]
    total = weighted_sum([np.array(fits)], [1.0], None, 0)
    return effect_of(name, total, region, len(fits))


def ratio_of_spreads(
    tables: Tables,
    name: str,
    stem: str,
    pairs: Sequence[tuple[Where, Where]],
    region: Region,
) -> Effect:
    """The spread of accuracy over seeds at the first points of `pairs`, over that at the second."""
    sides = [[values_of(tables, stem, "accuracy", where) for where in side]
             for side in zip(*pairs, strict=True)]  # fmt: skip

    def interval(level: float) -> tuple[float, float]:
        _, low, high = spread_ratio(sides[0], sides[1], level)
        return low, high

    value, _, _ = spread_ratio(sides[0], sides[1], 0.5, draws=1)
    return Effect(name, value, region, interval, min(len(v) for side in sides for v in side))


def agreement(
    tables: Tables, name: str, stem: str, column: str, points: Sequence[Where], region: Region
) -> Effect:
    """Whether the logarithm of `column` and accuracy put pairs of points in the same order.

    Counted seed by seed: 1 if all pairs agree, -1 if none does. Pairs of equal accuracy are left
    out.
    """
    frames = [runs_of(tables, stem, where).set_index("seed") for where in points]
    seeds = sorted(set.intersection(*(set(frame.index) for frame in frames))) if frames else []
    agreements, pairs = [], []
    for seed in seeds:
        rows = [(float(f.at[seed, column]), float(f.at[seed, "accuracy"])) for f in frames]
        rows = [(math.log(x), y) for x, y in rows if x > 0]
        signs = [
            math.copysign(1.0, (a[0] - b[0]) * (a[1] - b[1]))
            for a, b in itertools.combinations(rows, 2)
            if abs(a[1] - b[1]) > EQUAL and a[0] != b[0]
        ]
        if len(signs) >= 8:
            agreements.append(sum(signs) / len(signs))
            pairs.append(len(signs))
    if len(agreements) < SEEDS:
        raise NotEnoughRunsError(
            f"{len(agreements)} of {SEEDS} seeds of {stem} have 8 pairs of points with a {column} "
            "and different accuracies"
        )
    total = weighted_sum([np.array(agreements)], [1.0], None, 0, step=2 / min(pairs))
    return effect_of(name, total, region, len(agreements))


def level_of(tables: Tables, stem: str, name: str, where: Where | None = None) -> float:
    """A reference accuracy of a table; `name` is chance, order_free or ceiling."""
    rows = tables.get(f"{stem}_runs")
    if rows is None or rows.empty:
        raise NotEnoughRunsError(f"no table of {stem}")
    levels = pd.to_numeric(_matching(rows, where or {})[name]).dropna()
    if levels.empty:
        raise NotEnoughRunsError(f"{stem} has no {name}")
    return float(levels.mean())


def solved_by(stem: str, where: Where, share: float = 0.95) -> Callable[[Tables], str | None]:
    """The obstacle that the reference design does not learn the task to a share of its ceiling."""

    def obstacle(tables: Tables) -> str | None:
        ceiling = level_of(tables, stem, "ceiling", {"task": where["task"]})
        accuracy = float(values_of(tables, stem, "accuracy", where).mean())
        if accuracy >= share * ceiling:
            return None
        return (
            f"the reference {_words(where)} does not solve the task: "
            f"{accuracy:.2f} of {ceiling:.2f}"
        )

    return obstacle


def room(stem: str, points: Sequence[Where]) -> Callable[[Tables], str | None]:
    """The obstacle that all points are at the ceiling, or all at chance."""

    def obstacle(tables: Tables) -> str | None:
        means = [float(values_of(tables, stem, "accuracy", where).mean()) for where in points]
        task = {"task": points[0]["task"]} if "task" in points[0] else {}
        if min(means) >= CEILING * level_of(tables, stem, "ceiling", task):
            return f"all {len(points)} designs are at the ceiling"
        if max(means) <= level_of(tables, stem, "chance", task) + NEAR_CHANCE:
            return f"all {len(points)} designs are at chance"
        return None

    return obstacle


def rates_inside(stem: str, points: Sequence[Where]) -> Callable[[Tables], str | None]:
    """The obstacle that more than one in ten best learning rates lie at an edge of the grid."""

    def obstacle(tables: Tables) -> str | None:
        edges = [_matching(tables[stem], where)["lr_at_edge"] for where in points]
        at_edge = sum(edge.isin(["smallest", "largest"]).any() for edge in edges)
        if at_edge <= 0.1 * len(points):
            return None
        return f"{at_edge} of {len(points)} points have their best learning rate at an edge"

    return obstacle


def _matching(rows: pd.DataFrame, where: Where) -> pd.DataFrame:
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return rows


def _words(where: Where) -> str:
    return ", ".join(str(value) for value in where.values()) or "all"
