"""Variances of points with few seeds each, and the intervals that rest on them.

Three to five seeds tell little of a variance. Moderated variances borrow from the other points of a
table: each is drawn to a common one, the more the less the points differ (Smyth 2004). Where fewer
than SHARED points could share, each stands alone (Welch).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

SHARED = 6
# Our variances are further apart than the model has them: at its border a contrast erred in 5.3 %
# with all that the fit says a common variance is worth, and in 4.6 % with half.
TRUST = 0.5
LEAST = 1e-5  # of the median variance: points at the ceiling may have none at all
# Where several effects share one error, each is judged far out, and there three seeds that happen
# to lie together deceive: of nine effects at their border one was called outside in 15 %. Beyond
# this level the common variance is therefore at least the mean of all; then it was 3 %.
FAR_OUT = 0.99

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Prior:
    """What the variances of a family have in common: a value, worth `freedom` observations."""

    variance: float
    freedom: float
    least: float
    mean: float  # of the variances that were found

    def moderated(self, variance: float, freedom: int, far_out: bool = False) -> float:
        variance, common = max(variance, self.least), self.variance
        if far_out:
            common = max(common, self.mean)
        if math.isinf(self.freedom):
            return common
        return (self.freedom * common + freedom * variance) / (self.freedom + freedom)


def prior_of(family: Sequence[Values]) -> Prior | None:
    """Fitted to the logarithms of the sample variances; None if there are too few of them."""
    groups = [values for values in family if len(values) > 1]
    if len(groups) < SHARED:
        return None
    freedom = np.array([len(values) - 1 for values in groups])
    found = np.array([values.var(ddof=1) for values in groups])
    least = max(LEAST * float(np.median(found)), 1e-12)
    logs = np.log(np.maximum(found, least)) - special.digamma(freedom / 2) + np.log(freedom / 2)
    excess = float(logs.var(ddof=1) - special.polygamma(1, freedom / 2).mean())
    if excess <= 0:
        return Prior(float(np.exp(logs.mean())), math.inf, least, float(found.mean()))
    worth = 2 * _inverse_trigamma(excess)
    centre = logs.mean() + special.digamma(worth / 2) - math.log(worth / 2)
    return Prior(float(np.exp(centre)), TRUST * worth, least, float(found.mean()))


def _inverse_trigamma(y: float) -> float:
    """By Newton's method, as Smyth gives it: 1/trigamma is nearly linear."""
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
    """A weighted sum of means, its standard error and the freedom that has; the error far out."""

    value: float
    error: float
    freedom: float
    far_error: float = 0.0

    def interval(self, level: float) -> tuple[float, float]:
        error = max(self.error, self.far_error) if level > FAR_OUT else self.error
        reach = float(stats.t.ppf(0.5 + level / 2, self.freedom)) * error
        return self.value - reach, self.value + reach


def weighted_sum(
    samples: Sequence[Values], weights: Sequence[float], prior: Prior | None, pooled: int
) -> Sum:
    """`pooled`: the freedom of all points of the family together, which none can exceed."""
    shares, freedoms, far = [], [], 0.0
    for values, weight in zip(samples, weights, strict=True):
        own = len(values) - 1
        variance = float(values.var(ddof=1))
        if prior is not None:
            far += weight**2 * prior.moderated(variance, own, far_out=True) / len(values)
            variance = prior.moderated(variance, own)
            freedoms.append(min(own + prior.freedom, max(pooled, own)))
        else:
            freedoms.append(own)
        shares.append(weight**2 * variance / len(values))
    total = sum(shares)
    value = sum(w * float(values.mean()) for w, values in zip(weights, samples, strict=True))
    if total <= 0:  # all seeds alike, and no family to say how much they might have differed
        return Sum(value, 0.0, float(min(freedoms)))
    parts = sum(share**2 / freedom for share, freedom in zip(shares, freedoms, strict=True))
    return Sum(value, math.sqrt(total), total**2 / parts, math.sqrt(far))


def reach_of(values: Values) -> float:
    """Half of the 95 % interval of a mean, as figures show it; 0 of fewer than three."""
    if len(values) < 3:
        return 0.0
    low, high = weighted_sum([values], [1.0], None, 0).interval(0.95)
    return (high - low) / 2


def spread_ratio(
    one: Sequence[Values], other: Sequence[Values], level: float, draws: int = 4000
) -> tuple[float, float, float]:
    """Of the standard deviations of residuals, with an interval by permutation.

    one[i] and other[i] may be exchanged for each other: the same size, say. The interval holds the
    ratios r for which residuals of `one`, divided by r, look no different from those of `other`.
    """
    ours, theirs = ([_residuals(values) for values in side] for side in (one, other))
    found = _log_ratio(np.concatenate(ours), np.concatenate(theirs))
    rng, tail = np.random.default_rng(0), (1 - level) / 2
    orders = [
        np.argsort(rng.random((draws, len(a) + len(b))), axis=1)
        for a, b in zip(ours, theirs, strict=True)
    ]

    def above(log_r: float) -> tuple[float, float]:
        """Shares of permutations with a ratio at least, and at most, as large as the one found."""
        squares = np.zeros((2, draws))
        for a, b, order in zip(ours, theirs, orders, strict=True):
            mixed = np.concatenate([a / math.exp(log_r), b])[order] ** 2
            squares[0] += mixed[:, : len(a)].sum(1)
            squares[1] += mixed[:, len(a) :].sum(1)
        sizes = sum(map(len, ours)), sum(map(len, theirs))
        logs = 0.5 * np.log(
            np.maximum(squares[0], 1e-300) / sizes[0] / np.maximum(squares[1] / sizes[1], 1e-300)
        )
        seen = found - log_r
        return float((logs >= seen - 1e-12).mean()), float((logs <= seen + 1e-12).mean())

    low = _border(lambda r: above(r)[0] > tail, -5.0, found)
    high = _border(lambda r: above(r)[1] <= tail, found, 5.0)
    return math.exp(found), math.exp(low), math.exp(high)


def _residuals(values: Values) -> Values:
    return (values - values.mean()) * math.sqrt(len(values) / max(1, len(values) - 1))


def _log_ratio(one: Values, other: Values) -> float:
    sizes = [max(float((side**2).mean()), 1e-300) for side in (one, other)]
    return 0.5 * math.log(sizes[0] / sizes[1])


def _border(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where a condition that is false at `low` and true at `high` begins to hold."""
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
