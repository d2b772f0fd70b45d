"""What happens to q, k and v (and z_t) between their projection and the sequence model."""

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.mixer.fused import short_convolution


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

    With `applies_to` = qk the channels of v stay as they are.
    """

    neutral: ClassVar = {"applies_to": "qkv"}

    def __init__(self, channels: int, width: int = 4, applies_to: str = "qkv") -> None:
        super().__init__(channels)
        if width < 1:
            raise ValueError(f"preprocess=short_conv needs a width of at least 1, not {width}")
        if applies_to not in ("qkv", "qk"):
            raise ValueError(
                f"preprocess=short_conv applies_to={applies_to} is not known; choose qkv or qk"
            )
        self.width, self.applies_to = width, applies_to
        self.splits: list[int] | None = None  # set only where v is left out
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
        (q, k, v, *z), before = x.split(self.splits, dim=-1), past
        if past is not None:
            q_past, k_past, _, *z_past = past.split(self.splits, dim=-1)
            before = torch.cat([q_past, k_past, *z_past], dim=-1)
        sizes = [part.shape[-1] for part in (q, k, *z)]
        q, k, *z = self._convolved(torch.cat([q, k, *z], dim=-1), before).split(sizes, dim=-1)
        return torch.cat([q, k, v, *z], dim=-1)

    def settle(self, splits: Sequence[int]) -> None:
        if self.applies_to == "qk":
            self.splits = list(splits)
            q, k, _, *z = self.kernel.detach().split(self.splits)
            self.kernel = nn.Parameter(torch.cat([q, k, *z]))

    def _convolved(
        self, x: Float[Tensor, "b t c"], past: Float[Tensor, "b w c"] | None
    ) -> Float[Tensor, "b t c"]:
        if past is None:
            return short_convolution(x, self.kernel.squeeze(1))
        mixed = F.conv1d(self._extended(x, past).mT, self.kernel, groups=len(self.kernel))
        return F.silu(mixed.mT)
