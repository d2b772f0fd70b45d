"""Variances of points with few seeds each, and the intervals that rest on them.

Three to five seeds say little about a variance. Moderated variances (Smyth 2004) borrow from the
other points of a table: each is drawn towards a common value, more strongly if the points differ
less. With fewer than SHARED points each variance stands alone (Welch).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

SHARED = 6
# The share of its fitted weight that the common variance gets. Our variances differ more than the
# model assumes: a contrast at the border of its region was misjudged in 5.3 % of simulations with
# the full weight, and in 4.6 % with half.
TRUST = 0.5
LEAST = 1e-5  # smallest variance, as a share of the median: points at the ceiling may have none
# Several effects that share one error are each judged at a high level. There three seeds that
# happen to lie close together mislead: of nine effects at their border, one was called outside in
# 15 % of simulations. Beyond this level the common variance is therefore at least the mean of all
# variances; then it was 3 %.
FAR_OUT = 0.99

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Prior:
    """The common variance of a family of points, which counts as `freedom` degrees of freedom."""

    variance: float
    freedom: float
    least: float
    mean: float  # of the sample variances

    def moderated(self, variance: float, freedom: int, far_out: bool = False) -> float:
        """A sample variance with `freedom` degrees of freedom, drawn towards the common one."""
        variance, common = max(variance, self.least), self.variance
        if far_out:
            common = max(common, self.mean)
        if math.isinf(self.freedom):
            return common
        return (self.freedom * common + freedom * variance) / (self.freedom + freedom)


def prior_of(family: Sequence[Values]) -> Prior | None:
    """Fit the common variance to the logarithms of the sample variances; None if too few."""
    groups = [values for values in family if len(values) > 1]
    if len(groups) < SHARED:
        return None
    freedom = np.array([len(values) - 1 for values in groups])
    variances = np.array([values.var(ddof=1) for values in groups])
    least = max(LEAST * float(np.median(variances)), 1e-12)
    logs = np.log(np.maximum(variances, least)) - special.digamma(freedom / 2) + np.log(freedom / 2)
    excess = float(logs.var(ddof=1) - special.polygamma(1, freedom / 2).mean())
    if excess <= 0:
        return Prior(float(np.exp(logs.mean())), math.inf, least, float(variances.mean()))
    worth = 2 * _inverse_trigamma(excess)
    centre = logs.mean() + special.digamma(worth / 2) - math.log(worth / 2)
    return Prior(float(np.exp(centre)), TRUST * worth, least, float(variances.mean()))


def _inverse_trigamma(y: float) -> float:
    """Newton's method as Smyth gives it. It converges fast, since 1/trigamma is nearly linear."""
    x = 0.5 + 1 / y
    for _ in range(50):
        value = float(special.polygamma(1, x))
        step = value * (1 - value / y) / float(special.polygamma(2, x))
        x += step
        if abs(step) < 1e-8 * x:
            break
    return x


@dataclass(frozen=True)
class Sum:
    """A weighted sum of means, its standard error and the degrees of freedom of that error.

    `far_error` is the standard error at levels beyond FAR_OUT.
    """

    value: float
    error: float
    freedom: float
    far_error: float = 0.0

    def interval(self, level: float) -> tuple[float, float]:
        error = max(self.error, self.far_error) if level > FAR_OUT else self.error
        reach = float(stats.t.ppf(0.5 + level / 2, self.freedom)) * error
        return self.value - reach, self.value + reach


def weighted_sum(
    samples: Sequence[Values],
    weights: Sequence[float],
    prior: Prior | None,
    pooled: int,
    step: float = 0.0,
) -> Sum:
    """The weighted sum of the means of `samples`, with its standard error.

    `pooled`: degrees of freedom of all points of the family together, which none can exceed.
    `step`: distance of two values that a sample can take, if it is discrete. Rounding to such steps
    adds step^2 / 12 to the variance: equal values of three seeds do not mean certainty.
    """
    shares, freedoms, far = [], [], 0.0
    for values, weight in zip(samples, weights, strict=True):
        own = len(values) - 1
        variance = float(values.var(ddof=1)) + step**2 / 12
        if prior is not None:
            far += weight**2 * prior.moderated(variance, own, far_out=True) / len(values)
            variance = prior.moderated(variance, own)
            freedoms.append(min(own + prior.freedom, max(pooled, own)))
        else:
            freedoms.append(own)
        shares.append(weight**2 * variance / len(values))
    total = sum(shares)
    value = sum(w * float(values.mean()) for w, values in zip(weights, samples, strict=True))
    if total <= 0:  # all seeds are equal, and no family says how much they might differ
        return Sum(value, 0.0, float(min(freedoms)))
    parts = sum(share**2 / freedom for share, freedom in zip(shares, freedoms, strict=True))
    return Sum(value, math.sqrt(total), total**2 / parts, math.sqrt(far))


def reach_of(values: Values) -> float:
    """Half the width of the 95 % interval of a mean, as in figures; 0 for fewer than 3 values."""
    if len(values) < 3:
        return 0.0
    low, high = weighted_sum([values], [1.0], None, 0).interval(0.95)
    return (high - low) / 2


def spread_ratio(
    one: Sequence[Values], other: Sequence[Values], level: float, draws: int = 4000
) -> tuple[float, float, float]:
    """The ratio of the standard deviations of residuals, and its interval by permutation.

    one[i] and other[i] must be comparable, such as points of the same size: their residuals are
    permuted. The interval holds the ratios r for which residuals of `one`, divided by r, look no
    different from those of `other`.
    """
    ours, theirs = ([_residuals(values) for values in side] for side in (one, other))
    observed = _log_ratio(np.concatenate(ours), np.concatenate(theirs))
    rng, tail = np.random.default_rng(0), (1 - level) / 2
    orders = [
        np.argsort(rng.random((draws, len(a) + len(b))), axis=1)
        for a, b in zip(ours, theirs, strict=True)
    ]

    def shares(log_r: float) -> tuple[float, float]:
        """Shares of permutations with a ratio at least, and at most, as large as the observed."""
        squares = np.zeros((2, draws))
        for a, b, order in zip(ours, theirs, orders, strict=True):
            mixed = np.concatenate([a / math.exp(log_r), b])[order] ** 2
            squares[0] += mixed[:, : len(a)].sum(1)
            squares[1] += mixed[:, len(a) :].sum(1)
        sizes = sum(map(len, ours)), sum(map(len, theirs))
        logs = 0.5 * np.log(
            np.maximum(squares[0], 1e-300) / sizes[0] / np.maximum(squares[1] / sizes[1], 1e-300)
        )
        scaled = observed - log_r
        return float((logs >= scaled - 1e-12).mean()), float((logs <= scaled + 1e-12).mean())

    low = _border(lambda r: shares(r)[0] > tail, -5.0, observed)
    high = _border(lambda r: shares(r)[1] <= tail, observed, 5.0)
    return math.exp(observed), math.exp(low), math.exp(high)


def _residuals(values: Values) -> Values:
    return (values - values.mean()) * math.sqrt(len(values) / max(1, len(values) - 1))


def _log_ratio(one: Values, other: Values) -> float:
    sizes = [max(float((side**2).mean()), 1e-300) for side in (one, other)]
    return 0.5 * math.log(sizes[0] / sizes[1])


def _border(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where a condition that is false at `low` and true at `high` begins to hold; by bisection."""
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
