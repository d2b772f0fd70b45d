"""Extreme decays and growth leave values and gradients finite, and right."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.mixer.design import Design
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.normalization import Mlstm, Normalization, One, Rows, RowSum
from coefdyn.mixer.slots.readout import Exp, Identity, Kernel, Readout, Relu, Softplus
from coefdyn.mixer.slots.scaling import One as Unscaled
from coefdyn.mixer.slots.scaling import Scaling
from coefdyn.mixer.slots.transition import Transition
from coefdyn.mixer.stream import Projected
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
    normalization = copy.deepcopy(normalization)
    design = Design(evolution, Unscaled(), readout, normalization).to(dtype)
    length = evolution.log_decay.shape[2]
    x, q, k, v = (
        torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in [(1, length, MODEL), *[(1, 2, length, WIDTH)] * 3]
    )
    given = Projected(x, q, k, v, k)
    y = LOOPS[form](design, given) if form in LOOPS else getattr(design, form)(given)
    inputs = (x, q, k, v, evolution.log_decay)
    weight = torch.randn(y.shape, dtype=torch.float64).to(dtype)
    return [y, *torch.autograd.grad(y, inputs, weight, materialize_grads=True)]


def row_by_row(design: Design, given: Projected) -> Tensor:
    """The equations one output step at a time, without chunks and without units."""
    transition = design.evolution(given.x, given.direction)
    A = transition.matrices(like=given.k)
    keys, rows = given.k[:, :, :0], []
    for i in range(given.q.shape[2]):
        keys = torch.cat([keys @ A[:, :, i].mT, given.k[:, :, i : i + 1]], dim=2)
        alpha = design.readout.measure(given.q[:, :, i : i + 1].expand_as(keys), keys)
        seen = Rows(alpha.sum(-1, keepdim=True), None, design.readout.nonnegative, start=i)
        eta = design.normalization(given.x[:, i : i + 1], seen)
        rows.append((alpha / eta).unsqueeze(2) @ given.v[:, :, : i + 1])
    return torch.cat(rows, dim=2)


def step_by_step(design: Design, given: Projected) -> Tensor:
    """The recurrent form."""
    evolution, state, outputs = design.evolution, None, []
    whole = evolution.log_decay
    for t in range(given.q.shape[2]):
        now = slice(t, t + 1)
        evolution.log_decay = whole[:, :, now]
        token = Projected(
            given.x[:, now],
            *(z[:, :, now] for z in (given.q, given.k, given.v, given.direction)),
        )
        y, state = design.step(token, state)
        outputs.append(y)
    evolution.log_decay = whole
    return torch.cat(outputs, dim=2)


LOOPS = {"rows": row_by_row, "recurrent": step_by_step}


def assert_finite_and_right(
    log_decay: Tensor,
    readout: Readout,
    normalization: Normalization,
    form: str,
    strength: float | None = None,
) -> None:
    """float32 is finite, and near the row-by-row equations in float64 which need no care there."""
    single = Given(log_decay.float(), strength)
    double = Given(log_decay.float().double(), strength)
    found = outcome(single, readout, normalization, form, torch.float32)
    truth = outcome(double, readout, normalization, "rows", torch.float64)
    for actual, expected in zip(found, truth, strict=True):
        assert actual.isfinite().all()
        error = (actual - expected).norm() / expected.norm().clamp(min=1e-6)
        assert error < 1e-3, f"relative error {error:.1e}"


FORMS = [
    (Identity(), One(), "linear"),
    (Identity(), One(), "quadratic"),
    (Identity(), One(), "recurrent"),
    (Identity(), Mlstm(MODEL, 2), "linear"),
    (Identity(), Mlstm(MODEL, 2), "recurrent"),
    (Exp(), RowSum(1e-6), "quadratic"),
    (Relu(), RowSum(1e-6), "quadratic"),
    (Softplus(), RowSum(1e-6), "quadratic"),
    (Kernel(Relu()), RowSum(1e-6), "linear"),
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("readout", "normalization", "form"),
    [pytest.param(*f, marks=[pytest.mark.slow] * (f[2] == "recurrent")) for f in FORMS],
)
@pytest.mark.parametrize("channels", [1, WIDTH])
def test_strong_decay_over_2048_steps(
    readout: Readout, normalization: Normalization, form: str, channels: int
) -> None:
    """lambda down to 1e-4: log-uniform over [1e-4, 1] at every step."""
    log_decay = math.log(1e-4) * torch.rand(1, 2, 2048, channels)
    assert_finite_and_right(log_decay, readout, normalization, form)


@pytest.mark.parametrize(
    "form", ["linear", "quadratic", pytest.param("recurrent", marks=pytest.mark.slow)]
)
def test_strong_decay_with_householder_over_2048_steps(form: str) -> None:
    log_decay = math.log(1e-4) * torch.rand(1, 2, 2048, WIDTH)
    assert_finite_and_right(log_decay, Identity(), One(), form, strength=1.0)


@pytest.mark.parametrize(("readout", "normalization", "form"), FORMS[3:])
def test_growth_of_105_over_512_steps_is_finite_where_eta_undoes_it(
    readout: Readout, normalization: Normalization, form: str
) -> None:
    """Keys grow by 1.05^512 = 7e10; alpha/eta is bounded all the same."""
    log_decay = torch.full((1, 2, 512, 1), math.log(1.05))
    if not readout.exponential:
        assert_finite_and_right(log_decay, readout, normalization, form)
        return
    # exp of scores of 1e10 picks the largest: a rounding of the score decides which, and the
    # plain equations overflow.
    for value in outcome(Given(log_decay), readout, normalization, form, torch.float32):
        assert value.isfinite().all()


@pytest.mark.parametrize(
    ("readout", "normalization", "form"), [f for f in FORMS[3:] if f[0].homogeneous]
)
def test_growth_beyond_float32_is_finite_for_homogeneous_readouts(
    readout: Readout, normalization: Normalization, form: str
) -> None:
    """Keys grow by e^256; other readouts would need phi of a score that float32 cannot hold."""
    log_decay = torch.full((1, 2, 512, 1), 0.5)
    assert_finite_and_right(log_decay, readout, normalization, form)


def test_growth_of_105_over_512_steps_without_normalization() -> None:
    log_decay = torch.full((1, 2, 512, 1), math.log(1.05))
    for form in ("linear", "quadratic", "recurrent"):
        assert_finite_and_right(log_decay, Identity(), One(), form)


def test_units_do_not_change_the_function() -> None:
    """Growth then decay then growth: the linear, quadratic and recurrent forms agree with the
    loops, which use no units, in float64."""
    rates = torch.cat([torch.full((20,), r, dtype=torch.float64) for r in (1.5, -2.0, 0.7)])
    evolution = Given(rates.expand(1, 2, 60).unsqueeze(-1))
    for readout in (Identity(), Relu(), Kernel(Relu())):
        for normalization in (RowSum(1e-6), Mlstm(MODEL, 2)):
            reference = outcome(evolution, readout, normalization, "definition", torch.float64)
            for form in ["quadratic"] + ["linear", "recurrent"] * (not isinstance(readout, Relu)):
                found = outcome(evolution, readout, normalization, form, torch.float64)
                for actual, expected in zip(found, reference, strict=True):
                    scale = expected.abs().max()
                    torch.testing.assert_close(
                        actual, expected, rtol=1e-7, atol=1e-9 * scale.item()
                    )


@pytest.mark.parametrize(("readout", "form"), [(Identity(), "linear"), (Exp(), "quadratic")])
def test_tiny_coefficients_under_mlstm_leave_gradients_finite(readout: Readout, form: str) -> None:
    """Rows whose unit is e^-100: 1 in that unit is beyond float32."""
    log_b = torch.full((1, 1, 6), -100.0)
    scaling = GivenLogScaling(log_b) if form == "linear" else Unscaled()
    design = Design(Given(torch.zeros(1, 1, 6, 1)), scaling, readout, Mlstm(MODEL, 1))
    x, q, v = torch.randn(1, 6, MODEL), torch.ones(1, 1, 6, WIDTH), torch.randn(1, 1, 6, WIDTH)
    k = torch.full((1, 1, 6, WIDTH), 1.0 if form == "linear" else -25.0)
    y = getattr(design, form)(Projected(x, q, k, v, k))
    grads = torch.autograd.grad(y.sum(), list(design.normalization.parameters()))
    assert y.abs().max() < 1e-30
    assert all(grad.isfinite().all() for grad in grads)


def test_very_negative_scores_are_softmax_in_every_form() -> None:
    """exp(-100) is small, not zero: the rule for zero rows must not catch it."""
    design = Design(designs.slot("evolution", "identity"), Unscaled(), Exp(), RowSum(1e-6))
    x = torch.zeros(1, 3, MODEL).double()
    q, k, v = torch.ones(1, 1, 3, 1), torch.full((1, 1, 3, 1), -100.0), torch.randn(1, 1, 3, 2)
    given = Projected(x, q.double(), k.double(), v.double(), k.double())
    mean = v.double().cumsum(2) / torch.arange(1, 4).view(1, 1, 3, 1)
    for form in ("definition", "quadratic"):
        torch.testing.assert_close(getattr(design, form)(given), mean)
    alpha, eta, _ = design.coefficients(given)
    torch.testing.assert_close(
        (alpha / eta.unsqueeze(-1))[0, 0, 2], torch.full((3,), 1 / 3).double()
    )
    torch.testing.assert_close(
        alpha[0, 0, 2], torch.full((3,), math.exp(-100), dtype=torch.float64), atol=0, rtol=1e-9
    )


@pytest.mark.parametrize("readout", [Exp(), Identity(), Relu()])
def test_coefficients_stay_in_proportion_where_float64_overflows(readout: Readout) -> None:
    """Keys grow by e^1000, or e^(1.05^128): alpha/eta is what the quadratic form uses."""
    rate = math.log(1.05) if readout.exponential else 8.0
    evolution = Given(torch.full((1, 1, 128, 1), rate, dtype=torch.float64))
    design = Design(evolution, Unscaled(), readout, RowSum(1e-6))
    q, k, v = (3 * torch.randn(1, 1, 128, WIDTH, dtype=torch.float64) for _ in range(3))
    given = Projected(torch.zeros(1, 128, MODEL).double(), q, k, v, k)
    alpha, eta, _ = design.coefficients(given)
    weights = alpha / eta.unsqueeze(-1)
    assert weights.isfinite().all()
    torch.testing.assert_close(weights @ v, design.quadratic(given))


class GivenLogScaling(Scaling):
    log_space = True

    def __init__(self, log_b: Tensor) -> None:
        super().__init__()
        self.log_b = log_b

    def forward(self, x: Tensor, transition: Transition) -> Tensor:
        return self.log_b
