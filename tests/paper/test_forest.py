"""The forest plot: which effect is drawn, at which level, and where it stands."""

import math
import re

import pytest

from coefdyn.paper.forest import deciding, drawing, level_of
from coefdyn.results.claim import LEVEL, Effect, Region, all_verdict


def effect(name: str, value: float, reach: float, region: Region) -> Effect:
    """An interval that is wider at a higher level."""

    def at(level: float) -> tuple[float, float]:
        wide = reach * (1.0 if level <= LEVEL else 2.0)
        return value - wide, value + wide

    return Effect(name, value, region, at, 3)


def test_the_weakest_effect_is_shown_or_the_strongest_where_one_is_enough() -> None:
    inside, across = (effect(n, v, 0.1, Region(0.0)) for n, v in (("a", 0.5), ("b", 0.05)))
    assert deciding([inside, across], LEVEL) is across
    assert deciding([inside, across], LEVEL, any_of=True) is inside
    assert deciding([], LEVEL) is None


def test_what_is_drawn_is_the_interval_that_decided() -> None:
    """Outside alone, but not where two effects share the error."""
    two = [effect("a", 0.5, 0.1, Region(0.0)), effect("b", -0.15, 0.1, Region(0.0))]
    assert all_verdict(two) == "inconclusive"
    level = level_of("inconclusive", 2)
    shown = deciding(two, level)
    assert shown is two[1]
    assert shown.side(level) == "across"
    assert level_of("reproduced", 2) == level_of("not reproduced", 1) == LEVEL
    assert level_of("not reproduced", 2, any_of=True) == LEVEL


def places(svg: str) -> dict[str, float]:
    patterns = {
        "dot": r'circle cx="([\d.]+)"', "low": r'interval" x1="([\d.]+)"',
        "high": r'interval" x1="[\d.]+" x2="([\d.]+)"', "region": r'region" x="([\d.]+)"',
        "border": r'border" x1="([\d.]+)"'}  # fmt: skip
    return {name: float(re.findall(pattern, svg)[0]) for name, pattern in patterns.items()}


def test_numbers_stand_in_their_order() -> None:
    at = places(drawing(effect("a", 0.3, 0.1, Region(0.05)), LEVEL))
    assert at["border"] == at["region"] < at["low"] < at["dot"] < at["high"]
    assert (at["dot"] - at["low"]) == pytest.approx(at["high"] - at["dot"], abs=0.2)


def test_an_endless_interval_ends_at_the_edge() -> None:
    endless = Effect("a", 0.3, Region(0.05, 0.5), lambda _: (-math.inf, math.inf), 3)
    at = places(drawing(endless, LEVEL))
    assert 0 <= at["low"] < at["dot"] < at["high"] <= 220
