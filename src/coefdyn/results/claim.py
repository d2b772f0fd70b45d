"""What a claim is, and how it finds its numbers in the tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

Verdict = Literal["reproduced", "not reproduced", "invariant by construction", "not enough runs"]
Tables = Mapping[str, pd.DataFrame]

RHO = 0.7  # from which a rank correlation counts as a relation
SOLVED = 0.95  # accuracy
ABOVE_CHANCE = 0.05  # accuracy over chance that is more than noise
POINT = 0.01  # accuracies closer than this are equal


class NotEnoughRunsError(Exception):
    """A point that the claim needs is not in the tables, or not all of its runs are."""


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    statistic: str


@dataclass(frozen=True)
class Claim:
    name: str
    statement: str
    falsified_by: str
    needs: tuple[str, ...]  # stems whose tables it reads
    check: Callable[[Tables], Judgement]

    def judge(self, tables: Tables) -> Judgement:
        try:
            return self.check({name: tables[name] for name in self.needs if name in tables})
        except NotEnoughRunsError as error:
            return Judgement("not enough runs", str(error))


def points_of(tables: Tables, stem: str, **wanted: object) -> pd.DataFrame:
    """The complete points of a stem with these values."""
    if stem not in tables:
        raise NotEnoughRunsError(f"no table of {stem}")
    points = tables[stem]
    for name, value in wanted.items():
        points = points[points[name] == value]
    if points.empty:
        words = ", ".join(f"{name}={value}" for name, value in wanted.items())
        raise NotEnoughRunsError(f"{stem} has no point with {words}")
    if (points["missing"] > 0).any():
        raise NotEnoughRunsError(f"{stem} lacks {int(points['missing'].sum())} runs")
    return points


def one_point(tables: Tables, stem: str, **wanted: object) -> "pd.Series[Any]":
    points = points_of(tables, stem, **wanted)
    if len(points) > 1:
        raise NotEnoughRunsError(f"{stem} has {len(points)} points where the claim is about one")
    return points.iloc[0]


def value_of(tables: Tables, stem: str, column: str, **wanted: object) -> float:
    value = float(one_point(tables, stem, **wanted)[column])
    if value != value:
        words = ", ".join(map(str, wanted.values()))
        raise NotEnoughRunsError(f"{stem} has no {column} for {words}: all its runs diverged")
    return value


def judged(holds: Any, statistic: str) -> Judgement:
    """`holds` may be one of numpy's truths."""
    return Judgement("reproduced" if holds else "not reproduced", statistic)
