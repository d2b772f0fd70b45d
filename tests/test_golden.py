"""Numbers stay what they were: the golden curves of tests/assets."""

import json
from pathlib import Path

import pytest

from coefdyn.config.plugins import options
from tests.config.paper import VARIANTS
from tests.golden import LOSSES, losses, text

CURVES: dict[str, dict[str, list[float]]] = json.loads(LOSSES.read_text())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text(tmp_path_factory.mktemp("text"))


# A task is the same data for every preset: all of them on one, and two on all, need no more.
ON_ALL, FOR_ALL = ("softmax_attention", "gated_deltanet"), "fuzzy_recall"


def quick(preset: str, task: str) -> bool:
    return preset in ON_ALL or task == FOR_ALL


@pytest.mark.parametrize(
    ("preset", "task"),
    [
        pytest.param(preset, task, marks=[] if quick(preset, task) else [pytest.mark.slow])
        for preset, curves in CURVES.items()
        for task in curves
    ],
)
def test_losses_are_what_they_were(preset: str, task: str, data: Path) -> None:
    """A preset that fails here computes something else than it did: see tests/golden.py."""
    assert losses(preset, task, data) == pytest.approx(CURVES[preset][task], rel=1e-8)


def test_every_preset_and_task_has_a_curve() -> None:
    assert sorted(CURVES) == options("model")
    for curves in CURVES.values():
        assert sorted([*curves, *VARIANTS]) == options("task")
