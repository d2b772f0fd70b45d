"""The short convolution: shifted sums on a CPU, conv1d elsewhere, one function."""

import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.mixer.slots.preprocess import Nothing, ShortConv


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


def test_a_step_is_made_of_the_last_four_of_its_own_channel() -> None:
    """Written out: the last weight is that of the step itself, and before the first are zeros."""
    conv, x = ShortConv(2, width=4).double(), torch.randn(1, 6, 2, dtype=torch.float64)
    found = conv(x)
    for t in range(6):
        for c in range(2):
            terms = [conv.kernel[c, 0, 3 - s] * x[0, t - s, c] for s in range(4) if t >= s]
            total = torch.stack(terms).sum()
            torch.testing.assert_close(found[0, t, c], total / (1 + torch.exp(-total)))
    assert torch.equal(Nothing(2)(x), x)


def test_what_is_remembered_is_all_that_a_convolution_needs() -> None:
    conv, x = ShortConv(2, width=4).double(), torch.randn(1, 7, 2, dtype=torch.float64)
    whole, past, parts = conv(x), None, []
    for part in x.split([1, 2, 4], dim=1):
        parts.append(conv(part, past))
        past = conv.remember(part, past)
        assert past.shape == (1, 3, 2)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)
