"""The runs of an experiment: its file declares a grid, which is expanded as Hydra would."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from coefdyn.config.build import build_model
from coefdyn.config.compose import Config, Draft, draft, is_composed, plugins_of
from coefdyn.config.identity import run_id
from coefdyn.config.multirun import sweep_points
from coefdyn.errors import ConfigError

VARIED = ("seed", "optimizer.lr", "optimizer.weight_decay")  # where added points may differ


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
    """The runs of a grid, each once, in the grid's order."""
    return Planner(overrides).declared


class Planner:
    """Plans the points of a grid, and more points that differ from them in seed or rate.

    Composing takes a tenth of a second, so each choice of groups is composed once. Values that the
    grid does not change are resolved once. One model per choice is built, so that slots that do
    not fit together fail here.
    """

    def __init__(self, overrides: Sequence[str]) -> None:
        if any("," in part for part in overrides if part.startswith("experiment=")):
            raise ConfigError(
                "experiment takes one name, because each has its own grid; plan one after the other"
            )
        points, self.plugins = sweep_points(overrides), plugins_of(overrides)
        common = set(points[0]).intersection(*points) if points else set()
        self.fixed = {part for part in common if part.partition("=")[0] not in VARIED}
        self.drafts: dict[tuple[tuple[str, ...], ...], Draft] = {}
        self.declared = self.plan(points)

    def plan(self, points: Sequence[tuple[str, ...]]) -> list[PlannedRun]:
        """The runs of these points, each once."""
        runs: dict[str, PlannedRun] = {}
        for point in points:
            values = [p for p in point if p not in self.fixed and not is_composed(p, self.plugins)]
            groups = tuple(part for part in point if part not in values)
            # A draft keeps the values set on it, so its points must all set the same keys.
            key = (groups, tuple(sorted(part.partition("=")[0] for part in values)))
            if key not in self.drafts:
                composed = draft(groups)
                _try(composed.with_values(values), point)
                self.drafts[key] = composed.settled(values)
            settings = self.drafts[key].set(values)
            run = PlannedRun(run_id(settings), point, settings, self.drafts[key].choices)
            runs.setdefault(run.run_id, run)
        return list(runs.values())


def differences(runs: Sequence[PlannedRun]) -> dict[str, str]:
    """By run_id, the part of a run's point that not all of these runs share."""
    common = set(runs[0].point).intersection(*(run.point for run in runs)) if len(runs) > 1 else ()
    return {r.run_id: " ".join(part for part in r.point if part not in common) for r in runs}


def _try(config: Config, point: Sequence[str]) -> None:
    """Build the model of a point; an error names the point."""
    try:
        build_model(config)
    except ConfigError as error:
        raise ConfigError(f"{' '.join(point)}: {error}") from error
