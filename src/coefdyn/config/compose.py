"""Composed configurations: what Hydra makes of conf/, of plugins and of the command line."""

import contextlib
import copy
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import hydra
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from coefdyn.config.identity import run_id
from coefdyn.config.plugins import CONF, Plugins, conf_directories, from_environment, is_group
from coefdyn.config.schema import Settings, read
from coefdyn.errors import ConfigError

VERBATIM = ("paths.results=", "paths.data=")  # taken as they stand, whatever Hydra makes of # or ,


@dataclass(frozen=True)
class Config:
    """A composed configuration in plain values, the name chosen in each group, such as
    model/readout: exp, and the overrides it was composed with."""

    values: dict[str, Any]
    choices: Mapping[str, str]
    overrides: tuple[str, ...] = ()

    @cached_property
    def settings(self) -> Settings:
        """The same, typed; ConfigError where a value is not what it must be."""
        return read(Settings, self.values)

    @cached_property
    def run_id(self) -> str:
        return run_id(self.values)

    def with_values(self, changes: Mapping[str, Any]) -> "Config":
        """A copy in which values have been replaced: {"optimizer.lr": 0.1}."""
        values = copy.deepcopy(self.values)
        for key, value in changes.items():
            *parents, last = key.split(".")
            node = values
            for parent in parents:
                node = node[parent]
            node[last] = value
        return Config(values, self.choices)


@dataclass(frozen=True)
class Draft:
    """A composed configuration whose interpolations are still open."""

    values: DictConfig
    choices: Mapping[str, str]

    def with_values(self, overrides: Sequence[str]) -> Config:
        """With plain values set, as command-line overrides would set them."""
        return Config(Draft(copy.deepcopy(self.values), self.choices).set(overrides), self.choices)

    def set(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The values with overrides, which stay set: every call must override the same keys."""
        with _one_sentence_errors():
            for override in overrides:
                OmegaConf.update(self.values, *_key_and_value(_verbatim(override)), merge=True)
            return OmegaConf.to_container(self.values, resolve=True)  # type: ignore[return-value]

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


@cache
def _key_and_value(override: str) -> tuple[str, Any]:
    parsed = OverridesParser.create().parse_override(override)
    return parsed.key_or_group, parsed.value()


def plugins_of(overrides: Sequence[str]) -> Plugins:
    """Those that plugins=[...] names, and those of the environment."""
    with _one_sentence_errors():
        given = [_key_and_value(o)[1] for o in overrides if o.startswith("plugins=")]
    listed = given[-1] if given else []
    if not isinstance(listed, list):
        raise ConfigError(f"plugins={listed} must be a list, such as plugins=[{listed}]")
    return tuple(dict.fromkeys([*map(str, listed), *from_environment()]))


def _for_hydra(arguments: Sequence[str], name: str) -> list[str]:
    """With paths as they were typed, and for runs the plugins on the search path."""
    plugins = plugins_of(arguments) if name == "train" else ()
    ready = [_verbatim(a) for a in arguments if not a.startswith("plugins=")]
    if plugins:
        places = ",".join(_quoted(f"file://{p}") for p in conf_directories(plugins)[1:])
        names = ",".join(map(_quoted, plugins))
        first = next((i for i, a in enumerate(ready) if "=" in a), len(ready))
        ready[first:first] = [f"hydra.searchpath=[{places}]", f"++plugins=[{names}]"]
    return ready


def _verbatim(override: str) -> str:
    key, _, value = override.partition("=")
    plain = override.startswith(VERBATIM) and "${" not in value and value[:1] not in ("'", '"')
    return f"{key}={_quoted(value)}" if plain and value not in ("", "null") else override


def _quoted(text: str) -> str:
    """A string of Hydra's grammar, in which a backslash escapes a quote, and itself before one."""
    return "'" + text.replace("\\'", "\\\\'").replace("'", "\\'") + "'"


def draft(overrides: Sequence[str] = (), name: str = "train") -> Draft:
    """Hydra takes a tenth of a second: what has been composed before, from files that have not
    changed since, is copied."""
    places = conf_directories(plugins_of(overrides))
    files = (path for place in places for path in place.rglob("*.yaml"))
    made = _draft(tuple(overrides), name, tuple((p, p.stat().st_mtime_ns) for p in files))
    return Draft(copy.deepcopy(made.values), made.choices)


@lru_cache(maxsize=64)
def _draft(overrides: tuple[str, ...], name: str, _: tuple[tuple[Path, int], ...]) -> Draft:
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
    plugins = plugins_of(overrides)
    values = [o for o in overrides if not is_composed(o, plugins)]
    try:
        made = draft([o for o in overrides if o not in values], name)
        return Config(made.set(values), made.choices, tuple(overrides))
    except ConfigError:  # which Hydra words better
        made = draft(overrides, name)
        return Config(made.set([]), made.choices, tuple(overrides))


def raw(overrides: Sequence[str], name: str) -> dict[str, Any]:
    """The keys of conf/<name>.yaml, with what was left out still as ???."""
    return OmegaConf.to_container(draft(overrides, name).values)  # type: ignore[return-value]


def as_yaml(values: Mapping[str, Any]) -> str:
    return OmegaConf.to_yaml(OmegaConf.create(dict(values)))


def sweep_points(overrides: Sequence[str], name: str = "train") -> list[tuple[str, ...]]:
    """Every point of the experiment's grid and of comma-separated values, as `-m` would run them,
    less what grid.<scale>.leave_out names. With grid.parts, the points of several such grids."""
    with _one_sentence_errors():
        parser = OverridesParser.create()
        given = parser.parse_overrides([_verbatim(o) for o in overrides])
        fixed = [o.input_line for o in given if not o.is_sweep_override() and o.input_line]
        composed = _composed(fixed, name)
        if parts := OmegaConf.select(composed, "grid.parts"):
            others = [given for given in overrides if not given.startswith("experiment=")]
            return [p for part in parts for p in sweep_points([*part.split(), *others], name)]
        params = composed.hydra.sweeper.params or {}
        declared = parser.parse_overrides([f"{key}={value}" for key, value in params.items()])
        points = _points([*declared, *given])
        left_out = OmegaConf.select(composed, f"grid.{composed.scale.name}.leave_out") or []
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


def is_composed(override: str, plugins: Plugins) -> bool:
    """Whether an override is Hydra's to apply: it chooses a file, such as model/readout=relu, adds
    or deletes a key, or sets a whole section, which is merged with what is there."""
    key, _, value = override.partition("=")
    of_hydra = key[:1] in "+~" or key == "plugins" or key.startswith("hydra") or "@" in key
    return of_hydra or value.startswith("{") or is_group(key, plugins)


def _composed(overrides: Sequence[str], name: str) -> DictConfig:
    with _one_sentence_errors(), initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra_compose(name, _for_hydra(overrides, name), return_hydra_config=True)


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
            about = HydraConfig.get()
            composed = Draft(values, _plain_choices(about)).with_values([])
            codes.append(run(replace(composed, overrides=tuple(about.overrides.task))))
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
    before, sys.argv = sys.argv, [sys.argv[0], *_for_hydra(ordered, name)]
    try:
        each()
    finally:
        sys.argv = before
    return max(codes)


def one_sentence(error: BaseException) -> str:
    """Hydra's message on one line, with the options it lists but not where it looked for them."""
    message, _, _ = str(error).partition("Config search path")
    head, found, listed = message.partition("Available options in ")
    if not found:
        return " ".join(message.split())
    group, *names = listed.split()
    return f"{' '.join(head.split())}; choose {group} {', '.join(names)}"
