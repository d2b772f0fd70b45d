"""Where a function of one variable is small."""

import math
from collections.abc import Callable

Interval = tuple[float, float]


def level_set(
    magnitude: Callable[[float], float], eps: float, reach: float = 60.0, points: int = 24001
) -> list[Interval]:
    """The intervals of s on which magnitude(s) <= eps.

    A grid over [-reach, reach] finds them, and bisection refines their ends. An interval that
    touches an end of the grid counts as infinite. One that lies between two grid points is missed.
    """
    grid = [-reach + 2 * reach * i / (points - 1) for i in range(points)]
    inside = [magnitude(s) <= eps for s in grid]
    edges = [
        _crossing(magnitude, eps, grid[i], grid[i + 1])
        for i in range(points - 1)
        if inside[i] != inside[i + 1]
    ]
    if inside[0]:
        edges = [-math.inf, *edges]
    if inside[-1]:
        edges = [*edges, math.inf]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _crossing(magnitude: Callable[[float], float], eps: float, low: float, high: float) -> float:
    starts_inside = magnitude(low) <= eps
    for _ in range(80):
        middle = (low + high) / 2
        if (magnitude(middle) <= eps) == starts_inside:
            low = middle
        else:
            high = middle
    return (low + high) / 2
