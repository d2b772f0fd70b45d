"""Slopes of power laws: straight lines fitted to logarithms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats


@dataclass(frozen=True)
class Slope:
    """The slope of log y against log x, with its 95 % confidence interval."""

    slope: float
    low: float
    high: float


def slope(x: Sequence[Any], y: Sequence[Any]) -> Slope:
    """Fit log y to log x.

    From six points on, only the half with the larger x is used: there fixed costs no longer matter.
    """
    pairs = sorted(zip(map(math.log, x), map(math.log, y), strict=True))
    pairs = pairs[len(pairs) // 2 :] if len(pairs) >= 6 else pairs
    fit = stats.linregress(*zip(*pairs, strict=True))
    reach = float(stats.t.ppf(0.975, max(1, len(pairs) - 2)) * fit.stderr)
    return Slope(float(fit.slope), float(fit.slope) - reach, float(fit.slope) + reach)
