"""A forest plot as a table of small drawings: effect, interval and region, a row per claim."""

import math
from collections.abc import Sequence
from html import escape

from coefdyn.results.claim import LEVEL, Effect

WIDTH, HEIGHT, MARGIN = 220, 26, 8
SIDES = {"outside": 0, "across": 1, "inside": 2}


def level_of(verdict: str, effects: int, any_of: bool = False) -> float:
    """The confidence level at which a verdict was reached.

    Where any one of several effects decides, they share one error.
    """
    alone = "not reproduced" if any_of else "reproduced"
    return LEVEL if verdict == alone or effects < 2 else 1 - (1 - LEVEL) / effects


def deciding(effects: Sequence[Effect], level: float, any_of: bool = False) -> Effect | None:
    """The effect on which a claim stands or falls: the one nearest to being outside its region.

    If one effect is enough (`any_of`), the one nearest to being inside.
    """

    def order(effect: Effect) -> tuple[int, float]:
        low, high = effect.at(level)
        reach = max(high - low, 1e-12)
        slack = min(low - effect.region.low, effect.region.high - high) / reach
        return SIDES[effect.side(level)], slack if math.isfinite(slack) else 0.0

    if not effects:
        return None
    return max(effects, key=order) if any_of else min(effects, key=order)


def drawing(effect: Effect, level: float) -> str:
    """An SVG with its own scale: region as a band, interval as a line, estimate as a dot."""
    low, high = effect.at(level)
    borders = [b for b in (effect.region.low, effect.region.high) if math.isfinite(b)]
    near = [effect.value, *borders]
    span = max(max(near) - min(near), 1e-9)
    # The interval of few seeds may be very long: it is cut at the edge of the picture.
    left = max(min([low, *near]), min(near) - 1.5 * span)
    right = min(max([high, *near]), max(near) + 1.5 * span)
    pad = 0.08 * max(right - left, 1e-9)
    left, right = left - pad, right + pad

    def x(value: float) -> float:
        inside = min(max(value, left), right)
        return round(MARGIN + (inside - left) / (right - left) * (WIDTH - 2 * MARGIN), 1)

    middle = HEIGHT / 2
    start, end = x(effect.region.low), x(effect.region.high)
    lines = [
        f'<rect class="region" x="{start}" y="3" width="{round(end - start, 1)}" height="20"/>'
    ]
    lines += [f'<line class="border" x1="{x(b)}" x2="{x(b)}" y1="1" y2="25"/>' for b in borders]
    lines += [
        f'<line class="interval" x1="{x(low)}" x2="{x(high)}" y1="{middle}" y2="{middle}"/>',
        f'<circle cx="{x(effect.value)}" cy="{middle}" r="4"/>',
    ]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{escape(str(effect), quote=True)}">{"".join(lines)}</svg>'
    )


def numbers(effect: Effect, level: float) -> str:
    """Estimate, interval and region in words."""
    low, high = effect.at(level)
    return f"{effect.value:.3g} [{low:.3g}, {high:.3g}]; wanted {effect.region}"
