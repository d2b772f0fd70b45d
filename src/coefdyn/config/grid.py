"""The runs of an experiment: the grid that its file declares, expanded as Hydra would."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from coefdyn.config.build import build_model
from coefdyn.config.compose import (
    Config,
    Draft,
    draft,
    is_composed,
    plugins_of,
    sweep_points,
)
from coefdyn.config.identity import run_id
from coefdyn.config.plugins import Plugins
from coefdyn.errors import ConfigError


@dataclass(frozen=True)
class PlannedRun:
    """One run of a grid: its name, its point as command-line overrides, its configuration."""

    run_id: str
    point: tuple[str, ...]
    values: dict[str, Any]
    choices: Mapping[str, str]

    @cached_property
    def config(self) -> Config:
        return Config(self.values, self.choices)

    @property
    def folder(self) -> Path:
        return Path(self.values["paths"]["results"]) / "runs" / self.run_id


def plan(overrides: Sequence[str]) -> list[PlannedRun]:
    """The runs of a grid, each once, in the grid's order.

    Composing takes a tenth of a second, so it is done once per choice of groups, and what no value
    of the grid can change is resolved once. One model per choice is built, so that what does not
    fit fails here.
    """
    return plan_points(sweep_points(overrides), plugins_of(overrides))


def plan_points(points: Sequence[tuple[str, ...]], plugins: Plugins) -> list[PlannedRun]:
    """The same of points that are known already."""
    fixed = set(points[0]).intersection(*points) if points else set()
    drafts: dict[tuple[str, ...], Draft] = {}
    chosen = [part for point in points[:1] for part in point if part.startswith("experiment=")]
    if chosen and any(set(chosen).isdisjoint(point) for point in points):
        raise ConfigError(
            "experiment takes one name: each has a grid of its own; plan them in turn"
        )
    runs: dict[str, PlannedRun] = {}
    for point in points:
        values = [part for part in point if part not in fixed and not is_composed(part, plugins)]
        groups = tuple(part for part in point if part not in values)
        if groups not in drafts:
            composed = draft(groups)
            _try(composed.with_values(values), point)
            drafts[groups] = composed.settled(values)
        settings = drafts[groups].set(values)
        run = PlannedRun(run_id(settings), point, settings, drafts[groups].choices)
        runs.setdefault(run.run_id, run)
    return list(runs.values())


def differences(runs: Sequence[PlannedRun]) -> dict[str, str]:
    """What tells each run from the others, by name."""
    common = set(runs[0].point).intersection(*(run.point for run in runs)) if len(runs) > 1 else ()
    return {r.run_id: " ".join(part for part in r.point if part not in common) for r in runs}


def _try(config: Config, point: Sequence[str]) -> None:
    try:
        build_model(config)
    except ConfigError as error:
        raise ConfigError(f"{' '.join(point)}: {error}") from error
