"""Where in the sequence a token stands, added to its embedding."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

STD = 0.02  # initial standard deviation of all embeddings


class Position(nn.Module):
    """x_t + (a vector that depends on t). `longest`: the most steps it has vectors for, if any."""

    longest: int | None = None

    def forward(self, x: Float[Tensor, "b t d"], start: int = 0) -> Float[Tensor, "b t d"]:
        """`start` is the number of steps before the first of x."""
        raise NotImplementedError


class Nothing(Position):
    """x_t as it is."""

    def forward(self, x: Float[Tensor, "b t d"], start: int = 0) -> Float[Tensor, "b t d"]:
        return x


class Learned(Position):
    """x_t + P_t, P a parameter with `max_length` rows, initially N(0, std)."""

    neutral: ClassVar = {"std": 0.02}

    def __init__(self, d_model: int, max_length: int, std: float = 0.02) -> None:
        super().__init__()
        if not std > 0:
            raise ValueError(f"position=learned needs std > 0, not std={std}")
        self.std = std
        self.table = nn.Embedding(max_length, d_model)
        self.longest = max_length

    def reset_special(self) -> None:
        """Rescale what `initialize` draws for all embeddings to `std`."""
        with torch.no_grad():
            self.table.weight *= self.std / STD

    def forward(self, x: Float[Tensor, "b t d"], start: int = 0) -> Float[Tensor, "b t d"]:
        end = start + x.shape[1]
        if end > self.table.num_embeddings:
            raise ValueError(
                f"a sequence of {end} steps is longer than model.max_length="
                f"{self.table.num_embeddings} of position=learned; raise it, or use "
                "position=sinusoidal or none"
            )
        return x + self.table.weight[start:end]


class Sinusoidal(Position):
    """x_t + (sin(t w_r), cos(t w_r))_r, w_r from 1 down to 1/10000. Vaswani et al. 2017."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model % 2:
            raise ValueError(f"position=sinusoidal needs an even model.d_model, not {d_model}")
        self.pairs = d_model // 2

    def forward(self, x: Float[Tensor, "b t d"], start: int = 0) -> Float[Tensor, "b t d"]:
        steps = torch.arange(start, start + x.shape[1], device=x.device, dtype=x.dtype)
        index = torch.arange(self.pairs, device=x.device, dtype=x.dtype)
        angle = steps.unsqueeze(-1) * torch.exp(-math.log(1e4) / self.pairs * index)
        return x + torch.cat([angle.sin(), angle.cos()], dim=-1)
