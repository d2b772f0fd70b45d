"""Verdicts from intervals, and the intervals."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.stats import binom

from coefdyn.results.claim import (
    LEVEL,
    MANY,
    Claim,
    Effect,
    NotEnoughRunsError,
    Region,
    all_verdict,
    any_verdict,
    size_of,
)
from coefdyn.results.effects import share_of_seeds
from coefdyn.results.tables import AXES
from coefdyn.results.variance import TRUST, prior_of, spread_ratio, weighted_sum


def effect(low: float, high: float, region: Region, seeds: int = 4) -> Effect:
    """With an interval of this width at every level."""
    return Effect("effect", (low + high) / 2, region, lambda _: (low, high), seeds)


AT_LEAST, BAND = Region(0.05), Region(-0.1, 0.1)


@pytest.mark.parametrize(
    ("low", "high", "region", "side"),
    [
        (0.05, 0.2, AT_LEAST, "inside"),
        (0.049, 0.2, AT_LEAST, "across"),
        (-0.3, 0.05, AT_LEAST, "across"),
        (-0.3, 0.049, AT_LEAST, "outside"),
        (-0.1, 0.1, BAND, "inside"),
        (-0.2, 0.2, BAND, "across"),
        (0.11, 0.2, BAND, "outside"),
        (math.nan, math.nan, BAND, "across"),
        (-math.inf, math.inf, BAND, "across"),
    ],
)
def test_an_interval_is_inside_outside_or_across(
    low: float, high: float, region: Region, side: str
) -> None:
    assert effect(low, high, region).side(LEVEL) == side


INSIDE, OUTSIDE, ACROSS = (
    effect(0.1, 0.2, AT_LEAST), effect(-0.2, 0.0, AT_LEAST), effect(0.0, 0.2, AT_LEAST)
)  # fmt: skip


def test_all_must_hold_or_one_is_enough() -> None:
    assert all_verdict([INSIDE, INSIDE]) == "reproduced"
    assert all_verdict([INSIDE, ACROSS]) == "inconclusive"
    assert all_verdict([INSIDE, OUTSIDE]) == "not reproduced"
    assert any_verdict([OUTSIDE, INSIDE]) == "reproduced"
    assert any_verdict([OUTSIDE, ACROSS]) == "inconclusive"
    assert any_verdict([OUTSIDE, OUTSIDE]) == "not reproduced"


def test_one_of_many_effects_needs_a_wider_interval_to_refute_all() -> None:
    """0.05 is outside at the level of one, not at a third of its error."""

    def at(level: float) -> tuple[float, float]:
        return (-1.0, 0.049 if level <= LEVEL else 0.06)

    doubtful = Effect("effect", 0.0, AT_LEAST, at, 4)
    assert all_verdict([doubtful]) == "not reproduced"
    assert all_verdict([doubtful, INSIDE, INSIDE]) == "inconclusive"


def test_seeds_that_would_decide() -> None:
    """Half the distance takes four times as many; at the border none are enough."""
    assert effect(0.05, 0.15, Region(0.075), seeds=4).seeds_needed() == 16
    assert effect(0.05, 0.15, Region(0.1), seeds=4).seeds_needed() == MANY
    assert effect(0.05, 0.15, Region(0.01), seeds=4).seeds_needed() == 5


def test_a_difference_of_either_sign() -> None:
    for low, high, wanted in ((0.1, 0.3, (0.1, 0.3)), (-0.3, -0.1, (0.1, 0.3)),
                              (-0.1, 0.3, (0.0, 0.3))):  # fmt: skip
        assert size_of(effect(low, high, Region()), AT_LEAST).at(0.9) == pytest.approx(wanted)


def claim(*effects: Effect, **more) -> Claim:  # type: ignore[no-untyped-def]
    return Claim("name", "words", "place", ("stem",), lambda _: effects, **more)


def test_what_comes_before_a_verdict() -> None:
    def few(_: object) -> list[Effect]:
        raise NotEnoughRunsError("two of three")

    judged = Claim("name", "words", "place", ("stem",), few).judge({})
    assert (judged.verdict, judged.statistic) == ("not enough runs", "two of three")
    judged = claim(INSIDE, invariance=lambda: "one function").judge({})
    assert judged.verdict == "invariant by construction"
    assert judged.statistic.startswith("one function; effect 0.15 [0.1, 0.2], wanted >= 0.05")
    for why, verdict in ((None, "reproduced"), ("no room", "not decidable at this scale")):
        judged = claim(INSIDE, obstacles=(lambda _, why=why: why,)).judge({})
        assert judged.verdict == verdict
    judged = claim(ACROSS).judge({})
    assert judged.verdict == "inconclusive"
    assert "about 16 seeds would decide it" in judged.statistic
    judged = claim(INSIDE, other_reading=lambda _: [OUTSIDE]).judge({})
    assert judged.verdict == "inconclusive"
    assert claim(INSIDE, other_reading=lambda _: [INSIDE]).judge({}).verdict == "reproduced"


def test_an_effect_that_is_refuted_only_when_alone_leaves_it_open() -> None:
    """None is across its border, and yet nothing is decided."""

    def at(level: float) -> tuple[float, float]:
        return (-1.0, 0.049 if level <= LEVEL else 0.06)

    judged = claim(Effect("effect", 0.0, AT_LEAST, at, 4), INSIDE, INSIDE).judge({})
    assert judged.verdict == "inconclusive"
    assert "seeds would decide it" in judged.statistic


def test_what_has_no_numbers_is_not_enough_wherever_it_is_missed() -> None:
    def few(_: object) -> list[Effect]:
        raise NotEnoughRunsError("two of three")

    for more in ({"obstacles": (few,)}, {"other_reading": few}):
        judged = claim(INSIDE, **more).judge({})
        assert (judged.verdict, judged.statistic) == ("not enough runs", "two of three")


def test_without_a_family_an_interval_is_welchs() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(0, 1, 5), rng.normal(0.3, 3, 4)
    found = weighted_sum([one, other], [1.0, -1.0], None, 0).interval(0.95)
    wanted = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert found == pytest.approx((wanted.low, wanted.high))


def test_variances_are_drawn_to_a_common_one() -> None:
    """The more, the less they differ: alike they are one, far apart they stand for themselves."""
    rng = np.random.default_rng(1)
    assert prior_of([rng.normal(size=3)] * 5) is None  # too few
    alike = prior_of([rng.normal(0, 2.0, 4) for _ in range(400)])
    assert alike is not None
    assert alike.variance == pytest.approx(4.0, rel=0.15)
    assert alike.freedom > 15
    assert alike.moderated(400.0, 3) < 70
    apart = prior_of([rng.normal(0, 10.0 ** rng.uniform(-3, 3), 4) for _ in range(400)])
    assert apart is not None
    assert apart.freedom < 2
    assert apart.moderated(400.0, 3) > 200
    freedom, scale = 8.0, 0.5  # drawn as the model says
    variances = scale * freedom / rng.chisquare(freedom, 4000)
    fitted = prior_of([rng.normal(0, v**0.5, 4) for v in variances])
    assert fitted is not None
    assert fitted.freedom == pytest.approx(TRUST * freedom, rel=0.2)
    assert fitted.variance == pytest.approx(scale, rel=0.1)


def test_points_without_any_deviation_borrow_one() -> None:
    rng = np.random.default_rng(2)
    family = [np.ones(3), *(rng.normal(0, 0.1, 3) for _ in range(8))]
    prior = prior_of(family)
    assert prior is not None
    low, high = weighted_sum([family[0]], [1.0], prior, 18).interval(LEVEL)
    assert low < 1 < high
    alone = weighted_sum([np.ones(3)], [1.0], None, 0)
    assert (alone.value, alone.error) == (1.0, 0.0)


def test_a_ratio_of_spreads_and_its_interval() -> None:
    rng = np.random.default_rng(3)
    wide = [rng.normal(k, 0.3, 8) for k in range(6)]
    narrow = [rng.normal(-k, 0.1, 8) for k in range(6)]
    value, low, high = spread_ratio(wide, narrow, 0.95)
    residuals = [np.concatenate([v - v.mean() for v in side]) for side in (wide, narrow)]
    assert value == pytest.approx(residuals[0].std() / residuals[1].std())
    assert 1.8 < low < 3 < high < 5
    back = spread_ratio(narrow, wide, 0.95)
    assert back == pytest.approx((1 / value, 1 / high, 1 / low), rel=0.08)
    assert spread_ratio(wide, narrow, 0.95) == (value, low, high)  # the same every time


def test_a_share_of_seeds_has_an_exact_interval() -> None:
    runs = pd.DataFrame(
        [dict.fromkeys(AXES, "x") | {"seed": seed, "status": "finished", "lr": 1.0,
          "weight_decay": 0.0, "accuracy": value, "run_id": str(seed)}
         for seed, value in enumerate([1.0, 0.95, 0.2, 0.99, 1.0])]
    )  # fmt: skip
    effect = share_of_seeds({"mine_runs": runs}, "solved", "mine", {}, 0.95, Region(0.5))
    assert effect.name == "solved (4 of 5 seeds)"
    assert effect.value == pytest.approx(0.8)
    low, high = effect.at(0.95)
    assert binom.sf(3, 5, low) == pytest.approx(0.025)  # as rare as four or more may be
    assert binom.cdf(4, 5, high) == pytest.approx(0.025)
    all_of_them = share_of_seeds({"mine_runs": runs}, "", "mine", {}, 0.1, Region(0.5))
    assert all_of_them.at(0.95) == pytest.approx((0.025 ** (1 / 5), 1.0))
