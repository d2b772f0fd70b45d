"""Architectures after Table 1 equal other people's plain functions, in values and gradients.

The functions of flash-linear-attention compute in float32 whatever they are given.
"""

import warnings
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.mixer.design import Design
from coefdyn.mixer.slots.evolution import Evolution, HeadDecay
from coefdyn.mixer.slots.normalization import One, RowSum
from coefdyn.mixer.slots.readout import Exp, Identity
from coefdyn.mixer.slots.relative_position import Alibi, Rotary
from coefdyn.mixer.slots.scaling import InverseSqrt, Strength
from coefdyn.mixer.slots.scaling import One as NoScaling
from coefdyn.mixer.slots.transition import Transition
from coefdyn.mixer.stream import Projected
from tests.mixer.references import fla_folder, module_at
from tests.parity.test_other_implementations import assert_same

BATCH, HEADS, LENGTH, WIDTH, VALUE = 2, 3, 70, 8, 6
FORMS = ["quadratic", "compiled"]
LINEAR = [*FORMS, "linear"]


class Given(Evolution):
    """The transition that the other implementation is given too."""

    def __init__(self, transition: Transition, repeats: int = 1) -> None:
        super().__init__()
        self.transition, self.repeats = transition, repeats
        self.has_decay = transition.decay is not None
        self.per_channel = transition.per_channel
        self.has_direction = transition.direction is not None
        self.has_strength = transition.strength is not None
        self.two_sided = transition.column is not None
        self.has_shear = transition.shear is not None

    def forward(self, x: Tensor, k: Tensor) -> Transition:
        return self.transition


def heads(*shape: int) -> Tensor:
    return torch.randn(BATCH, HEADS, *shape, requires_grad=True)


def softmax(evolution: Evolution, q: Tensor, k: Tensor, v: Tensor, form: str) -> Tensor:
    design = Design(evolution, InverseSqrt(HEADS * WIDTH, HEADS), Exp(), RowSum())
    return getattr(design, form)(Projected(torch.zeros(BATCH, LENGTH, 5), q, k, v, k))


def linear(evolution: Evolution, q: Tensor, k: Tensor, v: Tensor, form: str,
           scaling: Any = None) -> Tensor:  # fmt: skip
    scaling = scaling or InverseSqrt(HEADS * WIDTH, HEADS)
    design = Design(evolution, scaling, Identity(), One())
    return getattr(design, form)(Projected(torch.zeros(BATCH, LENGTH, 5), q, k, v, k))


def naive(folder: str) -> ModuleType:
    return module_at(fla_folder() / folder / "naive.py")


def time_first(*tensors: Tensor) -> list[Tensor]:
    return [x.transpose(1, 2) for x in tensors]


@pytest.mark.parametrize("form", FORMS)
def test_fox_is_forgetting_attention(form: str) -> None:
    q, k, v, gate = heads(LENGTH, WIDTH), heads(LENGTH, WIDTH), heads(LENGTH, VALUE), heads(LENGTH)
    shear = F.logsigmoid(gate)
    ours = softmax(Given(Transition(shear=shear)), q, k, v, form)
    theirs = naive("forgetting_attn").naive_forgetting_attn(*time_first(q, k, v, shear))
    assert_same(ours, theirs.transpose(1, 2), (q, k, v, gate), 2e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gated", [False, True])
def test_path_is_path_attention(form: str, gated: bool) -> None:
    """Their scale is applied to the gate too, so it is 1 here, and ours in the queries."""
    q, k, z, v = (
        heads(LENGTH, WIDTH),
        heads(LENGTH, WIDTH),
        heads(LENGTH, WIDTH),
        heads(LENGTH, WIDTH),
    )
    logits, gate = heads(LENGTH), heads(LENGTH)
    w, beta = F.normalize(z, dim=-1), 2 * logits.sigmoid()
    shear = F.logsigmoid(gate) if gated else torch.zeros_like(gate)
    transition = Transition(direction=w, strength=beta, shear=shear if gated else None)
    ours = softmax(Given(transition), q, k, v, form)
    theirs = naive("path_attn").naive_path_attn(
        *time_first(q / WIDTH**0.5, k, v, w, beta, shear), scale=1.0
    )
    inputs = (q, k, v, z, logits, gate) if gated else (q, k, v, z, logits)
    assert_same(ours, theirs.transpose(1, 2), inputs, 5e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gated", [False, True])
def test_wall_is_wall_attention(form: str, gated: bool) -> None:
    """Its function needs a GPU for a running sum, so its formula is written out here."""
    q, k, v = heads(LENGTH, WIDTH), heads(LENGTH, WIDTH), heads(LENGTH, VALUE)
    gates, gate = heads(LENGTH, WIDTH), heads(LENGTH)
    log_decay, shear = F.logsigmoid(gates), F.logsigmoid(gate)
    transition = Transition(log_decay=log_decay, shear=shear if gated else None)
    ours = softmax(Given(transition), q, k, v, form)
    sums, added = log_decay.double().cumsum(-2), shear.double().cumsum(-1)
    below = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril().unsqueeze(-1)
    difference = (sums.unsqueeze(-2) - sums.unsqueeze(-3)).masked_fill(~below, -torch.inf)
    score = (q.unsqueeze(-2) * k.unsqueeze(-3) * difference.exp()).sum(-1) / WIDTH**0.5
    score = score + gated * (added.unsqueeze(-1) - added.unsqueeze(-2))
    weights = score.masked_fill(~below.squeeze(-1), -torch.inf).softmax(-1)
    inputs = (q, k, v, gates, gate) if gated else (q, k, v, gates)
    assert_same(ours, (weights @ v.double()).float(), inputs, 2e-5)


@pytest.mark.parametrize("form", LINEAR)
def test_kda_is_kimi_delta_attention(form: str) -> None:
    q, k, v = heads(LENGTH, WIDTH), heads(LENGTH, WIDTH), heads(LENGTH, VALUE)
    gates, logits = heads(LENGTH, WIDTH), heads(LENGTH)
    w, log_decay, beta = F.normalize(k, dim=-1), F.logsigmoid(gates), logits.sigmoid()
    transition = Transition(log_decay=log_decay, direction=w, strength=beta)
    ours = linear(Given(transition), q, w, v, form, Strength(HEADS * WIDTH, HEADS))
    theirs, _ = naive("kda").naive_recurrent_kda(*time_first(q, w, v, log_decay, beta))
    assert_same(ours, theirs.transpose(1, 2), (q, k, v, gates, logits), 5e-5)


@pytest.mark.parametrize("form", LINEAR)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_deltaproduct_is_gated_delta_product(form: str, gated: bool, repeats: int) -> None:
    q, k, v = (heads(LENGTH, WIDTH), heads(LENGTH * repeats, WIDTH), heads(LENGTH * repeats, VALUE))
    logits, gate = heads(LENGTH * repeats), heads(LENGTH)
    w, beta, log_decay = F.normalize(k, dim=-1), 2 * logits.sigmoid(), F.logsigmoid(gate)
    decay = Transition(log_decay=log_decay.unsqueeze(-1) if gated else None).spread(repeats)
    transition = Transition(log_decay=decay.log_decay, direction=w, strength=beta)
    ours = linear(Given(transition, repeats), q, w, v, form, Strength(HEADS * WIDTH, HEADS))
    theirs, *_ = naive("gated_delta_product").naive_recurrent_gated_delta_product(
        *time_first(q, w, v), *time_first(log_decay) if gated else [None], *time_first(beta),
        scale=WIDTH**-0.5, num_householder=repeats,
    )  # fmt: skip
    inputs = (q, k, v, logits, gate) if gated else (q, k, v, logits)
    assert_same(ours, theirs.transpose(1, 2), inputs, 5e-5)


@pytest.mark.parametrize("form", LINEAR)
def test_rwkv7_is_the_rule_of_a_diagonal_plus_rank_one(form: str) -> None:
    q, k, v = heads(LENGTH, WIDTH), heads(LENGTH, WIDTH), heads(LENGTH, VALUE)
    gates, rates = heads(LENGTH, WIDTH), heads(LENGTH, WIDTH)
    w, log_decay = F.normalize(k, dim=-1), -0.6 * gates.sigmoid()
    column = rates.sigmoid() * w
    transition = Transition(log_decay=log_decay, direction=w, column=column, early=True)
    ours = linear(Given(transition), q, k, v, form, NoScaling())
    theirs, _ = naive("generalized_delta_rule/dplr").dplr_recurrence(
        q * WIDTH**0.5, k, v, w, -column, log_decay
    )
    assert_same(ours, theirs, (q, k, v, gates, rates), 5e-5)


@pytest.mark.parametrize("form", LINEAR)
@pytest.mark.parametrize("turned", [False, True])
def test_retnet_is_retention(form: str, turned: bool) -> None:
    """Their function is given queries and keys that are turned already."""
    q, k, v = heads(LENGTH, WIDTH), heads(LENGTH, WIDTH), heads(LENGTH, VALUE)
    decay: Evolution = HeadDecay(HEADS)
    evolution = Rotary(HEADS * WIDTH, HEADS, of=decay) if turned else decay
    ours = linear(evolution, q, k, v, form)
    turn = rope_of_transformers if turned else lambda *pair: pair
    theirs = naive("retention").naive_retention(*turn(q, k), v)
    assert_same(ours, theirs, (q, k, v), 5e-5)


def rope_of_transformers(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import LlamaConfig
        from transformers.models.llama import modeling_llama

    config = LlamaConfig(hidden_size=HEADS * WIDTH, num_attention_heads=HEADS, head_dim=WIDTH)
    embedding = modeling_llama.LlamaRotaryEmbedding(config)
    cos, sin = embedding(q, torch.arange(LENGTH).unsqueeze(0))
    return modeling_llama.apply_rotary_pos_emb(q, k, cos, sin)


@pytest.mark.parametrize("form", FORMS)
def test_rope_is_the_rotary_embedding_of_transformers(form: str) -> None:
    q, k, v = heads(LENGTH, WIDTH), heads(LENGTH, WIDTH), heads(LENGTH, VALUE)
    ours = softmax(Rotary(HEADS * WIDTH, HEADS), q, k, v, form)
    theirs = F.scaled_dot_product_attention(*rope_of_transformers(q, k), v, is_causal=True)
    assert_same(ours, theirs, (q, k, v), 2e-5)


@pytest.mark.parametrize("form", FORMS)
def test_alibi_is_the_bias_of_bloom(form: str) -> None:
    """With three heads, which is no power of two."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    q, k, v = heads(LENGTH, WIDTH), heads(LENGTH, WIDTH), heads(LENGTH, VALUE)
    ours = softmax(Alibi(HEADS), q, k, v, form)
    bias = build_alibi_tensor(torch.ones(BATCH, LENGTH), HEADS, torch.float32)
    bias = bias.unflatten(0, (BATCH, HEADS))  # slope times j: a row's own part cancels
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    mask = torch.where(mask, bias, -torch.inf)
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert_same(ours, theirs, (q, k, v), 2e-5)
