"""Plugins: the user's own packages. Their conf/ is searched, and their classes may be built.

The user names a plugin by plugins=[my_package] or COEFDYN_PLUGINS=my_package. A file or a record
that names a plugin is not enough to import it. A directory can be a plugin too: it has a conf/ and
no classes.
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
    """The plugins that COEFDYN_PLUGINS names, separated by commas."""
    return tuple(name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip())


@cache
def conf_directories(plugins: Plugins) -> tuple[Path, ...]:
    """The directories that are searched for YAML: ours, then each plugin's conf/."""
    return (CONF, *(place for name in plugins if (place := _location(name) / "conf").is_dir()))


def _location(plugin: str) -> Path:
    """The directory of a plugin; a package in the working directory becomes importable."""
    if Path(plugin).is_dir() and ("/" in plugin or not plugin.isidentifier()):
        return Path(plugin).resolve()
    if str(Path.cwd()) not in sys.path and (Path.cwd() / plugin).is_dir():
        sys.path.append(str(Path.cwd()))  # `python -m` adds it, a command does not
    try:
        spec = importlib.util.find_spec(plugin) if plugin.isidentifier() else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"plugins names {plugin}, which is neither a package that can be imported nor a "
            "directory; install it, or start from the directory that holds it"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def options(group: str, plugins: Plugins = ()) -> list[str]:
    """The choices of a group: the files of conf/<group>, ours and the plugins'."""
    places = conf_directories(plugins)
    return sorted({path.stem for place in places for path in (place / group).glob("*.yaml")})


def is_group(name: str, plugins: Plugins) -> bool:
    return any((place / name).is_dir() for place in conf_directories(plugins))


def groups(plugins: Plugins) -> list[str]:
    """Every group of choices, such as model/readout."""
    names = (
        str(path.relative_to(place))
        for place in conf_directories(plugins)
        for path in place.rglob("*")
        if path.is_dir()
    )
    return sorted({name for name in names if not name.startswith(("hydra", "experiment"))})


def check_targets(node: Any, kind: type, plugins: Iterable[str]) -> None:
    """Refuse a `_target_` that is no class of this kind, of coefdyn, torch, lightning or a plugin.

    This comes before any instantiation: some classes, in torch too, start a process when built.
    A nested `_target_` must be a class of coefdyn or of a plugin.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(f"a {kind.__name__} must be a section with a _target_, not {node}")
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
    """The class that `target` names, if it belongs to one of the packages `roots`.

    The package is checked before the import. The class's own module is checked after it, because
    a trusted module may have imported a class from elsewhere.
    """
    module_name, _, name = target.rpartition(".")
    root = target.partition(".")[0]
    refusal = (
        f"_target_={target} is refused: it must be a class of {', '.join(roots)}; for a package of "
        f"yours add plugins=[{root}]"
    )
    if root not in roots:
        raise ConfigError(refusal)
    if root not in (OURS, *LIBRARIES):
        _location(root)  # makes it importable
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"_target_={target} does not exist, or {module_name} cannot be imported: {why}"
        ) from error
    candidate = getattr(module, name, None)
    if candidate is None:
        raise ConfigError(f"_target_={target} does not exist: {module_name} has no {name}")
    if not inspect.isclass(candidate):
        raise ConfigError(f"_target_={target} is refused: it is no class")
    if candidate.__module__.partition(".")[0] not in roots:
        raise ConfigError(f"_target_={target} is refused: it is defined in {candidate.__module__}")
    return candidate
