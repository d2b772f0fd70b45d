"""What a model keeps while it reads: a state, or keys and values."""

import pytest

from coefdyn.config.build import build_model
from coefdyn.config.compose import compose
from coefdyn.model.state_size import state_bytes

SIZES = ["scale=smoke", "model.n_state=24", "model.d_value=16", "model.n_heads=2"]


def kept(*overrides: str, length: int) -> int | None:
    return state_bytes(build_model(compose([*SIZES, *overrides])), length)


@pytest.mark.parametrize("length", [1, 16, 100])
def test_attention_keeps_the_keys_and_values_of_every_token(length: int) -> None:
    two_layers = 4 * 2 * length * (24 + 16)
    assert kept("model=softmax_attention", length=length) == two_layers
    convolution = 4 * 2 * 3 * (24 + 24 + 16)  # three past tokens of q, k and v
    assert kept("model=softmax_attention_conv", length=length) == two_layers + convolution


@pytest.mark.parametrize(
    ("preset", "numbers"),
    [
        ("normalized_attention", 2 * 12 * 8),  # two heads, each 12 by 8
        ("gla", 2 * 12 * 8 + 3 * 64),
        ("linear_attention", 2 * 12 * (8 + 1)),  # and the sum of keys
        ("deltaproduct", 2 * 12 * 8 + 3 * (24 + 2 * 24 + 2 * 16)),
        ("mamba3", 2 * 12 * 8 + 3 * 64 + 2 * 6),  # and how far each pair has turned
    ],
)
def test_a_recurrent_design_keeps_its_state_at_any_length(preset: str, numbers: int) -> None:
    for length in (1, 1000):
        assert kept(f"model={preset}", length=length) == 4 * 2 * numbers


def test_a_hybrid_keeps_what_its_layers_keep() -> None:
    pattern = "model.pattern=[softmax_attention_conv,mamba2]"
    one = kept("model=mamba2", "model.n_layers=1", length=50)
    other = kept("model=softmax_attention_conv", "model.n_layers=1", length=50)
    assert one is not None
    assert other is not None
    assert kept("model=mamba2", pattern, length=50) == one + other
