"""What a claim is: effects with regions, stated before any run, and what follows from intervals."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from coefdyn.results.variance import Sum

Verdict = Literal[
    "reproduced",
    "not reproduced",
    "inconclusive",
    "not decidable at this scale",
    "invariant by construction",
    "not enough runs",
]
Tables = Mapping[str, pd.DataFrame]

# Of an interval. At most four looks are taken, at 3, 5, 8 and 12 seeds: together they err in 5 %.
LEVEL = 0.9875
SEEDS = 3  # of every point, at least
MANY = 100  # seeds that nobody will run
SOLVED = 0.95  # accuracy
ABOVE_CHANCE = 0.05  # accuracy over chance that is more than noise


class NotEnoughRunsError(Exception):
    """A point that the claim needs is not in the tables, or not all of its runs are."""


@dataclass(frozen=True)
class Region:
    """Where an effect must lie for a claim to hold."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f">= {self.low:.3g}"
        if math.isinf(self.low):
            return f"<= {self.high:.3g}"
        return f"in [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class Effect:
    """An estimate. `at(level)` is its interval; `seeds` the fewest that one of its points has."""

    name: str
    value: float
    region: Region
    at: Callable[[float], tuple[float, float]]
    seeds: int

    def side(self, level: float) -> Literal["inside", "outside", "across"]:
        low, high = self.at(level)
        if not (math.isfinite(self.value) and low <= high):  # NaN is nowhere
            return "across"
        if self.region.low <= low and high <= self.region.high:
            return "inside"
        return "outside" if high < self.region.low or low > self.region.high else "across"

    def seeds_needed(self) -> int:
        """To have the interval on one side of the nearest border, if the estimate stays."""
        low, high = self.at(LEVEL)
        reach = max(self.value - low, high - self.value)
        borders = [b for b in (self.region.low, self.region.high) if math.isfinite(b)]
        distance = min((abs(self.value - b) for b in borders), default=math.inf)
        if not math.isfinite(reach) or distance <= 0:
            return MANY
        return min(MANY, max(self.seeds + 1, math.ceil(self.seeds * (reach / distance) ** 2)))

    def __str__(self) -> str:
        low, high = self.at(LEVEL)
        numbers = f"{self.value:.3g} [{low:.3g}, {high:.3g}]"
        return f"{self.name} {numbers}, wanted {self.region}"


def effect_of(name: str, found: Sum, region: Region, seeds: int) -> Effect:
    return Effect(name, found.value, region, found.interval, seeds)


def size_of(effect: Effect, region: Region) -> Effect:
    """Of a difference, whatever its sign."""

    def at(level: float) -> tuple[float, float]:
        low, high = effect.at(level)
        inside = low <= 0 <= high
        return 0.0 if inside else min(abs(low), abs(high)), max(abs(low), abs(high))

    return Effect(effect.name, abs(effect.value), region, at, effect.seeds)


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    statistic: str
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True)
class Claim:
    """`effects` must all lie in their regions. `obstacles` say why tables that have the runs cannot
    decide it; `invariance` says if the designs that it compares are one function."""

    name: str
    statement: str  # in our words
    place: str  # of the paper
    needs: tuple[str, ...]  # stems whose tables it reads
    effects: Callable[[Tables], Sequence[Effect]]
    obstacles: tuple[Callable[[Tables], str | None], ...] = ()
    invariance: Callable[..., str | None] | None = None  # of more overrides, such as a reading
    any_of: bool = False  # one effect inside its region is enough
    other_reading: Callable[[Tables], Sequence[Effect]] | None = None  # of the same words
    reads: tuple[Mapping[str, object], ...] = ({},)  # points, by their columns

    def judge(self, tables: Tables, *overrides: str) -> Judgement:
        """`overrides`: what the runs of these tables have besides their experiment."""
        try:
            return self._judge(tables, *overrides)
        except NotEnoughRunsError as error:
            return Judgement("not enough runs", str(error))

    def _judge(self, tables: Tables, *overrides: str) -> Judgement:
        if self.invariance is not None and (same := self.invariance(*overrides)):
            return self._invariant(same, tables)
        effects = tuple(self.effects(tables))
        numbers = "; ".join(map(str, effects))
        for obstacle in self.obstacles:
            if why := obstacle(tables):
                return Judgement("not decidable at this scale", f"{why}; {numbers}", effects)
        decide = any_verdict if self.any_of else all_verdict
        verdict = decide(effects)
        if self.other_reading is not None and verdict != "inconclusive":
            other = tuple(self.other_reading(tables))
            if decide(other) != verdict:
                words = "; ".join(map(str, other))
                return Judgement(
                    "inconclusive", f"depends on the reading: {numbers}; but {words}", effects
                )
        if verdict == "inconclusive":
            across = [effect for effect in effects if effect.side(LEVEL) == "across"]
            needed = max(effect.seeds_needed() for effect in across or effects)
            more = f"about {needed}" if needed < MANY else f"more than {MANY}"
            numbers += f"; {more} seeds would decide it if the estimates stay"
        return Judgement(verdict, numbers, effects)

    def _invariant(self, words: str, tables: Tables) -> Judgement:
        """It takes no runs to know; those there are show how far rounding goes."""
        try:
            effects = tuple(self.effects(tables))
        except NotEnoughRunsError:
            return Judgement("invariant by construction", words)
        numbers = "; ".join([words, *map(str, effects)])
        return Judgement("invariant by construction", numbers, effects)


def all_verdict(effects: Sequence[Effect], level: float = LEVEL) -> Verdict:
    """Holds if every effect is inside (intersection-union: no correction is needed); fails if one
    is outside, where each of several has its share of the error."""
    if all(effect.side(level) == "inside" for effect in effects):
        return "reproduced"
    shared = 1 - (1 - level) / len(effects)
    if any(effect.side(shared) == "outside" for effect in effects):
        return "not reproduced"
    return "inconclusive"


def any_verdict(effects: Sequence[Effect], level: float = LEVEL) -> Verdict:
    """The other way round."""
    shared = 1 - (1 - level) / len(effects)
    if any(effect.side(shared) == "inside" for effect in effects):
        return "reproduced"
    if all(effect.side(level) == "outside" for effect in effects):
        return "not reproduced"
    return "inconclusive"
