"""What happens to q, k and v (and z_t) between their projection and the sequence model."""

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.mixer.fused import short_convolution

Q, K, V = range(3)
LEFT_OUT = {"qkv": (), "qk": (V,), "z": (Q, K, V)}  # by `applies_to`, of q, k, v and z


class Preprocess(nn.Module):
    """A causal map of the projected channels. It looks back at most `width` - 1 steps."""

    width = 1

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def settle(self, splits: Sequence[int]) -> None:
        """Called once with the number of channels of q, k, v and, if A_t has its own, z."""

    def forward(
        self, x: Float[Tensor, "b t c"], past: Float[Tensor, "b w c"] | None = None
    ) -> Float[Tensor, "b t c"]:
        """`past` holds the `width` - 1 steps before the first; None stands for zeros."""
        return x

    def remember(
        self, x: Float[Tensor, "b t c"], past: Float[Tensor, "b w c"] | None
    ) -> Float[Tensor, "b w c"]:
        """The steps to pass as `past` next time."""
        return self._extended(x, past)[:, x.shape[1] :]

    def _extended(
        self, x: Float[Tensor, "b t c"], past: Float[Tensor, "b w c"] | None
    ) -> Float[Tensor, "b s c"]:
        if past is None:
            past = x.new_zeros(x.shape[0], self.width - 1, x.shape[2])
        return torch.cat([past, x], dim=1)


class Nothing(Preprocess):
    """q, k, v as projected."""


class ShortConv(Preprocess):
    """x_t <- SiLU(sum_{s < width} kernel_{width-1-s} * x_{t-s}), each channel on its own.

    With `applies_to` = qk the channels of v stay as they are; with z, those of q, k and v.
    """

    neutral: ClassVar = {"applies_to": "qkv"}

    def __init__(self, channels: int, width: int = 4, applies_to: str = "qkv") -> None:
        super().__init__(channels)
        if width < 1:
            raise ValueError(f"preprocess=short_conv needs a width of at least 1, not {width}")
        if applies_to not in LEFT_OUT:
            raise ValueError(
                f"preprocess=short_conv applies_to={applies_to} is not known; choose from "
                f"{', '.join(LEFT_OUT)}"
            )
        self.width, self.applies_to = width, applies_to
        self.splits: list[int] | None = None  # set only where something is left out
        self.kernel = nn.Parameter(torch.empty(channels, 1, width))
        self.reset_special()

    def reset_special(self) -> None:
        """torch's default for convolutions: uniform within 1/sqrt(width)."""
        nn.init.uniform_(self.kernel, -(self.width**-0.5), self.width**-0.5)

    def forward(
        self, x: Float[Tensor, "b t c"], past: Float[Tensor, "b w c"] | None = None
    ) -> Float[Tensor, "b t c"]:
        if self.splits is None:
            return self._convolved(x, past)
        before = None if past is None else torch.cat(self._taken(past), dim=-1)
        taken = self._taken(x)
        sizes = [part.shape[-1] for part in taken]
        convolved = list(self._convolved(torch.cat(taken, dim=-1), before).split(sizes, dim=-1))
        parts = x.split(self.splits, dim=-1)
        left_out = LEFT_OUT[self.applies_to]
        return torch.cat(
            [part if i in left_out else convolved.pop(0) for i, part in enumerate(parts)], dim=-1
        )

    def settle(self, splits: Sequence[int]) -> None:
        if not LEFT_OUT[self.applies_to]:
            return
        if self.applies_to == "z" and len(splits) == 3:
            raise ValueError(
                "preprocess=short_conv applies_to=z needs an evolution with a direction of its "
                "own, such as householder_free_learned; choose one, or applies_to=qkv"
            )
        self.splits = list(splits)
        self.kernel = nn.Parameter(torch.cat(self._taken(self.kernel.detach(), dim=0)))

    def _taken(self, x: Tensor, dim: int = -1) -> list[Tensor]:
        """The parts of x, of q, k, v and z, that are convolved."""
        assert self.splits is not None
        left_out = LEFT_OUT[self.applies_to]
        return [p for i, p in enumerate(x.split(self.splits, dim=dim)) if i not in left_out]

    def _convolved(
        self, x: Float[Tensor, "b t c"], past: Float[Tensor, "b w c"] | None
    ) -> Float[Tensor, "b t c"]:
        if past is None:
            return short_convolution(x, self.kernel.squeeze(1))
        mixed = F.conv1d(self._extended(x, past).mT, self.kernel, groups=len(self.kernel))
        return F.silu(mixed.mT)
