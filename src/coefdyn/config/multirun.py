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
    one_sentence_errors,
    plain_choices,
    verbatim,
)
from coefdyn.config.plugins import CONF
from coefdyn.errors import ConfigError


def sweep_points(overrides: Sequence[str], name: str = "train") -> list[tuple[str, ...]]:
    """Every point of the experiment's grid and of comma-separated values, as `-m` would run them,
    less what grid.<scale>.leave_out names. With grid.parts, the points of several such grids."""
    with one_sentence_errors():
        parser = OverridesParser.create()
        given = parser.parse_overrides([verbatim(o) for o in overrides])
    check_keys(overrides, name)
    with one_sentence_errors():
        fixed = [o.input_line for o in given if not o.is_sweep_override() and o.input_line]
        values = composed(fixed, name)
        if parts := OmegaConf.select(values, "grid.parts"):
            others = [given for given in overrides if not given.startswith("experiment=")]
            return [p for part in parts for p in sweep_points([*part.split(), *others], name)]
        params = values.hydra.sweeper.params or {}
        declared = parser.parse_overrides([f"{key}={value}" for key, value in params.items()])
        points = _points([*declared, *given])
        left_out = OmegaConf.select(values, f"grid.{values.scale.name}.leave_out") or []
        # As the sweeper writes values: 0.001, not 1e-3.
        written = [_points(parser.parse_overrides(line.split()))[0] for line in left_out]
        known = {part for point in _points(declared) for part in point}
    for part in (part for line in written for part in line):
        if part not in known:
            raise ConfigError(
                f"leave_out has {part}, which no point of the grid has; it takes values of "
                f"{', '.join(params)}"
            )
    return [point for point in points if not any(set(line) <= set(point) for line in written)]


def _points(overrides: list[Override]) -> list[tuple[str, ...]]:
    (points,) = BasicSweeper.split_arguments(overrides, None)
    return [tuple(point) for point in points]


def left_open(overrides: Sequence[str], name: str = "train") -> list[str]:
    """What the experiment's grid varies and the overrides do not set: without it they are no point
    of the grid."""
    params = composed(overrides, name).hydra.sweeper.params or {}
    given = {override.partition("=")[0].lstrip("+") for override in overrides}
    return [str(key) for key in params if key not in given]


def varied(points: Sequence[tuple[str, ...]]) -> list[str]:
    """The keys that tell points apart."""
    common = set(points[0]).intersection(*points) if points else set()
    return list(dict.fromkeys(o.partition("=")[0] for p in points for o in p if o not in common))


def multirun(arguments: Sequence[str], run: Callable[[Config], int], name: str = "train") -> int:
    """Hydra's own command line, for -m and its other flags: `run` on every configuration.

    A run that fails does not stop the others; the largest exit code is returned. In a job of its
    own (hydra/launcher=slurm) it fails that job.
    """
    check_keys(arguments, name)
    codes, here = [0], os.getpid()

    @hydra.main(config_path=str(CONF), config_name=name, version_base="1.3")
    def each(values: DictConfig) -> None:
        try:
            about = HydraConfig.get()
            config = Draft(values, plain_choices(about)).with_values([])
            codes.append(run(replace(config, overrides=tuple(about.overrides.task))))
            if codes[-1] > 128:  # asked to end by a signal, which is meant for all
                sys.exit(codes[-1])
        except ConfigError as error:
            print(f"error: {error}", file=sys.stderr)
            codes.append(1)
        except Exception:  # the record says nothing, so the user must hear of it here
            traceback.print_exc()
            codes.append(1)
        if codes[-1] and os.getpid() != here:
            raise RuntimeError("the run failed; why is said above")

    # Hydra's parser takes its flags before the overrides or after them, but not between.
    ordered = sorted(arguments, key=lambda argument: argument not in ("-m", "--multirun"))
    before, sys.argv = sys.argv, [sys.argv[0], *for_hydra(ordered, name)]
    try:
        each()
    finally:
        sys.argv = before
    return max(codes)
