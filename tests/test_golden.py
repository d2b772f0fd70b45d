"""Numbers stay what they were: the golden curves of tests/assets."""

import json
from pathlib import Path

import pytest

from coefdyn.config.plugins import options
from tests.golden import LOSSES, losses, text

CURVES: dict[str, dict[str, list[float]]] = json.loads(LOSSES.read_text())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text(tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize("preset", CURVES)
def test_losses_are_what_they_were(preset: str, data: Path) -> None:
    """A preset that fails here computes something else than it did: see tests/golden.py."""
    for task, curve in CURVES[preset].items():
        assert losses(preset, task, data) == pytest.approx(curve, rel=1e-8), f"{preset} on {task}"


def test_every_preset_and_task_has_a_curve() -> None:
    assert sorted(CURVES) == options("model")
    for curves in CURVES.values():
        assert sorted(curves) == options("task")
