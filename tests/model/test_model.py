"""The assembled model: initial values, causality, token-by-token use, bad input."""

import math

import pytest
import torch

from coefdyn.config.build import build_model
from coefdyn.config.compose import compose
from coefdyn.config.plugins import options
from coefdyn.model.model import SequenceModel
from tests.designs import ARCHITECTURES

SMALL = [
    "model.d_model=8",
    "model.n_state=8",
    "model.d_value=8",
    "model.n_heads=2",
    "model.d_mlp=10",
    "model.vocab_size=11",
    "model.max_length=24",
]
PRESETS = ARCHITECTURES


def model(*overrides: str) -> SequenceModel:
    torch.manual_seed(0)
    return build_model(compose([*SMALL, *overrides]))


@pytest.mark.parametrize("name", PRESETS)
def test_preset_trains_a_step_on_every_parameter(name: str) -> None:
    made = model(f"model={name}")
    for block in made.blocks:  # mLSTM's gates start at W = 0, which stops no gradient of W itself
        assert block.mixer.design is not made.blocks[0].mixer.design or block is made.blocks[0]
    tokens = torch.randint(11, (3, 24))
    torch.nn.functional.cross_entropy(made(tokens).flatten(0, 1), tokens.flatten()).backward()
    for parameter_name, parameter in made.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


AROUND = [f"{g}={n}" for g in ("block", "preprocess", "position") for n in options(f"model/{g}")]
AROUND.remove("preprocess=short_conv_z")  # which needs a z_t, as the preset path has


@pytest.mark.parametrize("choice", [*PRESETS, *AROUND])
def test_model_is_causal(choice: str) -> None:
    made = model(f"model/{choice}" if "=" in choice else f"model={choice}").double()
    tokens = torch.randint(11, (2, 24))
    changed = tokens.clone()
    changed[:, 15:] = (changed[:, 15:] + 1) % 11
    before, after = made(tokens), made(changed)
    torch.testing.assert_close(after[:, :15], before[:, :15])
    assert not torch.allclose(after[:, 15:], before[:, 15:])


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("position", ["none", "learned", "sinusoidal"])
def test_token_by_token_equals_the_whole_sequence(name: str, position: str) -> None:
    made = model(f"model={name}", f"model/position={position}").double()
    tokens = torch.randint(11, (2, 20))
    if made.blocks[0].mixer.design.recurrence_obstacle is not None:
        with pytest.raises(ValueError, match="no recurrent form"):
            made.step(tokens[:, :1], None)
        return
    state, logits = None, []
    for t in range(20):
        step, state = made.step(tokens[:, t : t + 1], state)
        logits.append(step)
    torch.testing.assert_close(torch.cat(logits, dim=1), made(tokens))


LINEAR = [
    name
    for name in PRESETS
    if model(f"model={name}").blocks[0].mixer.design.recurrence_obstacle is None
]


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("prompt", [1, 33, 70])
def test_a_prompt_and_then_steps_equal_the_whole_sequence(name: str, prompt: int) -> None:
    """Chunks have 16 to 64 steps, so prompts end inside one."""
    made = model(f"model={name}", "model/position=sinusoidal").double()
    tokens = torch.randint(11, (2, prompt + 6))
    logits, state = made.prefill(tokens[:, :prompt])
    parts = [logits]
    for t in range(prompt, prompt + 6):
        step, state = made.step(tokens[:, t : t + 1], state)
        parts.append(step)
    assert state.position == prompt + 6
    torch.testing.assert_close(torch.cat(parts, dim=1), made(tokens), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["softmax_attention", "rope", "gated_deltanet", "deltaproduct"])
def test_generated_tokens_are_the_most_likely_ones(name: str) -> None:
    made = model(f"model={name}", "model.max_length=40").double()
    prompt = torch.randint(11, (2, 9))
    tokens = made.generate(prompt, 8)
    assert tokens.shape == (2, 17)
    assert torch.equal(tokens[:, :9], prompt)
    assert torch.equal(made(tokens)[:, 8:-1].argmax(-1), tokens[:, 9:])
    assert torch.equal(made.generate(prompt, 0), prompt)


def test_tokens_are_drawn_with_their_probability() -> None:
    made = model("model=gla").double()
    prompt = torch.zeros(4000, 3, dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    drawn = made.generate(prompt, 1, temperature=0.5, generator=generator)[:, -1]
    expected = (made(prompt[:1])[0, -1] / 0.5).softmax(-1)
    share = torch.bincount(drawn, minlength=len(expected)) / 4000
    assert (share - expected).abs().max() < 4 * 0.5 / 4000**0.5
    again = made.generate(prompt, 1, 0.5, torch.Generator().manual_seed(0))[:, -1]
    assert torch.equal(drawn, again)


def test_generate_refuses_a_negative_count_or_temperature() -> None:
    made, prompt = model("model=gla"), torch.zeros(1, 3, dtype=torch.int64)
    for count, temperature in ((-1, 0.0), (1, -1.0)):
        with pytest.raises(ValueError, match="count >= 0 and temperature >= 0"):
            made.generate(prompt, count, temperature)


def test_recurrent_state_does_not_grow() -> None:
    made = model("model=gated_deltanet")
    state, sizes = None, []
    for _ in range(12):
        _, state = made.step(torch.zeros(1, 1, dtype=torch.int64), state)
        sizes.append(sum(s.design.sums[0].numel() + s.past.numel() for s in state.blocks))
    assert len(set(sizes)) == 1


@pytest.mark.parametrize("init", ["torch", "normal"])
def test_special_initial_values_survive_assembly(init: str) -> None:
    made = model("model=mamba2", "model.n_heads=8", f"model.init={init}")
    rates, steps = [], []
    for block in made.blocks:
        evolution = block.mixer.design.evolution
        rates.append(evolution.log_rate.exp())
        steps.append(torch.nn.functional.softplus(evolution.step.bias))
    rate, step = torch.cat(rates), torch.cat(steps)
    assert ((rate >= 1) & (rate <= 16)).all()
    assert rate.std() > 1
    assert ((step >= 0.999e-3) & (step <= 0.1001)).all()
    assert step.log().std() > 0.5
    forget = model("model=mlstm", f"model.init={init}").blocks[0].mixer.design.evolution.forget
    assert forget.weight.eq(0).all()
    torch.testing.assert_close(forget.bias.exp(), torch.sigmoid(torch.tensor([3.0, 6.0])))


def test_general_initial_values() -> None:
    made = model("model=gla", "model.d_model=256", "model.n_state=256", "model.vocab_size=500")
    assert abs(made.embedding.weight.std().item() - 0.02) < 1e-3
    bound = 1 / math.sqrt(256)
    weight = made.blocks[0].mixer.project.weight
    assert weight.abs().max() <= bound
    assert abs(weight.std().item() - bound / math.sqrt(3)) < 1e-3
    assert made.blocks[0].mixer.design.evolution.gate[1].bias.eq(0).all()
    normal = model("model.init=normal", "model.d_model=256", "model.max_length=300")
    assert abs(normal.blocks[0].mixer.project.weight.std().item() - 0.02) < 1e-3
    assert abs(normal.position.table.weight.std().item() - 0.02) < 1e-3
    assert abs(normal.head.weight.std().item() - 0.02) < 2e-3


def test_positions_distinguish_steps() -> None:
    """Identical tokens: without a position softmax attention cannot tell steps apart, with one it
    can (Lemma 3)."""
    tokens = torch.full((1, 10), 4)
    for position, distinct in (("none", False), ("learned", True), ("sinusoidal", True)):
        logits = model(f"model/position={position}")(tokens)
        assert torch.allclose(logits[:, 3], logits[:, 7], atol=1e-6) != distinct


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.zeros(2, 0, dtype=torch.int64), "expected (batch, time)"),
        (torch.zeros(4, dtype=torch.int64), "expected (batch, time)"),
        (torch.zeros(2, 4), "expected int64 or int32"),
        (torch.zeros(1, 25, dtype=torch.int64), "longer than model.max_length=24"),
        (torch.full((1, 4), 11), "outside 0..10"),
    ],
)
def test_bad_tokens_get_a_sentence(tokens: torch.Tensor, message: str) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        model()(tokens)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", PRESETS)
def test_autocast_keeps_the_mixer_in_float32(name: str) -> None:
    """Under bfloat16 autocast logits stay near the float32 ones: only projections are rounded."""
    made = model(f"model={name}")
    tokens = torch.randint(11, (2, 24))
    exact = made(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = made(tokens)
    assert rounded.isfinite().all()
    assert (rounded - exact).norm() / exact.norm() < 0.05
