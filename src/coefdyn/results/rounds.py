"""Grids that grow: pilot runs choose the learning rate, then seeds are run at that rate.

An experiment with `seeds` in its grid is run in rounds. First pilots, whose seeds are PILOT and
above, try every learning rate. While the best rate of a point is the smallest or largest tried, the
next one beyond it is added, up to `extend` times. Then seeds 0, 1, ... are run at the best rate
alone. Claims read only these, so no number that a claim rests on has taken part in a choice. A
point with one rate has nothing to choose, and no pilots.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coefdyn.config.grid import VARIED, PlannedRun, Planner
from coefdyn.errors import ConfigError
from coefdyn.runs.archive import is_recorded, record_of
from coefdyn.runs.record import Record

PILOT = 100  # the smallest seed of a pilot
LOOKS = (3, 5, 8, 12)  # numbers of seeds at which claims are judged
TUNED = VARIED[1:]

Point = tuple[str, ...]  # overrides that tell a grid point from others, without seed and rate
Rate = tuple[str, ...]  # overrides of the tuned settings


@dataclass(frozen=True)
class Known:
    """The runs that are known by now, and how many more wait for their pilots."""

    runs: list[PlannedRun]
    waiting: int


def known_runs(planner: Planner, seeds: Mapping[Point, int] | None = None) -> Known:
    """The declared grid and the runs that its records ask for.

    `seeds`: numbers of seeds of points that get more than the grid says.
    """
    runs, points, waiting = {run.run_id: run for run in planner.declared}, [], 0
    groups: dict[Point, list[PlannedRun]] = {}
    for run in planner.declared:
        if is_pilot(run):
            groups.setdefault(point_of(run), []).append(run)
    for point, group in groups.items():
        count, extend = rule_of(group[0]) or (0, 0)
        count = max(count, (seeds or {}).get(point, 0))
        if len({rate_of(run) for run in group}) == 1:  # no choice, no pilots
            example: PlannedRun | None = group[0]
            for run in group:
                del runs[run.run_id]
        else:
            tried = _extended(planner, group, extend)
            points += [run.point for run in tried[len(group) :]]
            example = _best(tried)
        if example is None:
            waiting += count
        else:
            points += [_with(example.point, {"seed": str(seed)}) for seed in range(count)]
    runs |= {run.run_id: run for run in planner.plan(points)}
    return Known(list(runs.values()), waiting)


def _extended(planner: Planner, pilots: list[PlannedRun], times: int) -> list[PlannedRun]:
    """These pilots, and those with rates beyond an edge that is the best so far."""
    for _ in range(times):
        beyond = _beyond(pilots)
        if not beyond:
            break
        pilots = [*pilots, *planner.plan(beyond)]
    return pilots


def _best(pilots: Sequence[PlannedRun]) -> PlannedRun | None:
    rate = best_rate(pilots)
    return None if rate is None else next(run for run in pilots if rate_of(run) == rate)


def recorded_too(planner: Planner) -> Known:
    """The known runs, and further seeds that were run to decide a claim."""
    known = known_runs(planner)
    seeds = {point_of(run): LOOKS[-1] for run in planner.declared if is_pilot(run)}
    more = (run for run in known_runs(planner, seeds).runs if is_recorded(run.folder))
    return Known(list({run.run_id: run for run in (*known.runs, *more)}.values()), known.waiting)


def rule_of(run: PlannedRun) -> tuple[int, int] | None:
    """How many seeds its experiment asks for, and how often a rate may be added.

    None for an ordinary grid, which does not grow.
    """
    grid = (run.values.get("grid") or {}).get(run.choices["scale"]) or {}
    if "seeds" not in grid:
        return None
    seeds, extend = grid["seeds"], grid.get("extend", 0)
    if type(seeds) is not int or type(extend) is not int or seeds < 1 or extend < 0:
        raise ConfigError(
            f"grid.{run.choices['scale']} has seeds={seeds} and extend={extend}; both are whole "
            "numbers, seeds of at least 1"
        )
    return seeds, extend


def is_pilot(run: PlannedRun) -> bool:
    """Whether it is a pilot of a grid that grows."""
    return run.values["seed"] >= PILOT and rule_of(run) is not None


def point_of(run: PlannedRun) -> Point:
    return tuple(part for part in run.point if part.partition("=")[0] not in VARIED)


def rate_of(run: PlannedRun) -> Rate:
    return tuple(part for part in run.point if part.partition("=")[0] in TUNED)


def score(record: Record) -> float:
    """How good a run is: its accuracy, or for text minus its validation loss; -inf if diverged."""
    if record.status == "diverged":
        return -math.inf
    loss = record.metrics.get("validation/loss")
    value = record.metrics.get("test/accuracy") if loss is None else -loss
    return -math.inf if value is None else float(value)


def best_rate(pilots: Sequence[PlannedRun]) -> Rate | None:
    """The rate with the best mean score over pilot seeds; the smallest of equals.

    None while some of these runs are missing.
    """
    scores: dict[Rate, list[float]] = {}
    for run in sorted(pilots, key=_lr):
        record = record_of(run.folder)
        if record is None:
            return None
        scores.setdefault(rate_of(run), []).append(score(record))
    return max(scores, key=lambda rate: sum(scores[rate]) / len(scores[rate]))


def _lr(run: PlannedRun) -> float:
    return float(run.values["optimizer"]["lr"])


def _beyond(pilots: Sequence[PlannedRun]) -> list[tuple[str, ...]]:
    """The points with the next learning rate, if the best rate is at an edge; else none.

    The ratio of the next rate to the best is that of the best to its neighbour.
    """
    best = best_rate(pilots)
    rates = sorted({_lr(run) for run in pilots})
    if best is None or len(rates) < 2:
        return []
    chosen = [run for run in pilots if rate_of(run) == best]
    neighbour = {rates[0]: rates[1], rates[-1]: rates[-2]}.get(_lr(chosen[0]))
    if neighbour is None:
        return []
    lr = f"{_lr(chosen[0]) ** 2 / neighbour:.3g}"
    return [_with(run.point, {"optimizer.lr": lr}) for run in chosen]


def _with(point: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    unchanged = [part for part in point if part.partition("=")[0] not in values]
    return (*unchanged, *(f"{key}={value}" for key, value in values.items()))
