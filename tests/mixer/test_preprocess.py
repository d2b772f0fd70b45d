"""The short convolution: shifted sums on a CPU, conv1d elsewhere, one function."""

import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.mixer.slots.preprocess import ShortConv


def test_shifted_sums_equal_a_grouped_convolution() -> None:
    torch.manual_seed(0)
    conv = ShortConv(6, width=4).double()
    x = torch.randn(2, 9, 6, dtype=torch.float64, requires_grad=True)
    past = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 9, 6, dtype=torch.float64)

    def grouped(x: Tensor, past: Tensor) -> Tensor:
        extended = torch.cat([past, x], dim=1)
        return F.silu(F.conv1d(extended.mT, conv.kernel, groups=6).mT)

    ours, theirs = conv(x, past), grouped(x, past)
    torch.testing.assert_close(ours, theirs)
    inputs = (x, past, conv.kernel)
    for ours_grad, theirs_grad in zip(
        torch.autograd.grad((ours * weights).sum(), inputs),
        torch.autograd.grad((theirs * weights).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours_grad, theirs_grad)
