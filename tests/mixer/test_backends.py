"""Adapters to kernels equal the quadratic form, in value and in all gradients.

Each runs with its package's own plain function in place of the kernel: layouts, scales and signs
are what an adapter can have wrong. The kernels themselves are for the tests marked gpu.
"""

import warnings
from functools import cache

import pytest
import torch

from coefdyn.config.build import build_mixer
from coefdyn.config.compose import compose
from coefdyn.mixer.backends import ADAPTERS
from coefdyn.mixer.backends.choice import AUTO_ADAPTERS
from coefdyn.mixer.sequence_mixer import SequenceMixer
from tests import designs

PRESETS = {  # and variants, by the kernel that must serve them
    "sdpa": ["softmax_attention"],
    "fla": ["linear_attention", "gla", "mamba2", "deltanet", "gated_deltanet", "mlstm"],
    "flex_attention": [
        "softmax_attention",
        "relu_attention",
        "softmax_attention model/normalization=mlstm",
        "relu_attention model/normalization=one",
        "relu_attention model/evolution=scalar_gla",
        "softmax_attention model/evolution=constant model/readout=gelu model/normalization=one",
        "fox model/evolution=scalar_mamba2 model/readout=silu model/normalization=one",
        "softmax_attention model/readout=tanh model/normalization=one",
        "alibi",
        "fox",
        "fox model/readout=softplus",
    ],
    "flash_attn": ["softmax_attention"],
    "mamba_ssm": ["mamba2", "mamba2_inverse_sqrt"],
}


@cache
def served(name: str) -> list[designs.Choice]:
    """Designs without an obstacle: every pair of choices that occurs among them."""
    obstacle = ADAPTERS[name].obstacle
    return designs.cover([c for c in designs.accepted() if obstacle(designs.design(c)) is None])


def assert_equal_to_quadratic(made: SequenceMixer, name: str, x: torch.Tensor) -> None:
    weight = torch.randn_like(made(x))
    expected = designs.values_and_gradients(made, "quadratic", x, weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # flex_attention's, that it is not compiled
        found = designs.values_and_gradients(made, name, x, weight)
    assert made.form_used == name
    largest = max(g.abs().max() for key, g in expected.items() if key != "y")
    for key, value in found.items():
        scale = expected[key].abs().max().clamp(min=1e-2 * largest)
        error = (value - expected[key]).abs().max() / scale
        assert error <= 1e-4, f"{name}, {key}: off by {error:.1e}"


@pytest.mark.parametrize(
    "stand_in",
    [  # FlexAttention is traced anew for each
        pytest.param(name, marks=pytest.mark.slow if name == "flex_attention" else ())
        for name in ADAPTERS
    ],
    indirect=True,
)
def test_adapter_equals_quadratic_for_every_design_it_serves(stand_in: str) -> None:
    choices = served(stand_in)
    assert len(choices) >= 3
    for choice in choices:
        made = designs.mixer(choice, torch.float32)
        assert_equal_to_quadratic(made, stand_in, designs.inputs(made, batch=2, length=12))


@pytest.mark.parametrize("stand_in", list(ADAPTERS), indirect=True)
def test_adapter_equals_quadratic_for_presets(stand_in: str) -> None:
    sizes = [f"model.{size}={value}" for size, value in designs.SIZES.items()]
    for preset in PRESETS[stand_in]:
        made = build_mixer(compose([*f"model={preset}".split(), *sizes]))
        x = torch.randn(2, 12, designs.SIZES["d_model"], requires_grad=True)
        assert_equal_to_quadratic(made, stand_in, x)


@pytest.mark.parametrize("stand_in", ["sdpa", "fla"], indirect=True)
def test_autocast_gives_the_kernel_half_precision_and_returns_full(stand_in: str) -> None:
    preset = {"sdpa": "softmax_attention", "fla": "linear_attention"}[stand_in]
    made = build_mixer(compose([f"model={preset}", "scale=smoke"]))
    x = torch.randn(2, 12, made.d_model)
    full = made(x)
    made.backend = stand_in
    with torch.autocast("cpu", torch.bfloat16):
        half = made(x)
    assert half.dtype == torch.float32
    error = (half - full).abs().max() / full.abs().max()
    assert 1e-5 < error < 3e-2


def test_auto_takes_only_what_is_proven() -> None:
    assert set(AUTO_ADAPTERS) <= PRESETS.keys()


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [2, 8])
@pytest.mark.parametrize("name", list(ADAPTERS))
def test_kernel_equals_quadratic_on_a_gpu(name: str, heads: int) -> None:
    if ADAPTERS[name].absence is not None:
        pytest.skip(f"{name}: {ADAPTERS[name].absence}")
    sizes = ["model.d_model=64", "model.n_state=64", "model.d_value=64", f"model.n_heads={heads}"]
    for preset in PRESETS[name]:
        made = build_mixer(compose([*f"model={preset}".split(), *sizes])).cuda()
        x = torch.randn(2, 256, 64, device="cuda", requires_grad=True)
        with torch.autocast("cuda", torch.bfloat16):
            weight = torch.randn_like(made(x))
            expected = designs.values_and_gradients(made, "quadratic", x, weight)
            found = designs.values_and_gradients(made, name, x, weight)
        for key, value in found.items():
            error = (value - expected[key]).norm() / expected[key].norm().clamp(min=1e-3)
            assert error <= 3e-2, f"{name}, {preset}, {key}: off by {error:.1e}"
