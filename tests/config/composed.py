"""Composed configurations that several tests look at."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from coefdyn.config.compose import Config, compose

# Overrides -> run_id, as the first version that wrote it did: every preset at scale=smoke, every
# generated task at scale=paper, and others.
IDS: dict[str, str] = json.loads((Path(__file__).parents[1] / "assets" / "ids.json").read_text())


@cache
def composed(text: str) -> Config:
    """Composing takes a sixth of a second, so it is done once."""
    return compose(text.split())


def plain(path: Path) -> Any:
    """A file as it stands, interpolations as text."""
    return OmegaConf.to_container(OmegaConf.load(path))
