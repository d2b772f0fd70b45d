"""Grids: every combination of values, as Hydra's -m would run them."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace

import hydra
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from coefdyn.config.compose import (
    Config,
    Draft,
    check_keys,
    composed,
    for_hydra,
    of_a_run,
    one_sentence_errors,
    plain_choices,
    verbatim,
)
from coefdyn.config.plugins import CONF
from coefdyn.errors import ConfigError


def sweep_points(overrides: Sequence[str], name: str = "train") -> list[tuple[str, ...]]:
    """Every point of the experiment's grid and of comma-separated values, as `-m` would run them.

    Points that grid.<scale>.leave_out names are not among them. With grid.parts, the points are
    those of several grids: a part is added to the grid of its file, or to that of the experiment
    that it names.
    """
    with one_sentence_errors():
        parser = OverridesParser.create()
        parsed = parser.parse_overrides([verbatim(o) for o in overrides])
    check_keys(overrides, name)
    with one_sentence_errors():
        fixed = [o.input_line for o in parsed if not o.is_sweep_override() and o.input_line]
        values = composed(fixed, name)
        parts = OmegaConf.select(values, "grid.parts")
        if not parts:
            return _grid(values, parsed)
        points, rest = [], [o for o in overrides if not o.startswith("experiment=")]
        for part in (line.split() for line in parts):
            if any(override.startswith("experiment=") for override in part):
                points += sweep_points([*part, *rest], name)
            else:
                points += _grid(values, [*parser.parse_overrides(part), *parsed])
        return points


def _grid(values: DictConfig, parsed: list[Override]) -> list[tuple[str, ...]]:
    """The points of the grid that these values declare, and of these overrides."""
    parser = OverridesParser.create()
    params = values.hydra.sweeper.params or {}
    declared = parser.parse_overrides([f"{key}={value}" for key, value in params.items()])
    points = _points([*declared, *parsed])
    leave_out = OmegaConf.select(values, f"grid.{values.scale.name}.leave_out") or []
    # Parsed, so that values are written as the sweeper's: 0.001, not 1e-3.
    excluded = [p for line in leave_out for p in _points(parser.parse_overrides(line.split()))]
    known = {part for point in _points(declared) for part in point}
    for part in (part for line in excluded for part in line):
        if part not in known:
            raise ConfigError(
                f"leave_out has {part}, which no point of the grid has; it takes values of "
                f"{', '.join(params)}"
            )
    return [point for point in points if not any(set(line) <= set(point) for line in excluded)]


def _points(overrides: list[Override]) -> list[tuple[str, ...]]:
    (points,) = BasicSweeper.split_arguments(overrides, None)
    return [tuple(point) for point in points]


def left_open(overrides: Sequence[str], name: str = "train") -> list[str]:
    """The keys that the experiment's grid varies and the overrides do not set.

    The overrides name one point of the grid only if there is no such key.
    """
    params = composed(overrides, name).hydra.sweeper.params or {}
    assigned = {override.partition("=")[0].lstrip("+") for override in overrides}
    return [str(key) for key in params if key not in assigned]


def varied(points: Sequence[tuple[str, ...]]) -> list[str]:
    """The keys in which these points differ."""
    common = set(points[0]).intersection(*points) if points else set()
    return list(dict.fromkeys(o.partition("=")[0] for p in points for o in p if o not in common))


def multirun(arguments: Sequence[str], run: Callable[[Config], int], name: str = "train") -> int:
    """Call `run` on every configuration of Hydra's own command line, with -m and its other flags.

    Returns the largest exit code. A run that fails does not stop the others. A run in its own job
    (hydra/launcher=slurm) fails that job.
    """
    check_keys(arguments, name)
    codes, here = [0], os.getpid()

    @hydra.main(config_path=str(CONF), config_name=name, version_base="1.3")
    def each(values: DictConfig) -> None:
        try:
            about = HydraConfig.get()
            config = Draft(of_a_run(values), plain_choices(about)).with_values([])
            codes.append(run(replace(config, overrides=tuple(about.overrides.task))))
            if codes[-1] > 128:  # a signal asked to end, which stops all runs
                sys.exit(codes[-1])
        except ConfigError as error:
            print(f"error: {error}", file=sys.stderr)
            codes.append(1)
        except Exception:  # there is no record that would tell the user
            traceback.print_exc()
            codes.append(1)
        if codes[-1] and os.getpid() != here:
            raise RuntimeError("the run failed; the reason is printed above")

    # Hydra's parser accepts flags before or after all overrides, not between two.
    ordered = sorted(arguments, key=lambda argument: argument not in ("-m", "--multirun"))
    before, sys.argv = sys.argv, [sys.argv[0], *for_hydra(ordered, name)]
    try:
        each()
    finally:
        sys.argv = before
    return max(codes)
