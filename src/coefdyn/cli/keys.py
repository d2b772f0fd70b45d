"""Shared by the commands: reading their own keys, checking choices, printing."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, TypeVar, get_type_hints

from rich.console import Console

from coefdyn.config.compose import compose
from coefdyn.config.schema import read
from coefdyn.errors import ConfigError

T = TypeVar("T")


def own_keys(
    kind: type[T], name: str, arguments: Sequence[str], defaults: Sequence[str] = ()
) -> tuple[T, list[str]]:
    """The keys of conf/<name>.yaml as their dataclass, and the other arguments.

    `defaults` are overrides in place of the file's values; the arguments win over them.
    """
    own = [a for a in arguments if _is_key(kind, a.partition("=")[0])]
    keys = read(kind, compose([*defaults, *own], name).values)
    return keys, [a for a in arguments if a not in own]


def _is_key(kind: Any, key: str) -> bool:
    """Whether a dataclass has the field `key`, or its section has it, as in slurm.time."""
    first, _, rest = key.partition(".")
    hints = get_type_hints(kind)
    nested = dataclasses.is_dataclass(hints.get(first)) and rest
    return _is_key(hints[first], rest) if nested else first in hints


def only_keys(kind: type[T], name: str, arguments: Sequence[str]) -> T:
    """The keys of conf/<name>.yaml, for a command that takes no other argument."""
    own = [a for a in arguments if not a.startswith("plugins=")]
    return read(kind, compose(own, name).values)


def choose(name: str, value: str, choices: Sequence[str]) -> str:
    """`value`, if it is one of the choices; else ConfigError."""
    if value not in choices:
        raise ConfigError(f"{name}={value} is not known; choose from {', '.join(choices)}")
    return value


def console() -> Console:
    """A console for results: as wide as the terminal, or 160 columns where there is none."""
    return Console(width=None if sys.stdout.isatty() else 160)
