import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: pytest-xdist runs a process per core

import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coefdyn.mixer.forms import quadratic, sizes


def _fill(tensor: torch.Tensor) -> torch.Tensor:
    """Memory that nobody has written to yet holds anything: here, what no result survives."""
    if tensor.device.type != "meta":
        with torch.no_grad():
            if tensor.is_floating_point() or tensor.is_complex():
                tensor.fill_(math.nan)
            elif tensor.dtype != torch.bool:
                tensor.fill_(torch.iinfo(tensor.dtype).max)
    return tensor


def _filled(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(make)
    def made(*arguments: Any, **options: Any) -> torch.Tensor:
        return _fill(make(*arguments, **options))

    return made


@pytest.fixture(autouse=True)
def _uninitialized_memory_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", _filled(torch.empty))
    monkeypatch.setattr(torch, "empty_like", _filled(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", _filled(torch.Tensor.new_empty))
    monkeypatch.setattr(np, "empty_like", _filled_array(np.empty_like))


def _filled_array(make: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    @functools.wraps(make)
    def made(*arguments: Any, **options: Any) -> np.ndarray:
        array = make(*arguments, **options)
        if array.dtype.kind in "fiu":
            array.fill(np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).max)
        return array

    return made


@pytest.fixture(autouse=True)
def _one_thread_and_a_seed() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


SHORT = sizes.Sizes(
    linear=sizes.Steps(plain=4, per_channel=4, householder=3, factor=3),
    quadratic=sizes.Steps(plain=4, per_channel=4, householder=3, factor=3),
    rows=6,  # two chunks of three steps
    scores=64,
    direct=2,
)


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 4 and 3 steps, tiles of one and two chunks: short sequences have several, the last
    one not full."""
    monkeypatch.setattr(sizes, "CPU", SHORT)
    monkeypatch.setattr(quadratic, "KEPT_TILES", 1)


@pytest.fixture
def text(tmp_path: Path) -> dict[str, Any]:
    """What preparing a small text takes; it has not been prepared."""
    from tests.tasks.texts import small_text

    return small_text(tmp_path)


@pytest.fixture
def in_float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# Files that take minutes go first, so that no worker is left alone with one of them at the end.
LONG = ("tests/sweeps/test_pool.py", "tests/paper/test_claims.py", "tests/results/test_rounds.py",
        "tests/config/test_plugins.py", "tests/runs/test_population.py")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
