"""Signs, rotations, shears, two-sided vectors and repeats at their limits, and lemmas on them."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from coefdyn.config.build import build_mixer
from coefdyn.config.compose import compose
from coefdyn.errors import ConfigError
from coefdyn.mixer.design import Design
from coefdyn.mixer.forms.features import linear_terms
from coefdyn.mixer.slots.evolution import Evolution, Householder
from coefdyn.mixer.slots.normalization import One, RowSum
from coefdyn.mixer.slots.readout import Exp, Identity, Polynomial, Readout, Relu
from coefdyn.mixer.slots.relative_position import Alibi, Rotary
from coefdyn.mixer.slots.scaling import One as Unscaled
from coefdyn.mixer.slots.transition import Transition, rotated
from coefdyn.mixer.stream import Projected

WIDTH = 4
FEW = settings(max_examples=20, deadline=None)
SEEDS = st.integers(0, 2**31)


class Given(Evolution):
    """The transition that a test says."""

    def __init__(self, transition: Transition) -> None:
        super().__init__()
        self.transition = transition
        self.has_decay, self.per_channel = transition.decay is not None, transition.per_channel
        self.signed, self.has_angle = transition.factor is not None, transition.angle is not None
        self.has_direction = transition.direction is not None
        self.two_sided, self.has_shear = transition.column is not None, transition.shear is not None

    def forward(self, x: Tensor, k: Tensor) -> Transition:
        return self.transition


def normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def outcome(
    transition: Transition, form: str, readout: Readout, dtype: torch.dtype, seed: int = 0
) -> list[Tensor]:
    """y and the gradients of q, k, v and every part of the transition."""
    made = transition.map(lambda part: part.to(dtype).detach().requires_grad_())
    decay = made.angle if made.decay is None else made.decay
    some = next(x for x in (decay, made.direction, made.shear) if x is not None)
    steps = some.shape[2]
    q, k, v = (normal(seed + i, 1, 2, steps, WIDTH).to(dtype).requires_grad_() for i in range(3))
    design = Design(Given(made), Unscaled(), readout, One() if form == "linear" else RowSum())
    if not readout.exponential:
        design = Design(Given(made), Unscaled(), readout, One())
    given_ = Projected(torch.zeros(1, steps, 3, dtype=dtype), q, k, v, k)
    y = row_by_row(design, given_) if form == "rows" else getattr(design, form)(given_)
    parts = [x for x in vars(made).values() if isinstance(x, Tensor)]
    weight = normal(seed + 9, *y.shape).to(dtype)
    return [y, *torch.autograd.grad(y, (q, k, v, *parts), weight, materialize_grads=True)]


def row_by_row(design: Design, given_: Projected) -> Tensor:
    """The equations one step at a time, A_t as matrices."""
    transition = design.evolution(given_.x, given_.direction)
    A, q, k = transition.matrices(like=given_.k), given_.q, given_.k
    if transition.shear is not None:
        one, zero = torch.ones_like(q[..., :1]), torch.zeros_like(q[..., :1])
        q, k = torch.cat([q, one, zero], dim=-1), torch.cat([k, zero, one], dim=-1)
    keys, rows = k[:, :, :0], []
    for i in range(q.shape[2]):
        keys = torch.cat([keys @ A[:, :, i].mT, k[:, :, i : i + 1]], dim=2)
        alpha = design.readout((keys @ q[:, :, i].unsqueeze(-1)).squeeze(-1))
        total = alpha.sum(-1, keepdim=True) if design.normalization.uses_row_sum else 1.0
        rows.append((alpha / total).unsqueeze(2) @ given_.v[:, :, : i + 1])
    return torch.cat(rows, dim=2)


def assert_right(transition: Transition, form: str, readout: Readout, tolerance: float) -> None:
    """float32 is finite, and near the equations in float64."""
    single = transition.map(lambda part: part.float())
    found = outcome(single, form, readout, torch.float32)
    truth = outcome(single, "rows", readout, torch.float64)
    for actual, expected in zip(found, truth, strict=True):
        assert actual.isfinite().all()
        error = (actual - expected).norm() / expected.norm().clamp(min=1e-6)
        assert error < tolerance, f"{form}: relative error {error:.1e}"


LINEAR = ["quadratic", "linear", "compiled"]


@pytest.mark.parametrize("form", LINEAR)
@pytest.mark.parametrize("channels", [1, WIDTH])
def test_signs_through_zero_have_right_gradients(form: str, channels: int) -> None:
    """Exact zeros, numbers near zero of either sign, and 1 and -1."""
    factor = 2 * torch.rand(1, 2, 200, channels, dtype=torch.float64) - 1
    factor[:, :, 5], factor[:, :, 17], factor[:, :, 40:43] = 0.0, 1e-30, -1e-8
    factor[:, :, 60], factor[:, :, 61] = 1.0, -1.0
    assert_right(Transition(factor=factor), form, Identity(), 1e-5)


@pytest.mark.parametrize("form", ["quadratic", "compiled"])
@pytest.mark.parametrize("readout", [Exp(), Relu()])
def test_signs_through_zero_under_other_readouts(form: str, readout: Readout) -> None:
    factor = 2 * torch.rand(1, 2, 100, WIDTH, dtype=torch.float64) - 1
    factor[:, :, 5], factor[:, :, 17] = 0.0, 1e-30
    assert_right(Transition(factor=factor), form, readout, 1e-5)


@pytest.mark.parametrize("form", LINEAR)
def test_rotations_over_4096_steps(form: str) -> None:
    """A constant angle, whose sum is 4096 and more: float32 would know it to three digits."""
    steps, heads = 4096, 1
    angle = torch.tensor([1.0, 0.01], dtype=torch.float64).expand(1, heads, steps, 2)
    evolution = Given(Transition(angle=angle))
    design = Design(evolution, Unscaled(), Identity(), One())
    q, k, v = (normal(i, 1, heads, steps, WIDTH).float() for i in range(3))
    y = getattr(design, form)(Projected(torch.zeros(1, steps, 3), q, k, v, k))
    turned = -angle.cumsum(-2)
    q, k = rotated(q.double(), turned), rotated(k.double(), turned)
    expected = ((q @ k.mT).tril() @ v.double())[:, :, -200:]
    error = (y[:, :, -200:] - expected).norm() / expected.norm()
    assert error < 3e-6  # without turns, 4096 products in float32 have as much


@pytest.mark.parametrize("form", ["quadratic", "compiled"])
def test_long_sums_of_shears_keep_their_digits(form: str) -> None:
    """The sum is -8000, where float32 has steps of 5e-4; its differences over a few steps count."""
    shear = -4 * torch.rand(1, 2, 2048, dtype=torch.float64)
    assert_right(Transition(shear=shear), form, Exp(), 1e-5)


@pytest.mark.parametrize("form", LINEAR)
@pytest.mark.parametrize("early", [False, True])
def test_strong_decay_with_two_sided_vectors(form: str, early: bool) -> None:
    """lambda down to 1e-4. No form may divide by it."""
    log_decay = math.log(1e-4) * torch.rand(1, 2, 512, WIDTH, dtype=torch.float64)
    w = F.normalize(normal(5, 1, 2, 512, WIDTH), dim=-1)
    column = torch.rand(1, 2, 512, WIDTH, dtype=torch.float64) * w
    transition = Transition(log_decay=log_decay, direction=w, column=column, early=early)
    assert_right(transition, form, Identity(), 1e-5)


@pytest.mark.parametrize("form", LINEAR)
def test_signs_and_reflections_together(form: str) -> None:
    factor = 2 * torch.rand(1, 2, 100, WIDTH, dtype=torch.float64) - 1
    factor[:, :, 7] = 0.0
    w = F.normalize(normal(5, 1, 2, 100, WIDTH), dim=-1)
    beta = 2 * torch.rand(1, 2, 100, dtype=torch.float64)
    assert_right(Transition(factor=factor, direction=w, strength=beta), form, Identity(), 1e-5)


def structures(seed: int, steps: int, n: int) -> dict[str, Transition]:
    """One transition of each structure, in float64."""
    lam = torch.rand(1, 1, steps, n, dtype=torch.float64)
    w = F.normalize(normal(seed + 3, 1, 1, steps, n), dim=-1)
    beta, u = 2 * torch.rand(1, 1, steps, dtype=torch.float64), normal(seed + 4, 1, 1, steps, n)
    angle = normal(seed + 5, 1, 1, steps, n // 2)
    scalar = (0.3 + 0.6 * lam[..., :1]).log()
    return {
        "sign": Transition(factor=2 * lam[..., :1] - 1),
        "signs": Transition(factor=2 * lam - 1),
        "rotation": Transition(angle=angle),
        "rotation and decay": Transition(angle=angle, log_decay=scalar),
        "householder": Transition(direction=w, strength=beta),
        "rotation and householder": Transition(angle=angle, direction=w, strength=beta),
        "two-sided": Transition(log_decay=(0.3 + 0.6 * lam).log(), direction=w, column=0.3 * u),
        "two-sided, early": Transition(
            log_decay=(0.3 + 0.6 * lam).log(), direction=w, column=0.3 * u, early=True
        ),
        "shear": Transition(shear=normal(seed + 6, 1, 1, steps)),
    }


NAMES = list(structures(0, 2, 2))


@FEW
@given(SEEDS, st.sampled_from(NAMES), st.integers(1, 3))
def test_lemma_1_powers_of_a_score_are_recurrences_of_finite_state(
    seed: int, name: str, degree: int
) -> None:
    """(q . h)^p is read from a state that A_t (x) ... (x) A_t moves, whatever A_t is."""
    steps, n = 5, 2
    transition = structures(seed, steps, n)[name]
    q, k, v = (normal(seed + i, 1, 1, steps, n) for i in range(3))
    coefficients = [0.0] * degree + [1.0]
    design = Design(Given(transition), Unscaled(), Polynomial(coefficients), One())
    projected = Projected(torch.zeros(1, steps, 3, dtype=torch.float64), q, k, v, k)
    A, q, k, v = transition.matrices(like=k)[0, 0], q[0, 0], k[0, 0], v[0, 0]
    if transition.shear is not None:
        one, zero = torch.ones_like(q[:, :1]), torch.zeros_like(q[:, :1])
        q, k = torch.cat([q, one, zero], -1), torch.cat([k, zero, one], -1)

    def power(x: Tensor) -> Tensor:
        result = x
        for _ in range(degree - 1):
            result = torch.kron(result, x)
        return result

    state, found = torch.zeros(q.shape[-1] ** degree, n, dtype=torch.float64), []
    for t in range(steps):
        state = power(A[t]) @ state + torch.outer(power(k[t]), v[t])
        found.append(power(q[t]) @ state)
    expected = torch.stack(found)
    torch.testing.assert_close(design.definition(projected)[0, 0], expected)
    torch.testing.assert_close(design.quadratic(projected)[0, 0], expected)
    if design.recurrence_obstacle is None:
        torch.testing.assert_close(design.linear(projected)[0, 0], expected)
        terms = linear_terms(
            design.readout, *(x[None, None] for x in (q[:, :n], k[:, :n])), Transition()
        )
        assert [term.k.shape[-1] for term in terms] == [n**degree]
    else:
        assert "not implemented" in design.recurrence_obstacle or "implemented for" in (
            design.recurrence_obstacle
        )


@pytest.mark.parametrize("form", LINEAR)
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, factors=st.lists(st.floats(-1, 1), min_size=WIDTH, max_size=WIDTH))
def test_lemma_4_keys_are_scaled_and_flipped(form: str, seed: int, factors: list[float]) -> None:
    """a), b): with unit queries, the coefficients of the last step are h_Lj, channel by channel."""
    steps = 6
    lam = torch.tensor(factors, dtype=torch.float64)
    k, v = normal(seed, 1, 1, steps, WIDTH), torch.eye(steps, dtype=torch.float64)[None, None]
    distance = torch.arange(steps - 1, -1, -1, dtype=torch.float64).unsqueeze(-1)
    for scalar in (False, True):
        factor = (lam[:1] if scalar else lam).expand(1, 1, steps, -1)
        design = Design(Given(Transition(factor=factor)), Unscaled(), Identity(), One())
        for r in range(WIDTH):
            q = torch.zeros(1, 1, steps, WIDTH, dtype=torch.float64)
            q[..., r] = 1.0
            x = torch.zeros(1, steps, 3, dtype=torch.float64)
            y = getattr(design, form)(Projected(x, q, k, v, k))
            power = (lam[0] if scalar else lam[r]) ** distance[:, 0]
            torch.testing.assert_close(y[0, 0, -1], power * k[0, 0, :, r], rtol=1e-9, atol=1e-12)


def test_two_reflections_a_step_turn_a_plane() -> None:
    """Lemma 4 c): one reflection has determinant -1, two of them can be any rotation of a plane."""
    angle = 0.7
    first = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    second = torch.tensor([math.cos(angle / 2), math.sin(angle / 2), 0, 0], dtype=torch.float64)
    w = torch.stack([first, second]).expand(1, 1, 2, WIDTH)
    A = Transition(direction=w, strength=torch.full((1, 1, 2), 2.0).double()).matrices(like=w)
    turned = A[0, 0, 1] @ A[0, 0, 0]
    expected = torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    )
    torch.testing.assert_close(turned[:2, :2], expected.double())


BAD = [
    (["model=rope", "model.n_state=6", "model.n_heads=2"], ["pairs of channels", "n_heads"]),
    (["model=alibi", "model/readout=kernel_relu"], ["kernel readout has no score", "exp"]),
    (["model=deltaproduct", "model.evolution.repeats=0"], ["repeats >= 1", "repeats=0"]),
    (["model/evolution=diagonal_gla", "model.evolution.signed=true"], ["temperature=1"]),
    (
        ["model=gla", "model/evolution=signed_gla", "model.backend=fla"],
        ["no decays of either sign", "use auto or quadratic"],
    ),
    (["model=fox", "model/readout=identity", "model.backend=fla"], ["added to scores"]),
    (["model=rope", "model.evolution.base=-1.0"], ["base > 0"]),
    (["model=rwkv7", "model.evolution.rank=0"], ["rank >= 1"]),
    (["model=softmax_attention", "model/preprocess=short_conv_z"], ["direction of its own"]),
]


@pytest.mark.parametrize(("overrides", "words"), BAD, ids=lambda x: str(x)[:40])
def test_what_does_not_fit_is_refused_with_the_remedy(
    overrides: list[str], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        build_mixer(compose(["scale=smoke", *overrides]))
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_factors_that_do_not_commute_are_refused() -> None:
    from coefdyn.mixer.slots.evolution import Constant, GlaDecay
    from coefdyn.mixer.slots.two_sided import Rwkv7

    with pytest.raises(ValueError, match="must decay alike"):
        Rotary(8, 2, of=GlaDecay(6, 8, 2, per_channel=True))
    with pytest.raises(ValueError, match="decays and Householders"):
        Rotary(8, 2, of=Rwkv7(6, 8, 2))
    with pytest.raises(ValueError, match="does not grow"):
        Alibi(2, of=Constant(1.05))
    with pytest.raises(ValueError, match="nothing but a decay"):
        Householder(6, 2, own_direction=False, learned=True, strength=2.0, decay=Rotary(8, 2))
