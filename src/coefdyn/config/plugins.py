"""Plugins: packages of the user's own, whose YAML is found and whose classes may be built.

A plugin is named by whoever starts something: plugins=[my_package], or
COEFDYN_PLUGINS=my_package. It is never imported because a file or a record names it. A directory
can be a plugin too: it has a conf/ and no classes.
"""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from coefdyn.errors import ConfigError

VARIABLE = "COEFDYN_PLUGINS"
OURS, LIBRARIES = "coefdyn", ("torch", "lightning")
CONF = Path(__file__).parents[1] / "conf"

Plugins = tuple[str, ...]


def from_environment() -> Plugins:
    return tuple(name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip())


@cache
def conf_directories(plugins: Plugins) -> tuple[Path, ...]:
    """Where YAML is looked for: ours, then each plugin's conf/."""
    return (CONF, *(place for name in plugins if (place := _location(name) / "conf").is_dir()))


def _location(plugin: str) -> Path:
    if Path(plugin).is_dir() and ("/" in plugin or not plugin.isidentifier()):
        return Path(plugin).resolve()
    if str(Path.cwd()) not in sys.path and (Path.cwd() / plugin).is_dir():
        sys.path.append(str(Path.cwd()))  # as `python -m` would: a command lacks it
    try:
        found = importlib.util.find_spec(plugin) if plugin.isidentifier() else None
    except (ImportError, ValueError):
        found = None
    if found is None or not found.submodule_search_locations:
        raise ConfigError(
            f"plugins names {plugin}, which is neither a package that can be imported nor a "
            "directory; install it, or start from the directory that holds it"
        )
    return Path(next(iter(found.submodule_search_locations)))


def options(group: str, plugins: Plugins = ()) -> list[str]:
    """The choices of a group: the files of conf/<group>, ours and the plugins'."""
    places = conf_directories(plugins)
    return sorted({path.stem for place in places for path in (place / group).glob("*.yaml")})


def is_group(name: str, plugins: Plugins) -> bool:
    return any((place / name).is_dir() for place in conf_directories(plugins))


def groups(plugins: Plugins) -> list[str]:
    """Every group of choices, such as model/readout."""
    found = (
        str(path.relative_to(place))
        for place in conf_directories(plugins)
        for path in place.rglob("*")
        if path.is_dir()
    )
    return sorted({name for name in found if not name.startswith(("hydra", "experiment"))})


def check_targets(node: Any, kind: type, plugins: Iterable[str]) -> None:
    """A slot's `_target_` must be a class of this kind, of coefdyn, torch, lightning or a plugin.

    All of this before it is instantiated: there are classes, in torch too, whose constructor starts
    a process. What is nested inside must be coefdyn's own, or a plugin's.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(f"a {kind.__name__} is to be named by its _target_, not by {node}")
    packages, target = _packages(plugins), str(node["_target_"])
    if not issubclass(trusted_class(target, (OURS, *LIBRARIES, *packages)), kind):
        raise ConfigError(f"_target_={target} is not a {kind.__name__}")
    for value in node.values():
        _check_nested(value, (OURS, *packages))


def _packages(plugins: Iterable[str]) -> Plugins:
    return tuple(name for name in plugins if name.isidentifier())


def _check_nested(node: Any, roots: Plugins) -> None:
    if isinstance(node, Mapping):
        if "_target_" in node:
            trusted_class(str(node["_target_"]), roots)
        for value in node.values():
            _check_nested(value, roots)
    elif isinstance(node, list):
        for value in node:
            _check_nested(value, roots)


@cache
def trusted_class(target: str, roots: Plugins) -> type:
    """The root is checked before importing, and the class's own module after: a trusted module may
    have imported something that is not."""
    module_name, _, name = target.rpartition(".")
    root = target.partition(".")[0]
    refusal = (
        f"_target_={target} is refused: it must be a class of {', '.join(roots)}; for a package of "
        f"yours add plugins=[{root}]"
    )
    if root not in roots:
        raise ConfigError(refusal)
    if root not in (OURS, *LIBRARIES):
        _location(root)  # which may have to be put on the path
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever somebody's module may raise
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"_target_={target} does not exist, or {module_name} cannot be imported: {why}"
        ) from error
    found = getattr(module, name, None)
    if found is None:
        raise ConfigError(f"_target_={target} does not exist: {module_name} has no {name}")
    if not inspect.isclass(found):
        raise ConfigError(f"_target_={target} is refused: it is no class")
    if found.__module__.partition(".")[0] not in roots:
        raise ConfigError(f"_target_={target} is refused: it is defined in {found.__module__}")
    return found
