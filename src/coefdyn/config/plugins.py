"""Which classes a configuration may name."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from coefdyn.errors import ConfigError

TRUSTED = ("coefdyn", "torch", "lightning")


def check_targets(node: Any, kind: type) -> None:
    """A slot's `_target_` must be a class of this kind, defined in coefdyn, torch or lightning.

    All of this before it is instantiated: there are classes, in torch too, whose constructor starts
    a process. What is nested inside must be coefdyn's own.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(f"a {kind.__name__} is to be named by its _target_, not by {node}")
    target = str(node["_target_"])
    if not issubclass(_trusted_class(target, TRUSTED), kind):
        raise ConfigError(f"_target_={target} is not a {kind.__name__}")
    for value in node.values():
        _check_nested(value)


def _check_nested(node: Any) -> None:
    if isinstance(node, Mapping):
        if "_target_" in node:
            _trusted_class(str(node["_target_"]), TRUSTED[:1])
        for value in node.values():
            _check_nested(value)
    elif isinstance(node, list):
        for value in node:
            _check_nested(value)


def _trusted_class(target: str, roots: tuple[str, ...]) -> type:
    """The root is checked before importing, and the class's own module after: a trusted module may
    have imported something that is not."""
    module_name, _, name = target.rpartition(".")
    refusal = f"_target_={target} is refused: it must be a class of {', '.join(roots)}"
    if target.partition(".")[0] not in roots:
        raise ConfigError(refusal)
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"_target_={target} does not exist") from error
    if not inspect.isclass(found) or found.__module__.partition(".")[0] not in roots:
        raise ConfigError(refusal)
    return found
