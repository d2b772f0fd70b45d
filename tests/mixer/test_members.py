"""Members are what their equations and traits say, numerically; they are found from conf/."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.config.build import DESIGN_SLOTS
from coefdyn.config.plugins import options
from coefdyn.mixer.slots.level_sets import level_set
from coefdyn.mixer.slots.normalization import Rows
from coefdyn.mixer.slots.readout import Kernel, Polynomial, ReluSquared
from coefdyn.testing import check_traits
from tests import designs

READOUTS = options("model/readout")
S = torch.linspace(-8, 8, 4001, dtype=torch.float64)

EQUATIONS = {
    "exp": torch.exp,
    "softplus": lambda s: torch.log1p(torch.exp(s)),
    "relu": lambda s: s.clamp(min=0),
    "identity": lambda s: s,
    "sigmoid": lambda s: 1 / (1 + torch.exp(-s)),
    "elu_plus_one": lambda s: torch.where(s > 0, s + 1, torch.exp(s)),
    "silu": lambda s: s / (1 + torch.exp(-s)),
    "gelu": lambda s: s * (1 + torch.erf(s / math.sqrt(2))) / 2,
    "tanh": lambda s: (torch.exp(s) - torch.exp(-s)) / (torch.exp(s) + torch.exp(-s)),
    "relu_squared": lambda s: s.clamp(min=0) ** 2,
    "polynomial": lambda s: s + s**2 / 2,
    "taylor_exp": lambda s: 1 + s + s**2 / 2,
}


@pytest.mark.parametrize(
    ("group", "name"),
    [(group, name) for group in DESIGN_SLOTS for name in options(f"model/{group}")],
)
def test_every_slot_keeps_what_its_traits_promise(group: str, name: str) -> None:
    """The contract that coefdyn.testing offers to plugins, on our own."""
    check_traits(designs.slot(group, name))


def elementwise() -> list[str]:
    return [name for name in READOUTS if designs.slot("readout", name).feature_map is None]


@pytest.mark.parametrize("name", sorted(EQUATIONS))
def test_readout_equals_its_equation(name: str) -> None:
    torch.testing.assert_close(designs.slot("readout", name)(S), EQUATIONS[name](S))


def test_a_polynomial_of_one_term_knows_its_degree_and_sign() -> None:
    assert Polynomial([0.0, 1.0]).homogeneous == 1
    assert not Polynomial([0.0, 1.0]).nonnegative
    assert Polynomial([0.0, 0.0, 3.0]).homogeneous == 2
    assert Polynomial([0.0, 0.0, 3.0]).nonnegative
    assert Polynomial([1.0, 1.0]).homogeneous is None


def test_narrow_near_zero_sets_of_polynomials_are_found() -> None:
    """s + 0.3 s^2 is small around 0 and around -10/3, on intervals of 2e-3."""
    intervals = Polynomial([0.0, 1.0, 0.3]).near_zero_set(1e-3)
    middles = [(low + high) / 2 for low, high in intervals]
    assert np.allclose(middles, [-10 / 3, 0], atol=1e-3)


def test_complex_roots_of_a_polynomial_are_no_ends() -> None:
    """s + s^3 = 1e-3 has a real root, and two complex ones whose real part lies between."""
    (found,) = Polynomial([0.0, 1.0, 0.0, 1.0]).near_zero_set(1e-3)
    assert found == pytest.approx((-1e-3 + 1e-9, 1e-3 - 1e-9), rel=1e-8)


def test_kernels_refuse_feature_maps_of_another_degree() -> None:
    with pytest.raises(ValueError, match="of degree 1"):
        Kernel(ReluSquared())


@pytest.mark.parametrize("name", elementwise())
def test_near_zero_sets_end_where_phi_is_eps(name: str) -> None:
    """On both sides of every end; that nothing is left out in between, check_traits scans."""
    readout, eps = designs.slot("readout", name), 0.02
    intervals = readout.near_zero_set(eps)
    assert bool(intervals) == (name != "taylor_exp")  # 1 + s + s^2/2 is at least 1/2
    assert intervals == sorted(intervals)
    for interval in intervals:
        for end, inward in zip(interval, (1, -1), strict=True):
            if math.isinf(end):
                assert readout(torch.tensor(-700.0 * inward).double()).abs() <= eps
                continue
            near = torch.tensor([end + inward * 1e-9, end - inward * 1e-9], dtype=torch.float64)
            inside, outside = readout(near).abs().tolist()
            assert inside <= eps < outside, end


# At eps = 1e-3, by hand: log eps, log(e^eps - 1), log(eps/(1 - eps)), artanh eps.
ENDS = {
    "exp": [(-math.inf, -6.907755279)],
    "elu_plus_one": [(-math.inf, -6.907755279)],
    "softplus": [(-math.inf, -6.907255237)],
    "sigmoid": [(-math.inf, -6.906754779)],
    "relu": [(-math.inf, 1e-3)],
    "relu_squared": [(-math.inf, 0.0316227766)],
    "identity": [(-1e-3, 1e-3)],
    "tanh": [(-1.000000333e-3, 1.000000333e-3)],
}


@pytest.mark.parametrize("name", ENDS)
def test_the_papers_near_zero_sets(name: str) -> None:
    """exp, elu + 1, softplus and sigmoid are ties."""
    found = designs.slot("readout", name).near_zero_set(1e-3)
    assert found == [pytest.approx(interval, rel=1e-9) for interval in ENDS[name]]


def test_the_near_zero_set_of_a_kernel_is_that_of_its_sum() -> None:
    assert designs.slot("readout", "kernel_exp").near_zero_set(1e-3) == [(0.0, 1e-3)]


def test_level_sets_are_found_by_their_crossings() -> None:
    """|s^2 - 1| <= 0.19 around -1 and 1; what touches the end of the grid goes on for ever."""
    inner = level_set(lambda s: abs(s * s - 1), 0.19, points=2401)
    roots = (math.sqrt(0.81), math.sqrt(1.19))
    assert np.allclose(inner, [(-roots[1], -roots[0]), roots], atol=1e-12)
    assert level_set(lambda s: max(s, 0.0), 0.5, points=2401) == [(-math.inf, 0.5)]
    (found,) = level_set(lambda s: max(-s, 0.0), 0.25, points=2401)
    assert found == (pytest.approx(-0.25), math.inf)
    assert level_set(lambda _: 1.0, 0.5, points=11) == []


EVOLUTIONS = options("model/evolution")


def example(name: str) -> tuple[torch.nn.Module, Tensor, Tensor]:
    evolution = designs.mixer((name, "one", "identity", "one")).design.evolution
    return (
        evolution,
        torch.randn(2, 9, 6, dtype=torch.float64),
        torch.randn(2, 2, 9 * evolution.repeats, 4, dtype=torch.float64),
    )


@pytest.mark.parametrize("name", EVOLUTIONS)
def test_evolution_matrices_equal_their_equation(name: str) -> None:
    """A_t written from the formulas of the design space, parameter by parameter."""
    evolution, x, k = example(name)
    eye = torch.eye(4, dtype=torch.float64)

    def gla(part: torch.nn.Module) -> Tensor:
        lambda_ = torch.sigmoid(part.gate(x)) ** (1 / 16)
        return lambda_.unflatten(-1, (2, -1)).transpose(1, 2)

    def mamba2(part: torch.nn.Module) -> Tensor:
        delta = F.softplus(part.step(x)).mT.unsqueeze(-1)
        return torch.exp(-delta * part.log_rate.exp().unsqueeze(1))

    def diagonal(values: Tensor) -> Tensor:
        return values.expand(2, 2, 9, 4).unsqueeze(-1) * eye

    def signed(part: torch.nn.Module) -> Tensor:
        return 2 * torch.sigmoid(part.gate(x)).unflatten(-1, (2, -1)).transpose(1, 2) - 1

    def rotation(angles: Tensor) -> Tensor:
        """Channels 0 and 2 by the first angle, 1 and 3 by the second."""
        R = torch.zeros(*angles.shape[:-1], 4, 4, dtype=torch.float64)
        for p in range(2):
            cos, sin = angles[..., p].cos(), angles[..., p].sin()
            R[..., p, p], R[..., p, p + 2] = cos, -sin
            R[..., p + 2, p], R[..., p + 2, p + 2] = sin, cos
        return R

    rotary = rotation(-torch.tensor([1.0, 0.01], dtype=torch.float64)).expand(2, 2, 9, 4, 4)
    gamma = 1 - 2.0 ** -torch.tensor([5.0, 6.0], dtype=torch.float64).view(1, 2, 1, 1)

    def turned(part: torch.nn.Module) -> Tensor:
        delta = F.softplus(part.of.step(x)).mT.unsqueeze(-1)
        return rotation(delta * part.rate(x).unflatten(-1, (2, 2)).transpose(1, 2))

    def sheared(A: Tensor, shear: Tensor) -> Tensor:
        """The last channel, times the shear, goes into the one before it."""
        larger = torch.eye(6, dtype=torch.float64).repeat(2, 2, 9, 1, 1)
        larger[..., :4, :4], larger[..., 4, 5] = A, shear
        return larger

    def forget(part: torch.nn.Module) -> Tensor:
        return F.logsigmoid(part.gate(x)).mT

    slopes = torch.tensor([2.0**-4, 2.0**-8], dtype=torch.float64).view(1, 2, 1)

    def rwkv7() -> Tensor:
        rate, decay = (
            part(x).sigmoid().unflatten(-1, (2, 4)).transpose(1, 2)
            for part in (evolution.rate, evolution.decay)
        )
        w = F.normalize(k * evolution.direction.view(2, 1, 4), dim=-1)
        lambda_ = torch.exp(-math.exp(-0.5) * decay)
        return diagonal(lambda_) - (rate * w).unsqueeze(-1) * w.unsqueeze(-2)

    def product(decay: Tensor, repeats: int = 2) -> Tensor:
        """Micro-steps of a step; the decay before the first."""
        beta = (2 * torch.sigmoid(evolution.strength(x))).unflatten(-1, (2, repeats))
        beta = beta.transpose(1, 2).flatten(2)[..., None, None]
        w = F.normalize(k, dim=-1)
        A = eye - beta * w.unsqueeze(-1) * w.unsqueeze(-2)
        A[:, :, ::repeats] = A[:, :, ::repeats] @ decay
        return A

    def householder(beta: Tensor | float) -> Tensor:
        w = k / k.norm(dim=-1, keepdim=True)
        beta = beta if isinstance(beta, float) else beta.mT[..., None, None]
        return eye - beta * w.unsqueeze(-1) * w.unsqueeze(-2)

    def learned(largest: float) -> Tensor:
        return largest * torch.sigmoid(getattr(evolution, "of", evolution).strength(x))

    expected = {
        "identity": lambda: eye.expand(2, 2, 9, 4, 4),
        "constant": lambda: (0.95 * eye).expand(2, 2, 9, 4, 4),
        "scalar_gla": lambda: diagonal(gla(evolution)),
        "diagonal_gla": lambda: diagonal(gla(evolution)),
        "scalar_mamba2": lambda: diagonal(mamba2(evolution)),
        "diagonal_mamba2": lambda: diagonal(mamba2(evolution)),
        "householder_key_fixed": lambda: householder(2.0),
        "householder_free_fixed": lambda: householder(2.0),
        "householder_key_learned": lambda: householder(learned(2.0)),
        "householder_key_positive": lambda: householder(learned(1.0)),
        "householder_free_learned": lambda: householder(learned(2.0)),
        "gated_householder": lambda: householder(learned(2.0)) @ diagonal(mamba2(evolution.decay)),
        "diagonal_householder": lambda: householder(learned(2.0)) @ diagonal(gla(evolution.decay)),
        "exp_forget": lambda: diagonal(evolution.forget(x).exp().mT.unsqueeze(-1)),
        "signed_gla": lambda: diagonal(signed(evolution)),
        "signed_mamba2": lambda: diagonal(2 * mamba2(evolution) - 1),
        "rotary": lambda: rotary,
        "retention": lambda: gamma.unsqueeze(-1) * rotary,
        "rotary_householder": lambda: householder(learned(2.0)) @ rotary,
        "mamba3": lambda: diagonal(mamba2(evolution.of)) @ turned(evolution),
        "alibi": lambda: sheared(eye, -slopes),
        "forget": lambda: sheared(eye, forget(evolution)),
        "forget_householder": lambda: sheared(householder(learned(2.0)), forget(evolution)),
        "rwkv7": rwkv7,
        "householder_product": lambda: product(eye),
        "householder_product_four": lambda: product(eye, repeats=4),
        "gated_householder_product": lambda: product(diagonal(mamba2(evolution.decay))),
    }
    assert name in expected, f"write the equation of {name} here"
    torch.testing.assert_close(evolution(x, k).matrices(like=k), expected[name]())


@pytest.mark.parametrize("name", options("model/scaling"))
def test_scaling_equals_its_equation(name: str) -> None:
    evolution = "householder_key_learned" if "strength" in name else "scalar_mamba2"
    design = designs.mixer((evolution, name, "identity", "one")).design
    x, k = torch.randn(2, 9, 6).double(), torch.randn(2, 2, 9, 4).double()
    transition = design.evolution(x, k)
    scaling, root = design.scaling, math.sqrt(4)
    expected = {
        "one": lambda: torch.ones(1).double(),
        "inverse_sqrt": lambda: torch.ones(1).double() / root,
        "gate": lambda: torch.sigmoid(scaling.gate(x)).mT,
        "gate_inverse_sqrt": lambda: torch.sigmoid(scaling.gate(x)).mT / root,
        "step_size": lambda: F.softplus(design.evolution.step(x)).mT,
        "strength_inverse_sqrt": lambda: transition.strength / root,
        "exp_input_inverse_sqrt": lambda: scaling.gate(x).exp().mT / root,
    }
    if name not in expected:
        pytest.skip("its equation is not written out here")
    found = scaling(x, transition)
    found = found.exp() if scaling.log_space else found
    torch.testing.assert_close(*torch.broadcast_tensors(found, expected[name]()))
    assert (found > 0).all()


@pytest.mark.parametrize("name", options("model/normalization"))
def test_normalization_equals_its_equation(name: str) -> None:
    eta = designs.mixer(("identity", "one", "identity", name)).design.normalization
    x, total = torch.randn(2, 9, 6).double(), torch.randn(2, 2, 9).double()
    expected = {
        "one": lambda: torch.ones(2, 2, 9).double(),
        "row_sum": lambda: total,
        "power": lambda: (1.05 ** torch.arange(1, 10).double()).expand(2, 2, 9),
        "exp_linear": lambda: eta.log_eta(x).exp().mT,
        "mlstm": lambda: total.abs().clamp(min=1) / torch.sigmoid(eta.output_gate(x)).mT,
    }
    if name not in expected:
        pytest.skip("its equation is not written out here")
    found = eta(x, Rows(total, None, nonnegative=False, start=0)).expand(2, 2, 9)
    torch.testing.assert_close(found, expected[name]())


@pytest.mark.parametrize("start", [0, 4])
def test_power_counts_from_the_start_of_the_sequence(start: int) -> None:
    eta = designs.slot("normalization", "power")
    rows = Rows(None, None, nonnegative=True, start=start)
    found = eta(torch.zeros(1, 2, 6), rows).flatten()
    torch.testing.assert_close(found, 1.05 ** (torch.tensor([1.0, 2.0]) + start))
