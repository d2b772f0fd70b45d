"""What a GPU would be given: on the meta device everything runs and nothing is computed."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from coefdyn.benchmarks.launches import MEMBERS, META, MOST, MOST_OF_MEMBERS, launches
from coefdyn.config.build import build_model
from coefdyn.config.compose import compose
from coefdyn.mixer.forms import sizes
from coefdyn.model.model import mixers_of
from coefdyn.paper.looks import PRESETS
from coefdyn.runs.population.stacked import Stack
from coefdyn.testing import check_forms
from tests import designs

# Operators that make the host wait for the device.
WAITING = {
    "_local_scalar_dense",
    "item",
    "is_nonzero",
    "nonzero",
    "equal",
    "unique",
    "masked_select",
}


class OnlyMeta(TorchDispatchMode):
    """Fails on an operator that waits for the device, or that takes a tensor of the CPU."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = str(func).removeprefix("aten.").partition(".")[0]
        assert name not in WAITING, f"{func} waits for the device"
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor) and leaf.ndim:
                assert leaf.device == META, f"{func} takes a tensor of the {leaf.device.type}"
        return func(*args, **(kwargs or {}))


def test_a_stray_tensor_and_a_wait_are_noticed() -> None:
    with OnlyMeta(), pytest.raises(AssertionError, match="takes a tensor of the cpu"):
        torch.ones(2) + 1
    with OnlyMeta(), pytest.raises(AssertionError, match="waits for the device"):
        torch.zeros(2, device=META).sum().item()


@pytest.mark.long
@pytest.mark.parametrize("evolution", sorted({choice[0] for choice in designs.covering()}))
def test_covering_set_runs_without_the_host(evolution: str) -> None:
    for choice in designs.covering():
        if choice[0] != evolution:
            continue
        mixer = designs.mixer(choice, torch.float32).to(META)
        mixer.may_use_adapters = False
        for form in designs.forms_of(mixer):
            if form not in ("quadratic", "linear"):
                continue
            mixer.backend = form
            x = torch.zeros(2, 40, mixer.d_model, device=META, requires_grad=True)
            with OnlyMeta():
                mixer(x).sum().backward()
            gradients = [p.grad for p in mixer.parameters()]
            assert any(grad is not None for grad in gradients)
            assert x.grad is not None


@pytest.mark.parametrize("preset", list(PRESETS))
def test_models_and_populations_run_without_the_host(preset: str) -> None:
    config = compose([f"model={preset}", "task=noisy_recall", "scale=smoke"])
    tokens = torch.zeros(4, 15, dtype=torch.int64, device=META)
    model = build_model(config).to(META)
    for mixer in mixers_of(model):
        mixer.may_use_adapters = False
    with OnlyMeta():
        model(tokens).sum().backward()
    models = [build_model(config) for _ in range(3)]
    stack = Stack(models, [0, 0, 1], [{"lr": 1e-3, "weight_decay": 0.0}] * 3, META)
    batch = {0: (tokens, tokens), 1: (tokens, tokens)}
    with OnlyMeta():
        stack.losses(batch, range(3)).sum().backward()


@pytest.mark.long
@pytest.mark.parametrize("preset", list(PRESETS))
def test_steps_at_paper_shape_take_few_launches(preset: str) -> None:
    alone = launches(preset)
    assert alone <= MOST
    assert launches(preset, MEMBERS) <= MOST_OF_MEMBERS * alone


# An exponential of growing keys overflows over 40 steps, even in float64.
MODERATE = [choice for choice in designs.some() if choice[0::2] != ("exp_forget", "kernel_exp")]


@pytest.mark.long
@pytest.mark.parametrize("choice", MODERATE, ids="-".join)
def test_forms_equal_definition_with_the_sizes_of_a_gpu(
    choice: designs.Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks as on other devices, and tiles of two of them."""
    monkeypatch.setattr(sizes, "CPU", replace(sizes.ACCELERATOR, rows=32))
    check_forms(designs.mixer(choice), 1, 40)


def test_tiles_are_as_large_as_a_gpu_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for gigabytes, most in ((8, 2**27), (24, 3 * 2**27), (80, 2**29)):
        properties = SimpleNamespace(total_memory=gigabytes * 2**30)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, p=properties: p)
        sizes._on_gpu.cache_clear()
        assert sizes.sizes_on(torch.device("cuda", 0)).scores == most
    sizes._on_gpu.cache_clear()
