"""The words of the page: sections.yaml says what each principle states and what our runs show."""

from dataclasses import dataclass
from pathlib import Path

import yaml  # type: ignore[import-untyped]


@dataclass(frozen=True)
class Section:
    """One section of the page: its texts, as HTML, and the stems of its experiments."""

    key: str
    title: str
    statement: str
    knob: str
    paper: str
    here: str
    change: str
    stems: tuple[str, ...]


def _read() -> tuple[Section, ...]:
    entries = yaml.safe_load(Path(__file__).with_name("sections.yaml").read_text())
    return tuple(Section(**{**entry, "stems": tuple(entry["stems"])}) for entry in entries)


SECTIONS = _read()
