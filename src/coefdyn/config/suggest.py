"""Suggestions for a key that the configuration does not have."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from coefdyn.errors import ConfigError

SHOWN = 3  # suggestions, at most
SIZES = ("scale.", "grid.", "population.")  # sections that repeat keys of others


class UnknownKeyError(ConfigError):
    """The key of `override` is not in the configuration; `known` are the keys that are."""

    def __init__(self, override: str, known: Iterable[str]) -> None:
        self.override, self.known = override, tuple(known)
        super().__init__(self._sentence())

    def also_known(self, more: Iterable[str]) -> "UnknownKeyError":
        """The same error, for a command that also has keys of its own."""
        return UnknownKeyError(self.override, (*self.known, *more))

    def _sentence(self) -> str:
        key, _, value = self.override.partition("=")
        near = nearest(key, self.known)
        if near:
            meant = " or ".join(f"{name}={value}" for name in near)
            return f"{key} is no key of the configuration; did you mean {meant}?"
        return (
            f"{key} is no key of the configuration; coefdyn <command> --help lists them, and "
            f"+{key}={value} adds one to a section that takes any"
        )


def nearest(key: str, known: Iterable[str]) -> list[str]:
    """Known keys with the same last word, in any section; else the keys spelt most alike."""
    names = [name for name in dict.fromkeys(known) if not name.startswith(SIZES)]
    # a file is chosen by model/readout, not by model.readout
    names = [name for name in names if "." not in name or name.replace(".", "/") not in names]
    same = [name for name in names if _last(name) == _last(key)]
    if same:
        least = min(map(_depth, same))
        return [name for name in same if _depth(name) == least][:SHOWN]
    alike = difflib.get_close_matches(key, names, SHOWN, cutoff=0.8)
    if alike:
        return alike[:1]
    words = difflib.get_close_matches(_last(key), [_last(name) for name in names], 1, cutoff=0.75)
    return [name for name in names if words and _last(name) == words[0]][:SHOWN]


def keys_of(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every key and section of a configuration, with dots, as trainer.devices.threads."""
    for name, value in values.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from keys_of(value, f"{prefix}{name}.")


def _depth(key: str) -> int:
    return key.replace("/", ".").count(".")


def _last(key: str) -> str:
    return key.replace("/", ".").rpartition(".")[2]
