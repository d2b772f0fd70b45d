"""Machines: a file of conf/machine sets keys of runs and keys of sweeps together.

Hydra composes its keys of runs, as those of any group. Its section `sweep` has keys of
conf/sweep.yaml, which is another configuration. They are read here.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from coefdyn.config.compose import FOR_SWEEPS, check_keys, compose, composed, quoted
from coefdyn.config.schema import Sweep, read
from coefdyn.errors import ConfigError


def sweep_keys(arguments: Sequence[str]) -> list[str]:
    """The keys of sweeps that machine=<name> sets, as overrides of conf/sweep.yaml."""
    choices = [a for a in arguments if a.startswith("machine=")]
    if not choices:
        return []
    choice = choices[-1]
    if "," in choice:
        raise ConfigError(f"{choice}: a sweep takes one machine; start one after the other")
    plugins = [a for a in arguments if a.startswith("plugins=")]
    values: Any = OmegaConf.to_container(composed([choice, *plugins], "train"))
    if "machine" in values:  # Hydra has put the keys of the file there
        raise ConfigError(f"{choice}: its file must begin with the line # @package _global_")
    section = {} if values.get(FOR_SWEEPS) is None else values[FOR_SWEEPS]
    try:
        if not isinstance(section, Mapping):
            raise ConfigError(f"{section} is no section with keys")
        check_keys(list(_leaves(section)), "sweep")
        overrides = [f"{key}={_literal(value)}" for key, value in section.items()]
        read(Sweep, compose(overrides, "sweep").values)
    except ConfigError as error:
        raise ConfigError(f"{choice}, in its section {FOR_SWEEPS}: {error}") from error
    return overrides


def _leaves(section: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every value of a section as an override, such as slurm.gpus=1."""
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={_literal(value)}"


def _literal(value: Any) -> str:
    """A value as Hydra reads it on the command line.

    A section stays one value, because only then do typed sections, as slurm={gpus:2}, win over it.
    """
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_literal(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_literal, value)) + "]"
    return quoted(value) if isinstance(value, str) else json.dumps(value)
