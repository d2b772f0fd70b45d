"""Which classes a configuration may name."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from coefdyn.errors import ConfigError

TRUSTED = ("coefdyn", "torch", "lightning")


def check_targets(node: Any) -> None:
    """Every `_target_` must be a class defined in coefdyn, torch or lightning.

    The root is checked before importing, and the class's own module after: a trusted module may
    have imported something that is not.
    """
    if isinstance(node, Mapping):
        if "_target_" in node:
            _check_target(str(node["_target_"]))
        for value in node.values():
            check_targets(value)
    elif isinstance(node, list):
        for value in node:
            check_targets(value)


def _check_target(target: str) -> None:
    module_name, _, name = target.rpartition(".")
    refusal = f"_target_={target} is refused: it must be a class of {', '.join(TRUSTED)}"
    if target.partition(".")[0] not in TRUSTED:
        raise ConfigError(refusal)
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"_target_={target} does not exist") from error
    if not inspect.isclass(found) or found.__module__.partition(".")[0] not in TRUSTED:
        raise ConfigError(refusal)
