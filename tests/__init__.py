"""Tests of coefdyn."""

from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "scripts"
