"""The page in words: sections.yaml has what each principle says and what our runs can say of it."""

from dataclasses import dataclass
from pathlib import Path

import yaml  # type: ignore[import-untyped]


@dataclass(frozen=True)
class Section:
    key: str
    title: str
    statement: str
    knob: str
    paper: str
    here: str
    change: str
    stems: tuple[str, ...]


def _read() -> tuple[Section, ...]:
    found = yaml.safe_load(Path(__file__).with_name("sections.yaml").read_text())
    return tuple(Section(**{**entry, "stems": tuple(entry["stems"])}) for entry in found)


SECTIONS = _read()
