"""How often intervals err, and what they can tell, with noise as our own tables have it."""

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from coefdyn.results.claim import LEVEL, Effect, Region, effect_of
from coefdyn.results.variance import Values, prior_of, spread_ratio, weighted_sum
from tests.results.noise import residuals

LOOKS = (3, 5, 8, 12)
FAMILY = 12  # points


def drawn(rng: np.random.Generator, pools: list[Values], at_ceiling: int) -> list[Values]:
    """Seeds of a family of points, the most that are looked at."""
    chosen = rng.choice(len(pools), FAMILY)
    family = [rng.choice(np.concatenate([pools[i], -pools[i]]), LOOKS[-1]) for i in chosen]
    family += [rng.normal(0, 1e-3, LOOKS[-1]) for _ in range(at_ceiling)]
    return [values + rng.normal(0, 1e-4, LOOKS[-1]) for values in family]


def verdicts(family: list[Values], effect: float, region: Region) -> str:
    """Of the difference of the first two points, look by look; the first definite one."""
    for seeds in LOOKS:
        seen = [values[:seeds] for values in family]
        total = weighted_sum(
            [seen[0] + effect, seen[1]], [1.0, -1.0], prior_of(seen), len(seen) * (seeds - 1)
        )
        side = effect_of("difference", total, region, seeds).side(LEVEL)
        if side != "across":
            return side
    return "across"


@pytest.mark.slow
@pytest.mark.parametrize("at_ceiling", [0, 12])
def test_at_its_border_a_contrast_errs_in_five_percent(at_ceiling: int) -> None:
    """Either way, over all four looks."""
    rng, pools, count = np.random.default_rng(0), residuals(), 1500
    found = [verdicts(drawn(rng, pools, at_ceiling), 0.05, Region(0.05)) for _ in range(count)]
    for side in ("inside", "outside"):
        share = found.count(side) / count
        print(f"{at_ceiling} at the ceiling: {side} {share:.3f}")
        assert share <= 0.05


@pytest.mark.slow
def test_at_its_border_a_ratio_of_spreads_errs_in_five_percent() -> None:
    rng, count, wrong = np.random.default_rng(1), 120, {"inside": 0, "outside": 0}
    for _ in range(count):
        wide = [rng.normal(0, 0.15, LOOKS[-1]) for _ in range(6)]
        narrow = [rng.normal(0, 0.1, LOOKS[-1]) for _ in range(6)]
        for seeds in LOOKS:
            sides = [[values[:seeds] for values in side] for side in (wide, narrow)]
            _, low, high = spread_ratio(sides[0], sides[1], LEVEL, draws=1000)
            if low >= 1.5 or high < 1.5:
                wrong["inside" if low >= 1.5 else "outside"] += 1
                break
    print(wrong)
    assert max(wrong.values()) / count <= 0.075  # 5 %, and two deviations of 120 trials


@pytest.mark.slow
def test_power_at_the_deviation_of_our_seeds() -> None:
    """0.066 is the median over the points of our tables. Printed, and rising with seeds."""
    rng, last = np.random.default_rng(2), 0.0
    for seeds in LOOKS:
        told = 0
        for _ in range(400):
            family = [rng.normal(0, 0.066, seeds) for _ in range(FAMILY)]
            total = weighted_sum(
                [family[0] + 0.15, family[1]], [1.0, -1.0], prior_of(family), FAMILY * (seeds - 1)
            )
            told += effect_of("difference", total, Region(0.05), seeds).side(LEVEL) == "inside"
        print(f"{seeds} seeds: an effect 0.1 beyond its border is told in {told / 400:.2f}")
        assert told / 400 >= last - 0.05
        last = told / 400
    assert last > 0.8


def share_told(share: float, border: float) -> list[dict[str, float]]:
    """The chances that a claim of a share of seeds is told by each look; without drawing."""
    going, told, before = {0: 1.0}, {"inside": 0.0, "outside": 0.0}, 0
    looks = []
    for seeds in LOOKS:
        more, after = seeds - before, {}
        for reached, chance in going.items():
            for extra in range(more + 1):
                count = reached + extra
                after[count] = after.get(count, 0.0) + chance * binom.pmf(extra, more, share)
        going, before = {}, seeds
        for count, chance in after.items():
            found = binomtest(count, seeds).proportion_ci(LEVEL)
            side = Effect("", count / seeds, Region(border), lambda _, f=found: (f.low, f.high),
                          seeds).side(LEVEL)  # fmt: skip
            if side == "across":
                going[count] = chance
            else:
                told[side] += float(chance)
        looks.append(dict(told))
    return looks


def test_at_its_border_a_share_of_seeds_errs_in_five_percent() -> None:
    at_border = share_told(0.5, 0.5)[-1]
    print(at_border)
    assert max(at_border.values()) <= 0.05
    for share in (0.9, 1.0):
        power = [look["inside"] for look in share_told(share, 0.5)]
        print(share, power)
        assert power == sorted(power)
    assert [look["inside"] for look in share_told(1.0, 0.5)] == pytest.approx([0, 0, 1, 1])
    assert share_told(0.0, 0.5)[2]["outside"] == pytest.approx(1)
