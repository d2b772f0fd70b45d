"""A_t that read a key along one vector and take it off along another."""

import math
from collections.abc import Sequence

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.mixer.fused import unit
from coefdyn.mixer.shapes import head_width
from coefdyn.mixer.slots.evolution import Evolution, check_range
from coefdyn.mixer.slots.transition import Transition

FASTEST = math.exp(-0.5)  # -log lambda_t stays below it


class Rwkv7(Evolution):
    """A_t = diag(lambda_t) - (a_t * w_t) w_t^T, w_t the unit vector along xi * k_t.

    lambda_t = exp(-e^(-1/2) sigmoid(W_2 tanh(W_1 x_t) + bias)) and a_t = sigmoid(W_4 W_3 x_t +
    bias), one per channel. The bias of lambda starts spread over `decay_range`; xi is learned.
    RWKV-7, Peng et al. 2025.
    """

    has_decay = has_direction = two_sided = per_channel = True

    def __init__(
        self,
        d_model: int,
        n_state: int,
        n_heads: int,
        rank: int = 16,
        decay_range: Sequence[float] = (-6.0, -1.0),
    ) -> None:
        super().__init__()
        head_width(n_state, n_heads)
        if rank < 1:
            raise ValueError(f"evolution=rwkv7 needs rank >= 1, not {rank}")
        check_range("decay_range", decay_range, above=-math.inf)
        self.n_heads, self.decay_range = n_heads, decay_range
        self.decay = nn.Sequential(
            nn.Linear(d_model, rank, bias=False), nn.Tanh(), nn.Linear(rank, n_state)
        )
        self.rate = nn.Sequential(nn.Linear(d_model, rank, bias=False), nn.Linear(rank, n_state))
        self.direction = nn.Parameter(torch.empty(n_state))
        self.reset_special()

    def reset_special(self) -> None:
        """xi = 1; biases of lambda from the low to the high end of `decay_range`, head by head."""
        with torch.no_grad():
            self.direction.fill_(1.0)
            final = self.decay[-1]
            assert isinstance(final, nn.Linear)
            low, high = self.decay_range
            width = final.out_features // self.n_heads
            final.bias.copy_(torch.linspace(low, high, width).repeat(self.n_heads))

    def forward(self, x: Float[Tensor, "b t d"], k: Float[Tensor, "b h s n"]) -> Transition:
        def per_head(channels: Tensor) -> Tensor:
            return rearrange(channels, "b t (h n) -> b h t n", h=self.n_heads)

        w = unit(k * self.direction.view(self.n_heads, 1, -1))
        return Transition(
            log_decay=per_head(-FASTEST * self.decay(x).sigmoid()),
            direction=w,
            column=per_head(self.rate(x).sigmoid()) * w,
            early=True,
        )
