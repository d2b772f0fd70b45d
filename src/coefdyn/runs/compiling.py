"""torch.compile for the blocks of a model. Whether it works and pays is tried, not guessed."""

import logging
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor

from coefdyn.mixer.backends.trial import FULL, HALF
from coefdyn.model.model import SequenceModel

log = logging.getLogger(__name__)

MODE = "reduce-overhead"  # CUDA graphs: the launches of a block become one
REPEATS = 5


def compile_blocks(model: SequenceModel, mode: str | None = None) -> None:
    for block in model.blocks:
        block.compile() if mode is None else block.compile(mode=mode)


def compile_if_faster(model: SequenceModel, loss: Callable[[], Tensor]) -> dict[str, Any]:
    """Compile the blocks, unless that fails, changes the loss or its gradient, or is no faster.

    `loss` is that of a training batch. Returns what was found, for the record.
    """
    device = _device_of(model)
    if device.type == "cpu":
        return {"used": False, "why": "compiled loops serve a CPU"}
    plain = _results(model, loss)
    seconds = _seconds(model, loss)
    try:
        compile_blocks(model, MODE)
        found = _results(model, loss)
        ratio = _seconds(model, loss) / seconds
    except Exception as error:  # a compiler may raise anything
        return _without(model, f"it fails here: {' '.join(str(error).split())[:200]}")
    allowed = HALF if torch.is_autocast_enabled(device.type) else FULL
    for name, expected in plain.items():
        if not abs(found[name] - expected) <= allowed * abs(expected):  # or it is NaN
            return _without(model, f"its {name} is {found[name]:.4g}, not {expected:.4g}")
    if ratio >= 1:
        return _without(model, f"a step takes {ratio:.2f} of the time without it")
    return {"used": True, "ratio": ratio}


def _device_of(model: SequenceModel) -> torch.device:
    return next(model.parameters()).device


def _without(model: SequenceModel, why: str) -> dict[str, Any]:
    for block in model.blocks:
        block._compiled_call_impl = None
    log.warning("trainer.devices.compile=auto does not compile: %s", why)
    return {"used": False, "why": why}


def _results(model: SequenceModel, loss: Callable[[], Tensor]) -> dict[str, float]:
    model.zero_grad()
    value = loss()
    value.backward()
    norms = [p.grad.double().norm() for p in model.parameters() if p.grad is not None]
    results = {"loss": value.item(), "gradient": torch.stack(norms).norm().item()}
    model.zero_grad()
    return results


def _seconds(model: SequenceModel, loss: Callable[[], Tensor]) -> float:
    """Median time of a pass forward and backward. The results are numbers on the host, so the
    device has finished."""
    times = []
    for _ in range(REPEATS + 1):
        started = time.perf_counter()
        _results(model, loss)
        times.append(time.perf_counter() - started)
    return median(times[1:])
