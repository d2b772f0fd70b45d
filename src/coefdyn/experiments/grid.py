"""The runs of an experiment: the grid that its file declares, expanded as Hydra would."""

from collections.abc import Sequence
from dataclasses import dataclass

from coefdyn.errors import ConfigError
from coefdyn.training.build import build
from coefdyn.training.config import Config, Draft, draft, is_group, sweep_points
from coefdyn.training.record import run_id


@dataclass(frozen=True)
class Run:
    """One run of a grid: its name, its point as command-line overrides, its configuration."""

    run_id: str
    point: tuple[str, ...]
    config: Config


def plan(overrides: Sequence[str]) -> list[Run]:
    """The runs of a grid, each once, in the grid's order.

    Composing takes a tenth of a second, so it is done once per choice of groups; values are set on
    copies. One model per choice is built, so that what does not fit fails here.
    """
    points = sweep_points(overrides)
    fixed = set(points[0]).intersection(*points) if points else set()
    drafts: dict[tuple[str, ...], Draft] = {}
    found: dict[str, Run] = {}
    for point in points:
        values = [part for part in point if part not in fixed and not is_group(part)]
        groups = tuple(part for part in point if part not in values)
        new = groups not in drafts
        if new:
            drafts[groups] = draft(groups)
        config = drafts[groups].with_values(values)
        if new:
            _try(config, point)
        run = Run(run_id(config), point, config)
        found.setdefault(run.run_id, run)
    return list(found.values())


def _try(config: Config, point: Sequence[str]) -> None:
    try:
        build(config)
    except ConfigError as error:
        raise ConfigError(f"{' '.join(point)}: {error}") from error
