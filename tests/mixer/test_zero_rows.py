"""Rows whose sum is zero, or nearly: what eta is then, in every form."""

import pytest
import torch

from coefdyn.mixer.design import Design
from coefdyn.mixer.slots.normalization import RowSum
from coefdyn.mixer.slots.readout import Identity, Kernel, Readout, Relu
from coefdyn.mixer.slots.scaling import InverseSqrt
from coefdyn.mixer.slots.scaling import One as Unscaled
from coefdyn.mixer.stream import Projected
from tests import designs

WIDTH, MODEL = 4, 3


@pytest.mark.parametrize("readout", [Relu(), Kernel(Relu())])
@pytest.mark.parametrize("form", ["definition", "quadratic", "compiled"])
def test_all_zero_rows_give_zero_and_no_gradient(readout: Readout, form: str) -> None:
    """q > 0 > k: every score, and every product of features, is zero."""
    design = Design(
        designs.slot("evolution", "identity"), InverseSqrt(WIDTH, 1), readout, RowSum(1e-6)
    )
    x = torch.randn(1, 5, MODEL)
    q = (torch.rand(1, 1, 5, WIDTH) + 0.1).requires_grad_()
    k = (-torch.rand(1, 1, 5, WIDTH) - 0.1).requires_grad_()
    v = torch.randn(1, 1, 5, WIDTH, requires_grad=True)
    y = getattr(design, form)(Projected(x, q, k, v, k))
    grads = torch.autograd.grad(y.sum(), (q, k, v))
    assert y.eq(0).all()
    assert all(grad.eq(0).all() for grad in grads)
    alpha, eta, guarded = design.coefficients(Projected(x, q, k, v, k))
    assert (alpha / eta.unsqueeze(-1)).eq(0).all()
    assert guarded is not None
    assert guarded.all()


def test_orthogonal_features_give_a_zero_row_no_gradient() -> None:
    """Here psi(q) and psi(k) are positive, in different channels: only the rule stops gradients."""
    design = Design(
        designs.slot("evolution", "identity"), InverseSqrt(2, 1), Kernel(Relu()), RowSum(1e-6)
    )
    q = torch.tensor([[[[1.0, -1.0]]]], requires_grad=True)
    k = torch.tensor([[[[-1.0, 1.0]]]], requires_grad=True)
    for form in ("definition", "quadratic", "linear", "compiled"):
        y = getattr(design, form)(
            Projected(torch.zeros(1, 1, MODEL), q, k, torch.ones(1, 1, 1, 2), k)
        )
        grads = torch.autograd.grad(y.sum(), (q, k))
        assert y.eq(0).all()
        assert all(grad.eq(0).all() for grad in grads)


def test_signed_row_sums_are_kept_away_from_zero() -> None:
    """Scores +1 and -1 cancel: eta is eps with the sign of the sum (plus at zero)."""
    design = Design(designs.slot("evolution", "identity"), Unscaled(), Identity(), RowSum(eps=0.25))
    q = torch.ones(1, 1, 2, 1)
    k = torch.tensor([[[[1.0], [-1.0]]]])
    v = torch.tensor([[[[1.0], [3.0]]]])
    x = torch.zeros(1, 2, MODEL)
    for form in ("definition", "quadratic", "linear", "compiled"):
        y = getattr(design, form)(Projected(x, q, k, v, k))
        torch.testing.assert_close(y.flatten(), torch.tensor([1.0, (1.0 - 3.0) / 0.25]))
    _, eta, guarded = design.coefficients(Projected(x, q, k, v, k))
    assert eta.flatten().tolist() == [1.0, 0.25]
    assert guarded is not None
    assert guarded.flatten().tolist() == [False, True]
