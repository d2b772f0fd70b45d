"""Statistics against scipy's, and against what the definition says."""

import math

import numpy as np
import pytest
from scipy import stats

from coefdyn.results.statistics import slope
from coefdyn.results.variance import weighted_sum

LENGTHS = [2.0**k for k in range(4, 12)]
NOISE = [1.1, 0.9, 1.05, 1.0, 0.93, 1.02, 0.99, 1.08]


def test_a_slope_is_that_of_the_power_law() -> None:
    fit = slope(LENGTHS, [3 * x**1.7 for x in LENGTHS])
    assert (fit.slope, fit.low, fit.high) == pytest.approx((1.7, 1.7, 1.7))


@pytest.mark.parametrize(("count", "left_out"), [(4, 0), (5, 0), (6, 3), (7, 3), (8, 4)])
def test_from_six_lengths_on_the_longer_half_is_fitted(count: int, left_out: int) -> None:
    """Given in any order; the shorter ones lie far off the line."""
    x = LENGTHS[:count]
    y = [x_i**2 * (50 if place < left_out else 1) for place, x_i in enumerate(x)]
    assert slope(x[::-1], y[::-1]).slope == pytest.approx(2)
    y[left_out] *= 50  # the shortest that counts
    assert slope(x, y).slope < 1.9


@pytest.mark.parametrize("count", [3, 5, 8])
def test_the_interval_of_a_slope_is_that_of_student(count: int) -> None:
    x, y = LENGTHS[:count], [length * n for length, n in zip(LENGTHS, NOISE, strict=True)][:count]
    fit = slope(x, y)
    first = 4 if count == 8 else 0
    log_x, log_y = np.log(x[first:]), np.log(y[first:])
    (steep, level), n = np.polyfit(log_x, log_y, 1), len(log_x)
    residual = ((log_y - steep * log_x - level) ** 2).sum() / (n - 2)
    error = np.sqrt(residual / ((log_x - log_x.mean()) ** 2).sum())
    reach = stats.t.ppf(0.975, n - 2) * error
    assert (fit.slope, fit.low, fit.high) == pytest.approx((steep, steep - reach, steep + reach))
    assert fit.low < fit.slope < fit.high


def test_two_lengths_have_a_slope() -> None:
    fit = slope([2, 4], [3, 12])
    assert (fit.slope, fit.low, fit.high) == pytest.approx((2, 2, 2))


def test_equal_values_of_a_discrete_statistic_are_not_certain() -> None:
    """Three agreements of -1/9, of nine pairs each: a step of 2/9, so a deviation of 0.0642."""
    total = weighted_sum([np.full(3, -1 / 9)], [1.0], None, 0, step=2 / 9)
    error = 2 / 9 / math.sqrt(12 * 3)
    assert total.interval(0.95) == pytest.approx((-1 / 9 - 4.3027 * error, -1 / 9 + 4.3027 * error),
                                                 abs=1e-4)  # fmt: skip
    assert weighted_sum([np.full(3, 0.5)], [1.0], None, 0).interval(0.95) == (0.5, 0.5)
