"""compile=auto compiles only what works, computes the same and is faster."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from coefdyn.config.build import build_model
from coefdyn.config.compose import compose
from coefdyn.runs import compiling


class Device:
    type = "cuda"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[nn.Module, dict[str, Any]]]:
    """A model on what seems a GPU, its blocks compiled into what a test wants."""
    monkeypatch.setattr(compiling, "REPEATS", 2)

    def tried(change: Callable[[Tensor], Tensor], slept: float) -> tuple[nn.Module, dict[str, Any]]:
        torch.manual_seed(0)
        model = build_model(compose(["model=gla", "scale=smoke"]))
        tokens = torch.zeros(2, 7, dtype=torch.int64)

        def compile_it(block: nn.Module, mode: str) -> None:
            assert mode == "reduce-overhead"
            block._compiled_call_impl = lambda x: change(block.forward(x))

        monkeypatch.setattr(nn.Module, "compile", compile_it)

        def loss() -> Tensor:
            plain = all(block._compiled_call_impl is None for block in model.blocks)
            time.sleep(slept if plain else 0.02)
            return model(tokens).square().mean()

        on_gpu = monkeypatch.context()
        with on_gpu as patched:
            patched.setattr(torch.amp, "is_autocast_available", lambda _: False)
            patched.setattr(compiling, "_device_of", lambda _: Device())
            return model, compiling.compile_if_faster(model, loss)

    return tried


def test_what_is_the_same_and_faster_stays(compiled: Callable[..., Any]) -> None:
    model, found = compiled(lambda x: x, slept=0.1)
    assert found["used"]
    assert found["ratio"] < 1
    assert all(block._compiled_call_impl is not None for block in model.blocks)


@pytest.mark.parametrize(
    ("change", "slept", "why"),
    [
        (lambda x: 1.1 * x, 0.1, "its loss is "),
        (lambda x: x * torch.nan, 0.1, "its loss is nan"),
        (lambda x: x.detach() + 0 * x, 0.1, "its gradient is "),
        (lambda _: 1 / 0, 0.1, "it fails here: division by zero"),
        (lambda x: x, 0.0, "a step takes "),
    ],
)
def test_what_is_not_is_undone_with_the_reason(
    change: Callable[[Tensor], Tensor],
    slept: float,
    why: str,
    compiled: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, found = compiled(change, slept)
    assert not found["used"]
    assert found["why"].startswith(why)
    assert f"compile=auto does not compile: {why}" in caplog.text
    assert all(block._compiled_call_impl is None for block in model.blocks)


def test_a_cpu_has_its_own_loops() -> None:
    model = build_model(compose(["model=gla", "scale=smoke"]))
    assert not compiling.compile_if_faster(model, lambda: 1 / 0)["used"]
