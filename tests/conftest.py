import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: pytest-xdist runs a process per core

from pathlib import Path
from typing import Any

import pytest
import torch

from coefdyn.mixer.forms import decayed_dot, linear, noncommuting, quadratic, tiles


@pytest.fixture(autouse=True)
def _one_thread_and_a_seed() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 4 and 3 steps, so that short sequences have several and do not fill the last."""
    monkeypatch.setattr(tiles, "ROWS", 4)
    monkeypatch.setattr(tiles, "ROWS_HOUSEHOLDER", 3)
    monkeypatch.setattr(quadratic, "KEPT_CHUNKS", 2)
    monkeypatch.setattr(noncommuting, "ROWS", 4)
    monkeypatch.setattr(noncommuting, "TILE_ELEMENTS", 64)
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", {"cpu": 64})
    monkeypatch.setattr(linear, "CHUNK", 4)
    monkeypatch.setattr(linear, "CHUNK_PER_CHANNEL", 4)
    monkeypatch.setattr(linear, "CHUNK_HOUSEHOLDER", 3)
    monkeypatch.setattr(decayed_dot, "DIRECT", 2)


@pytest.fixture
def text(tmp_path: Path) -> dict[str, Any]:
    """What preparing a small text takes; it has not been prepared."""
    from tests.tasks.texts import small_text

    return small_text(tmp_path)
