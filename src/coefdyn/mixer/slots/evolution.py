"""A_t: how a key changes between the step it is written and the step it is read."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.mixer.fused import unit
from coefdyn.mixer.shapes import head_width
from coefdyn.mixer.slots.transition import Transition


class Evolution(nn.Module):
    """A_t as a function of the block's input x_t and of the key k_t.

    Traits:
    `own_direction`: the mixer passes z_t in place of k_t, projected and preprocessed alike;
    `may_grow`: |A_t| can exceed 1;
    `has_direction`, `has_strength`, `has_decay`, `has_step_size`, `has_angle`, `has_shear`: which
    parts of the `Transition` are present; a decay is its `log_decay` or its `factor`;
    `per_channel`: the decay differs by channel;
    `signed`: it can be zero or negative, and is a `factor`;
    `two_sided`: what is read along w_t is taken off along a `column` of its own;
    `repeats`: A_t is a product of so many, each with a key and a value: k_t comes as so many steps;
    `dense`: A_t has no such structure and is returned as a matrix, which is slow.
    """

    own_direction = False
    may_grow = False
    has_direction = False
    has_strength = False
    has_decay = False
    has_step_size = False
    has_angle = False
    has_shear = False
    per_channel = False
    signed = False
    two_sided = False
    repeats = 1
    dense = False

    def forward(self, x: Float[Tensor, "b t d"], k: Float[Tensor, "b h s n"]) -> Transition:
        raise NotImplementedError

    def take_traits(self, factor: "Evolution") -> None:
        """Of a factor of this A_t: what it has, A_t has too."""
        for trait in TRAITS:
            if getattr(factor, trait):
                setattr(self, trait, getattr(factor, trait))


TRAITS = [name for name, value in vars(Evolution).items() if value is False] + ["repeats"]


class Identity(Evolution):
    """A_t = I."""

    def forward(self, x: Float[Tensor, "b t d"], k: Float[Tensor, "b h s n"]) -> Transition:
        return Transition()


class Constant(Evolution):
    """A_t = c I, c > 0."""

    has_decay = True

    def __init__(self, c: float) -> None:
        super().__init__()
        if not 0 < c < math.inf:
            raise ValueError(f"evolution=constant needs a finite c > 0, not c={c}")
        self.log_c = math.log(c)
        self.may_grow = c > 1

    def forward(self, x: Float[Tensor, "b t d"], k: Float[Tensor, "b h s n"]) -> Transition:
        log_decay = k.new_full((1, 1, 1, 1), self.log_c)
        return Transition(log_decay=log_decay.expand(*k.shape[:2], x.shape[1], 1))


class GlaDecay(Evolution):
    """A_t = diag(lambda_t), lambda_t = sigmoid(W_2 W_1 x_t + bias)^(1/temperature).

    There is one lambda per channel, or one per head if `per_channel` is false. `rank` is the rank
    of W_2 W_1. A larger `temperature` moves every lambda nearer to 1. With `signed`, 2 lambda - 1
    takes its place, which lies in (-1, 1). Gated linear attention, Yang et al. 2023.
    """

    neutral: ClassVar = {"signed": False}

    has_decay = True

    def __init__(
        self,
        d_model: int,
        n_state: int,
        n_heads: int,
        per_channel: bool,
        rank: int = 16,
        temperature: float = 16.0,
        signed: bool = False,
    ) -> None:
        super().__init__()
        head_width(n_state, n_heads)
        if signed and temperature != 1:
            raise ValueError(
                f"signed=true needs temperature=1, not {temperature:g}: lambda_t would hardly ever "
                "be below 1/2, where 2 lambda_t - 1 changes its sign; set "
                "model.evolution.temperature=1"
            )
        if rank < 1 or not temperature > 0:
            raise ValueError(
                f"a GLA gate needs rank >= 1 and temperature > 0, not {rank} and {temperature}"
            )
        self.n_heads, self.per_channel = n_heads, per_channel
        self.temperature, self.signed = temperature, signed
        outputs = n_state if per_channel else n_heads
        self.gate = nn.Sequential(
            nn.Linear(d_model, rank, bias=False), nn.Linear(rank, outputs, bias=True)
        )

    def forward(self, x: Float[Tensor, "b t d"], k: Float[Tensor, "b h s n"]) -> Transition:
        if self.signed:
            factor = 2 * self.gate(x).sigmoid() - 1
            return Transition(factor=rearrange(factor, "b t (h m) -> b h t m", h=self.n_heads))
        log_decay = F.logsigmoid(self.gate(x)) / self.temperature
        return Transition(log_decay=rearrange(log_decay, "b t (h m) -> b h t m", h=self.n_heads))


class Mamba2Decay(Evolution):
    """A_t = exp(-Delta_t A), Delta_t = softplus(W x_t + bias) per head, A > 0.

    A is one number per channel, or one per head if `per_channel` is false. It starts uniform in
    `rate_range`. The bias starts so that Delta is log-uniform in `step_range`. With `signed`, A_t =
    2 exp(-Delta_t A) - 1, which lies in (-1, 1). Mamba-2, Dao and Gu 2024.
    """

    neutral: ClassVar = {"signed": False}

    has_decay = True
    has_step_size = True

    def __init__(
        self,
        d_model: int,
        n_state: int,
        n_heads: int,
        per_channel: bool,
        rate_range: Sequence[float] = (1.0, 16.0),
        step_range: Sequence[float] = (1e-3, 1e-1),
        signed: bool = False,
    ) -> None:
        super().__init__()
        width = head_width(n_state, n_heads)
        check_range("rate_range", rate_range, above=0.0)
        check_range("step_range", step_range, above=0.0)
        self.rate_range, self.step_range = rate_range, step_range
        self.per_channel, self.signed = per_channel, signed
        self.step = nn.Linear(d_model, n_heads)
        self.log_rate = nn.Parameter(torch.empty(n_heads, width if per_channel else 1))
        self.reset_special()

    def reset_special(self) -> None:
        """A uniform in `rate_range`; Delta log-uniform in `step_range` at x = 0."""
        with torch.no_grad():
            self.log_rate.uniform_(*self.rate_range).log_()
            low, high = (math.log(limit) for limit in self.step_range)
            step = self.step.bias.uniform_(low, high).exp_()
            step.add_(torch.log(-torch.expm1(-step)))  # the inverse of softplus

    def forward(self, x: Float[Tensor, "b t d"], k: Float[Tensor, "b h s n"]) -> Transition:
        step_size = rearrange(F.softplus(self.step(x)), "b t h -> b h t")
        log_decay = -step_size.unsqueeze(-1) * self.log_rate.exp().unsqueeze(-2)
        if self.signed:
            return Transition(factor=2 * log_decay.exp() - 1, step_size=step_size)
        return Transition(log_decay=log_decay, step_size=step_size)


class Householder(Evolution):
    """A_t = (I - beta_t w_t w_t^T) D_t, w_t the unit vector along k_t, or along z_t = W_z x_t.

    beta_t = `strength` is fixed, or strength * sigmoid(W x_t + bias) where `learned`. D_t is the
    transition of `decay`, or I. DeltaNet (Schlag et al. 2021); gated: Yang et al. 2025. With
    `repeats` there are as many keys, reflections and writes at a step, and one D_t before them:
    DeltaProduct, Siems et al. 2025.
    """

    neutral: ClassVar = {"repeats": 1}

    has_direction = True
    has_strength = True

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        own_direction: bool,
        learned: bool,
        strength: float,
        decay: Evolution | None = None,
        repeats: int = 1,
    ) -> None:
        super().__init__()
        if not 0 < strength <= 2:
            raise ValueError(
                f"a Householder strength must lie in (0, 2], not {strength}: "
                "beyond 2 an eigenvalue of A_t leaves the unit circle"
            )
        if decay is not None and (decay.has_direction or decay.has_angle or decay.has_shear):
            raise ValueError("the decay of a Householder evolution must be nothing but a decay")
        if repeats < 1:
            raise ValueError(f"a Householder evolution needs repeats >= 1, not repeats={repeats}")
        self.own_direction = own_direction
        self.max_strength = strength
        self.n_heads = n_heads
        self.strength = nn.Linear(d_model, n_heads * repeats) if learned else None
        self.decay = decay
        if decay is not None:
            self.take_traits(decay)
        self.repeats = repeats

    def forward(self, x: Float[Tensor, "b t d"], k: Float[Tensor, "b h s n"]) -> Transition:
        base = Transition() if self.decay is None else self.decay(x, k).spread(self.repeats)
        if self.strength is None:
            strength = k.new_full((1, 1, 1), self.max_strength).expand(k.shape[:3])
        else:
            logits = rearrange(self.strength(x), "b t (h r) -> b h (t r)", h=self.n_heads)
            strength = self.max_strength * logits.sigmoid()
        return replace(base, direction=unit(k), strength=strength)


class HeadDecay(Evolution):
    """A_t = gamma_h I, gamma_h = 1 - 2^(-5 - h) for head h = 0, 1, ... RetNet, Sun et al. 2023."""

    has_decay = True

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads

    def forward(self, x: Float[Tensor, "b t d"], k: Float[Tensor, "b h s n"]) -> Transition:
        heads = torch.arange(self.n_heads, device=k.device, dtype=torch.float64)
        log_decay = torch.log1p(-(2.0 ** (-5 - heads))).to(k.dtype)
        log_decay = log_decay.view(1, -1, 1, 1)
        return Transition(log_decay=log_decay.expand(*k.shape[:2], x.shape[1], 1))


class ExpForget(Evolution):
    """A_t = exp(f_t) I, f_t = W x_t + bias per head: may exceed 1.

    exp(bias) starts at sigmoid(g), with g spread over `gate_range`. mLSTM, Beck et al. 2024.
    """

    has_decay = True
    may_grow = True

    def __init__(
        self, d_model: int, n_heads: int, gate_range: Sequence[float] = (3.0, 6.0)
    ) -> None:
        super().__init__()
        check_range("gate_range", gate_range, above=-math.inf)
        self.gate_range = gate_range
        self.forget = nn.Linear(d_model, n_heads)
        self.reset_special()

    def reset_special(self) -> None:
        """W = 0, and exp(bias) = sigmoid(g) with g spread over `gate_range`, as in xLSTM."""
        with torch.no_grad():
            self.forget.weight.zero_()
            low, high = self.gate_range
            gates = torch.linspace(low, high, self.forget.out_features)
            self.forget.bias.copy_(F.logsigmoid(gates))

    def forward(self, x: Float[Tensor, "b t d"], k: Float[Tensor, "b h s n"]) -> Transition:
        return Transition(log_decay=rearrange(self.forget(x), "b t h -> b h t 1"))


def check_range(name: str, limits: Sequence[float], above: float) -> None:
    if len(limits) != 2 or not above < limits[0] <= limits[1] < math.inf:
        raise ValueError(
            f"{name}={list(limits)} must be two numbers [low, high] with {above} < low <= high"
        )
