"""What happens to q, k and v (and z_t) between their projection and the sequence model."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.mixer.fused import short_convolution


class Preprocess(nn.Module):
    """A causal map of the projected channels; `width` - 1 earlier steps are all it remembers."""

    width = 1

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(
        self, x: Float[Tensor, "b t c"], past: Float[Tensor, "b w c"] | None = None
    ) -> Float[Tensor, "b t c"]:
        """`past` are the steps before the first, zeros if not given."""
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
    """x_t <- SiLU(sum_{s < width} kernel_{width-1-s} * x_{t-s}), each channel on its own."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels)
        if width < 1:
            raise ValueError(f"preprocess=short_conv needs a width of at least 1, not {width}")
        self.width = width
        self.kernel = nn.Parameter(torch.empty(channels, 1, width))
        self.reset_special()

    def reset_special(self) -> None:
        """torch's default for convolutions: uniform within 1/sqrt(width)."""
        nn.init.uniform_(self.kernel, -(self.width**-0.5), self.width**-0.5)

    def forward(
        self, x: Float[Tensor, "b t c"], past: Float[Tensor, "b w c"] | None = None
    ) -> Float[Tensor, "b t c"]:
        if past is None:
            return short_convolution(x, self.kernel.squeeze(1))
        mixed = F.conv1d(self._extended(x, past).mT, self.kernel, groups=self.channels)
        return F.silu(mixed.mT)
