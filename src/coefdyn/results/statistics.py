"""The statistics that claims and figures rest on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Slope:
    """Of log y against log x, with its 95 % confidence interval."""

    slope: float
    low: float
    high: float


def slope(x: Sequence[Any], y: Sequence[Any]) -> Slope:
    """Fitted to the longer half, where fixed costs no longer matter."""
    pairs = sorted(zip(map(math.log, x), map(math.log, y), strict=True))
    pairs = pairs[len(pairs) // 2 :] if len(pairs) >= 6 else pairs
    fit = stats.linregress(*zip(*pairs, strict=True))
    reach = float(stats.t.ppf(0.975, max(1, len(pairs) - 2)) * fit.stderr)
    return Slope(float(fit.slope), float(fit.slope) - reach, float(fit.slope) + reach)


@dataclass(frozen=True)
class Rank:
    """Spearman's rho, with the share of orders that would have given at least as much."""

    rho: float
    p: float
    n: int

    def __str__(self) -> str:
        return f"rho = {self.rho:.2f} (p = {self.p:.3f}, n = {self.n})"


def rank_correlation(x: Sequence[Any], y: Sequence[Any]) -> Rank:
    """nan where one side does not vary."""
    if len(set(x)) < 2 or len(set(y)) < 2:
        return Rank(math.nan, math.nan, len(x))
    one, other = (_standard(stats.rankdata(side)) for side in (x, y))
    rho = float(one @ other)
    orders = np.random.default_rng(0).permuted(np.tile(other, (5000, 1)), axis=1)
    return Rank(rho, float((orders @ one >= rho - 1e-9).mean()), len(x))


def _standard(ranks: Any) -> Any:
    centred = ranks - ranks.mean()
    return centred / np.sqrt((centred**2).sum())
