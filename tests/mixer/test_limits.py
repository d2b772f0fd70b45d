"""Extreme decays, growth and empty rows leave values and gradients finite, and right."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.mixer.design import Design, Projected
from coefdyn.mixer.evolution import Evolution
from coefdyn.mixer.normalization import Mlstm, Normalization, One, RowSum
from coefdyn.mixer.readout import Exp, Identity, Kernel, Readout, Relu, Softplus
from coefdyn.mixer.scaling import InverseSqrt
from coefdyn.mixer.scaling import One as Unscaled
from coefdyn.mixer.transition import Transition
from tests import designs

WIDTH, MODEL = 4, 3


class Given(Evolution):
    """An evolution whose log decay, and direction if any, are what the test says."""

    has_decay = True

    def __init__(self, log_decay: Tensor, strength: float | None = None) -> None:
        super().__init__()
        self.log_decay = log_decay.clone().requires_grad_()
        self.has_direction = strength is not None
        self.value = strength
        self.may_grow = bool((log_decay > 0).any())

    def forward(self, x: Tensor, k: Tensor) -> Transition:
        if self.value is None:
            return Transition(log_decay=self.log_decay)
        beta = torch.full(k.shape[:3], self.value, dtype=k.dtype)
        return Transition(self.log_decay, F.normalize(k, dim=-1), beta)


def outcome(
    evolution: Given, readout: Readout, normalization: Normalization, form: str, dtype: torch.dtype
) -> list[Tensor]:
    """y and the gradients of x, q, k, v and the log decay."""
    torch.manual_seed(1)
    design = Design(evolution, Unscaled(), readout, normalization).to(dtype)
    length = evolution.log_decay.shape[2]
    x, q, k, v = (
        torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in [(1, length, MODEL), *[(1, 2, length, WIDTH)] * 3]
    )
    y = getattr(design, form)(Projected(x, q, k, v, k))
    inputs = (x, q, k, v, evolution.log_decay)
    grads = torch.autograd.grad(y, inputs, torch.randn(y.shape).to(dtype), materialize_grads=True)
    return [y, *grads]


def assert_finite_and_right(
    log_decay: Tensor,
    readout: Readout,
    normalization: Normalization,
    form: str,
    strength: float | None = None,
    tolerance: float = 1e-2,
) -> None:
    """float32 is finite and near float64, which takes the same inputs with room to spare."""
    single = outcome(
        Given(log_decay.float(), strength), readout, normalization, form, torch.float32
    )
    double = outcome(
        Given(log_decay.double(), strength), readout, normalization, form, torch.float64
    )
    for actual, expected in zip(single, double, strict=True):
        assert actual.isfinite().all()
        error = (actual - expected).norm() / expected.norm().clamp(min=1e-6)
        assert error < tolerance, f"relative error {error:.1e}"


FORMS = [
    (Identity(), One(), "linear"),
    (Identity(), One(), "quadratic"),
    (Identity(), Mlstm(MODEL, 2), "linear"),
    (Exp(), RowSum(1e-6), "quadratic"),
    (Relu(), RowSum(1e-6), "quadratic"),
    (Softplus(), RowSum(1e-6), "quadratic"),
    (Kernel(Relu()), RowSum(1e-6), "linear"),
]


@pytest.mark.parametrize(("readout", "normalization", "form"), FORMS)
@pytest.mark.parametrize("channels", [1, WIDTH])
def test_strong_decay_over_2048_steps(
    readout: Readout, normalization: Normalization, form: str, channels: int
) -> None:
    """lambda down to 1e-4: log-uniform over [1e-4, 1] at every step."""
    log_decay = math.log(1e-4) * torch.rand(1, 2, 2048, channels)
    assert_finite_and_right(log_decay, readout, normalization, form)


@pytest.mark.parametrize("form", ["linear", "quadratic"])
def test_strong_decay_with_householder_over_2048_steps(form: str) -> None:
    log_decay = math.log(1e-4) * torch.rand(1, 2, 2048, WIDTH)
    assert_finite_and_right(log_decay, Identity(), One(), form, strength=1.0)


@pytest.mark.parametrize(("readout", "normalization", "form"), FORMS[2:])
def test_growth_of_105_over_512_steps_is_finite_where_eta_undoes_it(
    readout: Readout, normalization: Normalization, form: str
) -> None:
    """Keys grow by 1.05^512 = 7e10; alpha/eta is bounded all the same."""
    # exp of scores of 1e10 picks the largest: a float32 rounding of the score decides which.
    tolerance = math.inf if readout.exponential else 1e-2
    log_decay = torch.full((1, 2, 512, 1), math.log(1.05))
    assert_finite_and_right(log_decay, readout, normalization, form, tolerance=tolerance)


@pytest.mark.parametrize(
    ("readout", "normalization", "form"), [f for f in FORMS[2:] if f[0].homogeneous]
)
def test_growth_beyond_float32_is_finite_for_homogeneous_readouts(
    readout: Readout, normalization: Normalization, form: str
) -> None:
    """Keys grow by e^256; other readouts would need phi of a score that float32 cannot hold."""
    log_decay = torch.full((1, 2, 512, 1), 0.5)
    assert_finite_and_right(log_decay, readout, normalization, form)


def test_growth_of_105_over_512_steps_without_normalization() -> None:
    log_decay = torch.full((1, 2, 512, 1), math.log(1.05))
    for form in ("linear", "quadratic"):
        assert_finite_and_right(log_decay, Identity(), One(), form)


def test_units_do_not_change_the_function() -> None:
    """Growth then decay then growth: the linear, quadratic and recurrent forms agree with the
    loops, which use no units, in float64."""
    rates = torch.cat([torch.full((20,), r, dtype=torch.float64) for r in (1.5, -2.0, 0.7)])
    evolution = Given(rates.expand(1, 2, 60).unsqueeze(-1))
    for readout in (Identity(), Relu(), Kernel(Relu())):
        for normalization in (RowSum(1e-6), Mlstm(MODEL, 2)):
            reference = outcome(evolution, readout, normalization, "definition", torch.float64)
            for form in ["quadratic"] + ["linear"] * (not isinstance(readout, Relu)):
                found = outcome(evolution, readout, normalization, form, torch.float64)
                for actual, expected in zip(found, reference, strict=True):
                    scale = expected.abs().max()
                    torch.testing.assert_close(
                        actual, expected, rtol=1e-7, atol=1e-9 * scale.item()
                    )


@pytest.mark.parametrize("readout", [Relu(), Kernel(Relu())])
@pytest.mark.parametrize("form", ["definition", "quadratic"])
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
    alpha, eta = design.coefficients(Projected(x, q, k, v, k))
    assert (alpha / eta.unsqueeze(-1)).eq(0).all()
    guarded = design.normalization.guarded(design.rows(alpha))
    assert guarded is not None
    assert guarded.all()


def test_orthogonal_features_give_a_zero_row_no_gradient() -> None:
    """Here psi(q) and psi(k) are positive, in different channels: only the rule stops gradients."""
    design = Design(
        designs.slot("evolution", "identity"), InverseSqrt(2, 1), Kernel(Relu()), RowSum(1e-6)
    )
    q = torch.tensor([[[[1.0, -1.0]]]], requires_grad=True)
    k = torch.tensor([[[[-1.0, 1.0]]]], requires_grad=True)
    for form in ("definition", "quadratic", "linear"):
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
    for form in ("definition", "quadratic", "linear"):
        y = getattr(design, form)(Projected(x, q, k, v, k))
        torch.testing.assert_close(y.flatten(), torch.tensor([1.0, (1.0 - 3.0) / 0.25]))
    alpha, eta = design.coefficients(Projected(x, q, k, v, k))
    assert eta.flatten().tolist() == [1.0, 0.25]
    guarded = design.normalization.guarded(design.rows(alpha))
    assert guarded is not None
    assert guarded.flatten().tolist() == [False, True]
