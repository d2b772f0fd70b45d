"""A claim: effects, the region that each must lie in, and the verdict that their intervals give.

Regions are stated before any run.
"""

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

# Confidence level of an interval. A claim is looked at up to four times, at 3, 5, 8 and 12 seeds:
# together these looks err in at most 5 %.
LEVEL = 0.9875
SEEDS = 3  # the fewest that a point must have
MANY = 100  # seeds: more than anybody will run
SOLVED = 0.95  # accuracy
ABOVE_CHANCE = 0.05  # accuracy over chance that is more than noise


class NotEnoughRunsError(Exception):
    """The tables lack a point that the claim needs, or some of its runs."""


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
    """An estimate and the region it must lie in.

    `at(level)` is its confidence interval. `seeds` is the smallest number of seeds of its points.
    """

    name: str
    value: float
    region: Region
    at: Callable[[float], tuple[float, float]]
    seeds: int

    def side(self, level: float) -> Literal["inside", "outside", "across"]:
        """Where the whole interval lies: inside the region, outside it, or across a border."""
        low, high = self.at(level)
        if not (math.isfinite(self.value) and low <= high):  # NaN is on no side
            return "across"
        if self.region.low <= low and high <= self.region.high:
            return "inside"
        return "outside" if high < self.region.low or low > self.region.high else "across"

    def seeds_needed(self) -> int:
        """How many seeds would put the interval on one side of the nearest border.

        This assumes that the estimate stays the same, and that the interval shrinks with the square
        root of the number of seeds.
        """
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
    """The effect of a weighted sum of means, with its interval."""
    return Effect(name, found.value, region, found.interval, seeds)


def size_of(effect: Effect, region: Region) -> Effect:
    """The size of a difference, whatever its sign."""

    def at(level: float) -> tuple[float, float]:
        low, high = effect.at(level)
        inside = low <= 0 <= high
        return 0.0 if inside else min(abs(low), abs(high)), max(abs(low), abs(high))

    return Effect(effect.name, abs(effect.value), region, at, effect.seeds)


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim. `statistic` says in words and numbers why."""

    verdict: Verdict
    statistic: str
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True)
class Claim:
    """A statement that holds if all its `effects` lie in their regions.

    `obstacles` give reasons why tables with all runs still cannot decide it. `invariance` gives the
    reason why the designs that it compares are one function, if they are.
    """

    name: str
    statement: str  # in our words
    place: str  # in the paper
    needs: tuple[str, ...]  # stems of the experiments whose tables it reads
    effects: Callable[[Tables], Sequence[Effect]]
    obstacles: tuple[Callable[[Tables], str | None], ...] = ()
    invariance: Callable[..., str | None] | None = None  # takes overrides, such as a reading
    any_of: bool = False  # one effect inside its region is enough
    other_reading: Callable[[Tables], Sequence[Effect]] | None = None  # of the statement
    reads: tuple[Mapping[str, object], ...] = ({},)  # which points: column -> value

    def judge(self, tables: Tables, *overrides: str) -> Judgement:
        """The verdict by these tables, whose runs have `overrides` besides their experiment."""
        try:
            return self._judge(tables, *overrides)
        except NotEnoughRunsError as error:
            return Judgement("not enough runs", str(error))

    def _judge(self, tables: Tables, *overrides: str) -> Judgement:
        if self.invariance is not None and (reason := self.invariance(*overrides)):
            return self._invariant(reason, tables)
        effects = tuple(self.effects(tables))
        numbers = "; ".join(map(str, effects))
        for obstacle in self.obstacles:
            if why := obstacle(tables):
                return Judgement("not decidable at this scale", f"{why}; {numbers}", effects)
        decide = any_verdict if self.any_of else all_verdict
        verdict = decide(effects)
        if self.other_reading is not None and verdict != "inconclusive":
            other_effects = tuple(self.other_reading(tables))
            if decide(other_effects) != verdict:
                other_numbers = "; ".join(map(str, other_effects))
                return Judgement(
                    "inconclusive",
                    f"depends on the reading: {numbers}; but {other_numbers}",
                    effects,
                )
        if verdict == "inconclusive":
            across = [effect for effect in effects if effect.side(LEVEL) == "across"]
            needed = max(effect.seeds_needed() for effect in across or effects)
            count = f"about {needed}" if needed < MANY else f"more than {MANY}"
            numbers += f"; {count} seeds would decide it if the estimates stay"
        return Judgement(verdict, numbers, effects)

    def _invariant(self, reason: str, tables: Tables) -> Judgement:
        """The verdict needs no runs. Effects of any runs show how much rounding matters."""
        try:
            effects = tuple(self.effects(tables))
        except NotEnoughRunsError:
            return Judgement("invariant by construction", reason)
        numbers = "; ".join([reason, *map(str, effects)])
        return Judgement("invariant by construction", numbers, effects)


def all_verdict(effects: Sequence[Effect], level: float = LEVEL) -> Verdict:
    """Reproduced if every effect is inside its region, not reproduced if one is outside.

    The first is an intersection-union test and needs no correction for several effects. In the
    second each effect has an equal share of the error.
    """
    if all(effect.side(level) == "inside" for effect in effects):
        return "reproduced"
    shared = 1 - (1 - level) / len(effects)
    if any(effect.side(shared) == "outside" for effect in effects):
        return "not reproduced"
    return "inconclusive"


def any_verdict(effects: Sequence[Effect], level: float = LEVEL) -> Verdict:
    """Reproduced if one effect is inside its region, not reproduced if all are outside.

    Here the effects share the error in the first, and the second needs no correction.
    """
    shared = 1 - (1 - level) / len(effects)
    if any(effect.side(shared) == "inside" for effect in effects):
        return "reproduced"
    if all(effect.side(level) == "outside" for effect in effects):
        return "not reproduced"
    return "inconclusive"
