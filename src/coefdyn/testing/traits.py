"""Check numerically that slots are what their traits say."""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from coefdyn.mixer.slots.admission import PARTS
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.normalization import Normalization, Rows
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.scaling import Scaling
from coefdyn.mixer.slots.transition import Transition
from coefdyn.testing.forms import randomized

BATCH, HEADS, LENGTH, WIDTH, D_MODEL = 2, 2, 9, 4, 6


def check_traits(slot: Any) -> None:
    """Raise AssertionError with the trait that does not hold."""
    for kind, check in CHECKS.items():
        if isinstance(slot, kind):
            check(randomized(copy.deepcopy(slot)))  # an initial gate may be closed
            return
    raise AssertionError(
        f"{type(slot).__name__} is not an evolution, scaling, readout or normalization"
    )


def _normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def check_readout(readout: Readout) -> None:
    name = type(readout).__name__
    q, h = 5 * _normal(20_000, 3), 5 * _normal(20_000, 3, seed=1)
    sign = bool((readout.measure(q, h) >= 0).all())
    assert readout.nonnegative == sign, f"{name}.nonnegative must be {sign}"
    q, h = _normal(200, 3), _normal(200, 3, seed=1)
    alpha, scaled = readout.measure(q, h), readout.measure(q, 1.7 * h)
    degrees = [d for d in range(5) if torch.allclose(scaled, 1.7**d * alpha)]
    degree = degrees[0] if degrees else None
    assert readout.homogeneous == degree, f"{name}.homogeneous must be {degree}"
    if readout.feature_map is None:
        _check_function(readout, name)


def _check_function(readout: Readout, name: str) -> None:
    """Check the traits of phi as a function of the score."""
    s = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    exponential = torch.allclose(readout(s - 1.3), math.exp(-1.3) * readout(s))
    assert readout.exponential == exponential, f"{name}.exponential must be {exponential}"

    if readout.lower_bound is not None:
        lowest, bound = readout(s).min().item(), readout.lower_bound
        assert not readout.nonnegative, f"{name}.lower_bound is for a phi that may be negative"
        assert bound <= lowest, f"{name}.lower_bound must be at most {lowest:g}"

    points = readout(torch.linspace(-2, 2, 12, dtype=torch.float64))
    # For a polynomial of degree P, differences of order P + 1 vanish and those of order P do not.
    vanishing = [p for p in range(1, 8) if points.diff(p + 1).abs().max() < 1e-9]
    degree = vanishing[0] if vanishing else None
    assert readout.polynomial_degree == degree, f"{name}.polynomial must be of degree {degree}"

    inner = s[s != 0].clone().requires_grad_()
    alpha, weight = readout(inner), _normal(len(inner))
    (expected,) = torch.autograd.grad(alpha, inner, weight)
    gradient = readout.backward(weight, inner.detach(), alpha.detach())
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12, msg=f"{name}.backward")

    far = torch.tensor([-1e4, -100.0, -40.0, 40.0, 80.0])
    for scores in (far, far.double()):
        value = readout(scores.requires_grad_())
        (grad,) = torch.autograd.grad(value.sum(), scores)
        assert value.isfinite().all(), f"{name} overflows"
        assert grad.isfinite().all(), f"the derivative of {name} overflows"

    fine = torch.linspace(-30, 30, 200_001, dtype=torch.float64)
    for eps in (1e-3, 0.05):
        inside, near_an_end = (torch.zeros_like(fine, dtype=torch.bool) for _ in range(2))
        for low, high in readout.near_zero_set(eps):
            inside |= (fine >= low) & (fine <= high)
            near_an_end |= ((fine - low).abs() < 1e-6) | ((fine - high).abs() < 1e-6)
        small = readout(fine).abs() <= eps
        assert (small == inside)[~near_an_end].all(), f"{name}.near_zero_set({eps}) is wrong"


def check_evolution(evolution: Evolution) -> None:
    name, x = type(evolution).__name__, _normal(BATCH, LENGTH, D_MODEL)
    steps = LENGTH * evolution.repeats
    k = _normal(BATCH, HEADS, steps, WIDTH, seed=1)
    transition: Transition = evolution(x, k)
    parts: dict[str, Any] = {
        "has_decay": transition.decay,
        **{trait: getattr(transition, part) for part, trait in PARTS.items()},
    }
    for trait, part in parts.items():
        present = part is not None
        assert getattr(evolution, trait) == present, f"{name}.{trait} must be {present}"
    assert (transition.direction is None) == (transition.erased is None), (
        f"{name} must give a direction, and a strength or a column, or neither"
    )
    if transition.factor is not None:
        far = evolution(20 * x, k).factor
        assert far is not None
        assert (far.abs() <= 1).all(), f"{name}: a factor must lie from -1 to 1"
    if transition.log_decay is not None:
        far = evolution(20 * x, k).log_decay
        assert far is not None
        grows = bool((far > 0).any())
        assert evolution.may_grow == grows, f"{name}.may_grow must be {grows}"
        per_channel = transition.per_channel
        assert evolution.per_channel == per_channel, f"{name}.per_channel must be {per_channel}"
        assert not (grows and per_channel), f"{name}: decays per channel must not exceed 1"
    if transition.direction is not None and transition.strength is not None:
        unit = torch.ones(BATCH, HEADS, steps, dtype=torch.float64)
        torch.testing.assert_close(transition.direction.norm(dim=-1), unit, msg=f"{name}: |w| = 1")
        assert ((transition.strength > 0) & (transition.strength <= 2)).all(), (
            f"{name}: the strength must lie in (0, 2]"
        )
    later = torch.cat([x[:, :-1], x[:, -1:] + 1], dim=1)
    last = evolution.repeats
    before, after = (evolution(z, k).matrices(like=k)[:, :, :-last] for z in (x, later))
    assert torch.equal(before, after), f"{name}: A_t depends on what comes later"


def check_scaling(scaling: Scaling) -> None:
    name, x = type(scaling).__name__, _normal(BATCH, LENGTH, D_MODEL)
    shape = (BATCH, HEADS, LENGTH)
    positive = _normal(*shape, seed=1).exp()
    transition = Transition(step_size=positive, strength=positive.clamp(max=2))
    b = scaling(x, transition)
    b = (b.exp() if scaling.log_space else b).expand(shape)
    assert (b > 0).all(), f"{name}: b_j must be positive"
    constant = b.flatten()[0].item() if b.min() == b.max() else None
    assert scaling.constant == constant, f"{name}.constant must be {constant}"
    for trait, part in (("needs_step_size", "step_size"), ("needs_strength", "strength")):
        if not getattr(scaling, trait):
            without = Transition(**{**vars(transition), part: None})
            try:
                scaling(x, without)
            except Exception as error:
                raise AssertionError(f"{name}.{trait} must be true: {error}") from error


def check_normalization(normalization: Normalization) -> None:
    name, x = type(normalization).__name__, _normal(BATCH, LENGTH, D_MODEL)
    shape = (BATCH, HEADS, LENGTH)
    total, unit = _normal(*shape, seed=1), _normal(*shape, seed=2)

    def eta(total: Tensor, log_unit: Tensor | None = None, nonnegative: bool = False) -> Tensor:
        rows = Rows(total, log_unit, nonnegative=nonnegative, start=0)
        return normalization(x, rows).expand(shape)

    plain, doubled = eta(total), eta(2 * total)
    one = bool((plain == 1).all())
    assert normalization.is_one == one, f"{name}.is_one must be {one}"
    uses = not torch.equal(plain, doubled)
    assert normalization.uses_row_sum == uses, f"{name}.uses_row_sum must be {uses}"
    invariant = torch.allclose(doubled, 2 * plain)
    assert normalization.scale_invariant == invariant, f"{name}.scale_invariant must be {invariant}"
    sums = torch.allclose(plain, total)
    assert normalization.sums_to_one == sums, f"{name}.sums_to_one must be {sums}"
    assert (eta(total.abs(), nonnegative=True) > 0).all(), f"{name}: eta must be positive"
    if normalization.accepts_unit:
        in_unit = eta(total * torch.exp(-unit), unit) * torch.exp(unit)
        torch.testing.assert_close(in_unit, plain, msg=f"{name}.accepts_unit does not hold")


CHECKS: dict[type[nn.Module], Any] = {
    Readout: check_readout,
    Evolution: check_evolution,
    Scaling: check_scaling,
    Normalization: check_normalization,
}
