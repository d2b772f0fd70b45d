"""How slots start: distributions on thousands of heads, and what a design then computes."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.mixer.slots.evolution import ExpForget, GlaDecay, Householder, Mamba2Decay
from coefdyn.mixer.slots.normalization import ExpLinear, Mlstm
from coefdyn.mixer.slots.preprocess import ShortConv
from coefdyn.mixer.slots.scaling import ExpInput, Gate
from coefdyn.model.model import initialize
from tests import designs

MANY = 20_000
SIZES: dict[str, Any] = {"d_model": 2, "n_state": MANY, "n_heads": MANY}


def assert_uniform(x: Tensor, low: float, high: float) -> None:
    """Kolmogorov and Smirnov: the distribution functions are nowhere further apart than chance
    lets them be in one of ten thousand samples."""
    share = ((x.detach().double().flatten() - low) / (high - low)).sort().values
    assert share[0] >= -1e-5
    assert share[-1] <= 1 + 1e-5
    steps = torch.arange(1, len(share) + 1, dtype=torch.float64) / len(share)
    assert (share - steps).abs().max() < 2.2 / math.sqrt(len(share))


@pytest.mark.parametrize("per_channel", [True, False])
def test_mamba2_starts_with_uniform_rates_and_log_uniform_steps(per_channel: bool) -> None:
    ranges = {"rate_range": [1.0, 16.0], "step_range": [1e-3, 1e-1]}
    made = Mamba2Decay(**SIZES, per_channel=per_channel, **ranges)
    initialize(made, "torch")  # which sets biases to zero first
    assert_uniform(made.log_rate.exp(), 1, 16)
    assert_uniform(F.softplus(made.step.bias.double()).log10(), -3, -1)
    found = made(torch.zeros(1, 1, 2), torch.zeros(1, MANY, 1, 1))
    assert_uniform(found.step_size.log10(), -3, -1)
    torch.testing.assert_close(
        found.log_decay.flatten(), -(found.step_size.flatten() * made.log_rate.exp().flatten())
    )


@pytest.mark.parametrize(
    ("name", "rates"),
    [("scalar_mamba2", (2, 1)), ("diagonal_mamba2", (2, 4)), ("gated_householder", (2, 1))],
)
def test_mamba2_has_a_rate_per_head_or_per_channel(name: str, rates: tuple[int, int]) -> None:
    evolution = designs.slot("evolution", name)
    assert tuple(getattr(evolution, "decay", evolution).log_rate.shape) == rates


def test_gla_starts_at_one_half_to_the_sixteenth() -> None:
    """sigmoid(0)^(1/16) at x = 0: a key keeps 0.958 of itself a step."""
    for name, outputs in (("scalar_gla", 2), ("diagonal_gla", 8)):
        made = designs.slot("evolution", name)
        assert [tuple(layer.weight.shape) for layer in made.gate] == [(16, 6), (outputs, 16)]
        assert made.gate[0].bias is None
    gate = GlaDecay(d_model=6, n_state=6, n_heads=2, per_channel=True, rank=16, temperature=16.0)
    initialize(gate, "torch")
    decay = gate(torch.zeros(1, 1, 6), torch.zeros(1, 2, 1, 3)).log_decay.exp()
    torch.testing.assert_close(decay, torch.full((1, 2, 1, 3), 0.5 ** (1 / 16)))


def test_a_learned_strength_starts_in_the_middle() -> None:
    for largest in (1.0, 2.0):
        made = Householder(d_model=6, n_heads=2, own_direction=False, learned=True,
                           strength=largest)  # fmt: skip
        initialize(made, "torch")
        found = made(torch.zeros(1, 1, 6), torch.ones(1, 2, 1, 3))
        torch.testing.assert_close(found.strength, torch.full((1, 2, 1), largest / 2))
        torch.testing.assert_close(found.direction, torch.full((1, 2, 1, 3), 3**-0.5))


def test_mlstm_s_gates_start_as_in_xlstm() -> None:
    """exp(f) = sigmoid(3 to 6) spread evenly over the heads; i = N(0, 0.1); W = 0; o = 1/2."""
    forget = ExpForget(d_model=6, n_heads=4, gate_range=[3.0, 6.0])
    torch.nn.init.ones_(forget.forget.weight)
    initialize(forget, "normal")
    assert forget.forget.weight.eq(0).all()
    expected = torch.sigmoid(torch.tensor([3.0, 4.0, 5.0, 6.0]))
    torch.testing.assert_close(forget.forget.bias.exp(), expected)
    into = ExpInput(**SIZES)
    initialize(into, "normal")
    assert into.gate.weight.eq(0).all()
    assert into.gate.bias.std().item() == pytest.approx(0.1, rel=0.02)
    assert into.gate.bias.mean().item() == pytest.approx(0, abs=0.003)
    eta = Mlstm(d_model=6, n_heads=2)
    initialize(eta, "torch")
    assert eta.output_gate.bias.eq(0).all()


def test_gates_without_a_bias_have_none() -> None:
    assert Gate(d_model=6, n_state=6, n_heads=2, inverse_sqrt=True).gate.bias is None
    assert ExpLinear(d_model=6, n_heads=2).log_eta.bias is None


def test_a_short_convolution_starts_uniform_within_one_over_the_root_of_its_width() -> None:
    for width in (4, 9):
        made = ShortConv(MANY, width)
        torch.nn.init.zeros_(made.kernel)
        initialize(made, "normal")
        assert_uniform(made.kernel, -(width**-0.5), width**-0.5)
