"""Configurations, composed by Hydra from conf/, plugins and command-line overrides."""

import contextlib
import copy
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from coefdyn.config.identity import OF_A_LAYER, run_id
from coefdyn.config.plugins import (
    CONF,
    Plugins,
    conf_directories,
    from_environment,
    groups,
    is_group,
    options,
)
from coefdyn.config.schema import Settings, read
from coefdyn.config.suggest import UnknownKeyError, keys_of
from coefdyn.errors import ConfigError

SHARED = ("vocab_size", "max_length", "d_model", "n_state", "d_value", "n_heads", "n_layers",
          "d_mlp", "factor", "base")  # fmt: skip
FOR_SWEEPS = "sweep"  # the section of a file of conf/machine that has keys of `coefdyn sweep`
VERBATIM = ("paths.results=", "paths.data=")  # taken literally: a path may contain # or ,


@dataclass(frozen=True)
class Config:
    """A composed configuration.

    `values` are plain Python values. `choices` has the name chosen in each group, such as
    model/readout: exp. `overrides` are those it was composed with.
    """

    values: dict[str, Any]
    choices: Mapping[str, str]
    overrides: tuple[str, ...] = ()

    @cached_property
    def settings(self) -> Settings:
        """The values as typed dataclasses; ConfigError if one is of the wrong type."""
        return read(Settings, self.values)

    @cached_property
    def run_id(self) -> str:
        return run_id(self.values)

    def with_values(self, changes: Mapping[str, Any]) -> "Config":
        """A copy in which values are replaced, such as {"optimizer.lr": 0.1}."""
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
    """A composed configuration whose interpolations, such as ${seed}, are not resolved yet."""

    values: DictConfig
    choices: Mapping[str, str]

    def with_values(self, overrides: Sequence[str]) -> Config:
        """The configuration with plain values set, as command-line overrides would set them."""
        return Config(Draft(copy.deepcopy(self.values), self.choices).set(overrides), self.choices)

    def set(self, overrides: Sequence[str]) -> dict[str, Any]:
        """All values with these overrides. They stay set: each call must override the same keys."""
        with one_sentence_errors():
            for override in overrides:
                OmegaConf.update(self.values, *_key_and_value(verbatim(override)), merge=True)
            values: Any = OmegaConf.to_container(self.values, resolve=True)
        return _with_layers(values)

    def settled(self, overrides: Sequence[str]) -> "Draft":
        """A copy in which everything is resolved that these overrides cannot change.

        An interpolation that resolves while their keys are missing does not depend on them. One
        that calls a resolver stays open, because some resolvers, as `oc.select`, accept a missing
        key.
        """
        values = copy.deepcopy(self.values)
        with one_sentence_errors():
            for override in overrides:
                OmegaConf.update(values, _key_and_value(override)[0], MISSING, merge=True)
        _settle(values)
        return Draft(values, self.choices)


def _with_layers(values: dict[str, Any]) -> dict[str, Any]:
    """The values, and under model.layers the slots of each preset that model.pattern names."""
    model = values.get("model") or {}
    names = model.get("pattern")
    if names is None:
        return values
    if names == []:
        raise ConfigError("model.pattern=[] must name at least one preset, or be null")
    plugins = tuple(values["plugins"])
    known = options("model", plugins)
    with_plugins = [f"plugins=[{','.join(plugins)}]"] if plugins else []
    layers: dict[str, Any] = {}
    for name in dict.fromkeys(names if isinstance(names, list) else [names]):
        if name not in known:
            nearest = difflib.get_close_matches(str(name), known, 1, cutoff=0.0)[0]
            raise ConfigError(
                f"model.pattern={names} must be a list of presets, and {name} is none; the nearest "
                f"is {nearest}, as in model.pattern=[{nearest}]"
            )
        preset = draft([f"model={name}", *with_plugins]).values
        for key in SHARED:  # by all layers
            OmegaConf.update(preset, f"model.{key}", model[key])
        section: Any = OmegaConf.to_container(preset.model, resolve=True)
        layers[name] = {key: section[key] for key in OF_A_LAYER}
    return values | {"model": model | {"layers": layers}}


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
    """The plugins that plugins=[...] names, then those of the environment."""
    with one_sentence_errors():
        values = [_key_and_value(o)[1] for o in overrides if o.startswith("plugins=")]
    names = values[-1] if values else []
    if not isinstance(names, list):
        raise ConfigError(f"plugins={names} must be a list, such as plugins=[{names}]")
    return tuple(dict.fromkeys([*map(str, names), *from_environment()]))


def for_hydra(arguments: Sequence[str], name: str) -> list[str]:
    """Arguments for Hydra: paths are quoted, and runs find the conf/ of their plugins."""
    plugins = plugins_of(arguments) if name == "train" else ()
    ready = [verbatim(a) for a in arguments if not a.startswith("plugins=")]
    if plugins:
        places = ",".join(quoted(f"file://{p}") for p in conf_directories(plugins)[1:])
        names = ",".join(map(quoted, plugins))
        first = next((i for i, a in enumerate(ready) if "=" in a), len(ready))
        ready[first:first] = [f"hydra.searchpath=[{places}]", f"++plugins=[{names}]"]
    return ready


def verbatim(override: str) -> str:
    """The override; the path in one of `VERBATIM` is quoted, so that Hydra takes it literally."""
    key, _, value = override.partition("=")
    plain = override.startswith(VERBATIM) and "${" not in value and value[:1] not in ("'", '"')
    return f"{key}={quoted(value)}" if plain and value not in ("", "null") else override


def quoted(text: str) -> str:
    """A quoted string for Hydra, where a backslash escapes a quote, and itself before a quote."""
    return "'" + text.replace("\\'", "\\\\'").replace("'", "\\'") + "'"


def draft(overrides: Sequence[str] = (), name: str = "train") -> Draft:
    """Compose conf/<name>.yaml with overrides.

    Hydra takes a tenth of a second. So an earlier result is copied while its files are unchanged.
    """
    places = conf_directories(plugins_of(overrides))
    files = (path for place in places for path in place.rglob("*.yaml"))
    cached = _draft(tuple(overrides), name, tuple((p, p.stat().st_mtime_ns) for p in files))
    return Draft(copy.deepcopy(cached.values), cached.choices)


@lru_cache(maxsize=256)
def _draft(overrides: tuple[str, ...], name: str, _: tuple[tuple[Path, int], ...]) -> Draft:
    values = composed(overrides, name)
    choices = plain_choices(values.hydra)
    return Draft(of_a_run(values), choices)


def of_a_run(values: DictConfig) -> DictConfig:
    """The values without the sections that are for Hydra and, in conf/machine, for sweeps."""
    with open_dict(values):
        for section in ("hydra", FOR_SWEEPS):
            values.pop(section, None)
    return values


def plain_choices(hydra_node: Any) -> dict[str, str]:
    """The name chosen in each group of conf/, without Hydra's own groups."""
    choices = {str(k): str(v) for k, v in hydra_node.runtime.choices.items()}
    return {k: v for k, v in choices.items() if not k.startswith("hydra/")}


def compose(overrides: Sequence[str] = (), name: str = "train") -> Config:
    """Compose conf/<name>.yaml with command-line style overrides."""
    plugins = plugins_of(overrides)
    values = [o for o in overrides if not is_composed(o, plugins)]
    try:
        base = draft([o for o in overrides if o not in values], name)
        return Config(base.set(values), base.choices, tuple(overrides))
    except ConfigError:  # Hydra words it better
        check_keys(overrides, name)
        base = draft(overrides, name)
        return Config(base.set([]), base.choices, tuple(overrides))


def check_keys(overrides: Sequence[str], name: str = "train") -> None:
    """Refuse an unknown key, and suggest the nearest known one.

    Values may be lists of a sweep; only the first of a list is composed.
    """
    plugins = plugins_of(overrides) if name == "train" else ()
    assignments = [o for o in overrides if "=" in o and o[:1] not in "-+~"]
    choices = [o for o in assignments if is_composed(o, plugins)]
    try:
        values = draft([o.partition(",")[0] for o in choices], name).values
    except ConfigError:  # a choice that does not exist: composing reports it
        return
    plain: Any = OmegaConf.to_container(values)
    known = [*keys_of(plain), *(groups(plugins) if name == "train" else ())]
    for override in assignments:
        if override not in choices and override.partition("=")[0] not in known:
            raise UnknownKeyError(override, known)


def raw(overrides: Sequence[str], name: str) -> dict[str, Any]:
    """The values of conf/<name>.yaml; one that must still be given is ???."""
    return OmegaConf.to_container(draft(overrides, name).values)  # type: ignore[return-value]


def as_yaml(values: Mapping[str, Any]) -> str:
    return OmegaConf.to_yaml(OmegaConf.create(dict(values)))


def is_composed(override: str, plugins: Plugins) -> bool:
    """Whether Hydra must apply an override.

    It must if the override chooses a file, such as model/readout=relu, adds or deletes a key, or
    sets a whole section, which Hydra merges with the present one.
    """
    key, _, value = override.partition("=")
    of_hydra = key[:1] in "+~" or key == "plugins" or key.startswith("hydra") or "@" in key
    return of_hydra or value.startswith("{") or is_group(key, plugins)


def composed(overrides: Sequence[str], name: str) -> DictConfig:
    with one_sentence_errors(), initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra_compose(name, for_hydra(overrides, name), return_hydra_config=True)


@contextlib.contextmanager
def one_sentence_errors() -> Iterator[None]:
    """Turn errors of Hydra and OmegaConf into a ConfigError of one sentence."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(one_sentence(error)) from error


def one_sentence(error: BaseException) -> str:
    """Hydra's message on one line, with the options that it lists, without its search path."""
    message, _, _ = str(error).partition("Config search path")
    if sizes := re.match(r"Interpolation key '(scale\.(\w+)\.[\w.]+)' not found", message):
        key, task = sizes.groups()
        return (
            f"this scale has no sizes for the task {task} ({key}); add them under {task}: to a "
            "file of conf/scale of your plugin, or set each value on the command line"
        )
    head, separator, options = message.partition("Available options in ")
    if not separator:
        return " ".join(message.split())
    group, *names = options.split()
    return f"{' '.join(head.split())}; choose {group} {', '.join(names)}"
