"""Composed configurations: what Hydra makes of conf/ and the command line."""

import contextlib
import copy
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hydra
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from coefdyn.errors import ConfigError

CONF = Path(__file__).parents[3] / "conf"


@dataclass(frozen=True)
class Config:
    """A composed configuration, and the name chosen in each group, such as model/readout: exp."""

    values: DictConfig
    choices: Mapping[str, str]


@dataclass(frozen=True)
class Draft:
    """A composed configuration whose interpolations are still open."""

    values: DictConfig
    choices: Mapping[str, str]

    def with_values(self, overrides: Sequence[str]) -> Config:
        """A copy with plain values set, as command-line overrides would set them."""
        values = copy.deepcopy(self.values)
        with _one_sentence_errors():
            for override in overrides:
                OmegaConf.update(values, *_key_and_value(override), merge=True)
            OmegaConf.resolve(values)
        return Config(values, self.choices)

    def settings_of(self, overrides: Sequence[str]) -> dict[str, Any]:
        """What `with_values` gives, in plain Python values, without the cost of a copy.

        Only for overrides of the same keys in every call: they stay set.
        """
        with _one_sentence_errors():
            for override in overrides:
                OmegaConf.update(self.values, *_key_and_value(override), merge=True)
            return settings(Config(self.values, self.choices))

    def settled(self, overrides: Sequence[str]) -> "Draft":
        """A copy in which everything is resolved that these overrides cannot change.

        An interpolation that resolves while their keys are missing does not depend on them. One
        that calls a resolver stays open: `oc.select`, for one, makes something of what is missing.
        """
        values = copy.deepcopy(self.values)
        with _one_sentence_errors():
            for override in overrides:
                OmegaConf.update(values, _key_and_value(override)[0], MISSING, merge=True)
        _settle(values)
        return Draft(values, self.choices)


def _settle(node: Any) -> None:
    for key in list(node) if OmegaConf.is_dict(node) else range(len(node)):
        text = OmegaConf.to_container(node)[key]  # type: ignore[index]
        open_text = OmegaConf.is_interpolation(node, key) and str(text)
        if open_text and ":" in open_text:
            continue
        with contextlib.suppress(OmegaConfBaseException):
            value = node[key]
            if open_text and not OmegaConf.is_config(value):
                node[key] = value
            elif not open_text and OmegaConf.is_config(value):
                _settle(value)


def settings(config: Config) -> dict[str, Any]:
    """The configuration in plain Python values."""
    return OmegaConf.to_container(config.values, resolve=True)  # type: ignore[return-value]


@cache
def _key_and_value(override: str) -> tuple[str, Any]:
    parsed = OverridesParser.create().parse_override(override)
    return parsed.key_or_group, parsed.value()


def draft(overrides: Sequence[str] = (), name: str = "train") -> Draft:
    values = _composed(overrides, name)
    choices = _plain_choices(values.hydra)
    OmegaConf.set_struct(values, False)
    del values["hydra"]
    OmegaConf.set_struct(values, True)
    return Draft(values, choices)


def _plain_choices(hydra_node: Any) -> dict[str, str]:
    """The name chosen in each group of conf/, without Hydra's own groups."""
    choices = {str(k): str(v) for k, v in hydra_node.runtime.choices.items()}
    return {k: v for k, v in choices.items() if not k.startswith("hydra/")}


def compose(overrides: Sequence[str] = (), name: str = "train") -> Config:
    """Compose conf/<name>.yaml with command-line style overrides."""
    return draft(overrides, name).with_values([])


def raw(overrides: Sequence[str], name: str) -> dict[str, Any]:
    """The keys of conf/<name>.yaml, with what was left out still as ???."""
    return OmegaConf.to_container(draft(overrides, name).values)  # type: ignore[return-value]


def sweep_points(overrides: Sequence[str], name: str = "train") -> list[tuple[str, ...]]:
    """What `-m` would run: every point of the experiment's grid and of comma-separated values."""
    with _one_sentence_errors():
        parser = OverridesParser.create()
        given = parser.parse_overrides(list(overrides))
        fixed = [o.input_line for o in given if not o.is_sweep_override() and o.input_line]
        params = _composed(fixed, name).hydra.sweeper.params or {}
        declared = parser.parse_overrides([f"{key}={value}" for key, value in params.items()])
        (points,) = BasicSweeper.split_arguments([*declared, *given], None)
    return [tuple(point) for point in points]


def is_composed(override: str) -> bool:
    """Whether an override is Hydra's to apply: it chooses a file, such as model/readout=relu, adds
    or deletes a key, or sets a whole section, which is merged with what is there."""
    key, _, value = override.partition("=")
    return (CONF / key).is_dir() or key[0] in "+~" or value.startswith("{")


def _composed(overrides: Sequence[str], name: str) -> DictConfig:
    with _one_sentence_errors(), initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra_compose(name, list(overrides), return_hydra_config=True)


@contextlib.contextmanager
def _one_sentence_errors() -> Iterator[None]:
    try:
        yield
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(one_sentence(error)) from error


def multirun(arguments: Sequence[str], run: Callable[[Config], int], name: str = "train") -> int:
    """Hydra's own command line, for -m and its other flags: `run` on every configuration.

    A run that fails does not stop the others; the largest exit code is returned. In a job of its
    own (hydra/launcher=slurm) it fails that job.
    """
    codes, here = [0], os.getpid()

    @hydra.main(config_path=str(CONF), config_name=name, version_base="1.3")
    def each(values: DictConfig) -> None:
        try:
            choices = _plain_choices(HydraConfig.get())
            codes.append(run(Draft(values, choices).with_values([])))
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
    before, sys.argv = sys.argv, [sys.argv[0], *ordered]
    try:
        each()
    finally:
        sys.argv = before
    return max(codes)


def options(group: str) -> list[str]:
    """The choices of a group, from the files of conf/<group>."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def one_sentence(error: BaseException) -> str:
    """Hydra's message on one line, with the options it lists but not where it looked for them."""
    message, _, _ = str(error).partition("Config search path")
    head, found, listed = message.partition("Available options in ")
    if not found:
        return " ".join(message.split())
    group, *names = listed.split()
    return f"{' '.join(head.split())}; choose {group} {', '.join(names)}"
