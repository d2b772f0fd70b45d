"""Members of the design space that must coincide, and Table 1 in closed form."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.config.build import build_mixer
from coefdyn.config.compose import compose
from coefdyn.config.plugins import options
from coefdyn.mixer.design import Design
from coefdyn.mixer.slots.evolution import Constant, Evolution, Householder
from coefdyn.mixer.slots.readout import Polynomial
from coefdyn.mixer.slots.transition import Transition
from coefdyn.mixer.stream import Projected
from tests import designs

PRESETS = options("model")
SIZES = ["model.d_model=6", "model.n_state=8", "model.d_value=4", "model.n_heads=2"]


def preset(name: str) -> torch.nn.Module:
    """A small mixer of a preset in float64, with random parameters."""
    mixer = build_mixer(compose([f"model={name}", *SIZES])).double()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter))
    return mixer


def same(one: Design, other: Design, form: str = "quadratic") -> None:
    x, q, k, v = (
        torch.randn(*shape, dtype=torch.float64)
        for shape in [(2, 13, 6), (2, 2, 13, 4), (2, 2, 13, 4), (2, 2, 13, 2)]
    )
    torch.testing.assert_close(
        getattr(one.double(), form)(Projected(x, q, k, v, k)),
        getattr(other.double(), form)(Projected(x, q, k, v, k)),
    )


def design(evolution: object, readout: object = "identity", normalization: str = "one") -> Design:
    if isinstance(evolution, str):
        evolution = designs.slot("evolution", evolution)
    if isinstance(readout, str):
        readout = designs.slot("readout", readout)
    scaling = designs.slot("scaling", "inverse_sqrt")
    parts = (evolution, scaling, readout, designs.slot("normalization", normalization))
    return Design(*(copy.deepcopy(part) for part in parts))


@pytest.mark.parametrize("form", ["quadratic", "linear", "definition"])
def test_gated_deltanet_with_gate_one_is_deltanet(form: str) -> None:
    plain = designs.slot("evolution", "householder_key_learned")
    gated = Householder(6, 2, own_direction=False, learned=True, strength=2.0, decay=Constant(1.0))
    gated.strength = plain.strength
    same(design(plain), design(gated), form)


class Gates(Evolution):
    """A decay that is given, per head or per channel."""

    has_decay = True

    def __init__(self, log_decay: Tensor) -> None:
        super().__init__()
        self.log_decay = log_decay.double()

    def forward(self, x: Tensor, k: Tensor) -> Transition:
        return Transition(log_decay=self.log_decay)


@pytest.mark.parametrize("form", ["quadratic", "linear", "definition"])
@pytest.mark.parametrize("channels", [1, 4])
def test_gate_one_is_identity_evolution(form: str, channels: int) -> None:
    gates = Gates(torch.zeros(2, 2, 13, channels))
    same(design(gates), design("identity"), form)


@pytest.mark.parametrize("form", ["quadratic", "linear", "definition"])
@pytest.mark.parametrize("readout", ["identity", "taylor_exp"])
def test_scalar_is_diagonal_with_equal_channels(form: str, readout: str) -> None:
    gates = -torch.rand(2, 2, 13, 1)
    same(design(Gates(gates), readout), design(Gates(gates.expand(2, 2, 13, 4)), readout), form)


@pytest.mark.parametrize("form", ["quadratic", "linear", "definition"])
@pytest.mark.parametrize("evolution", ["diagonal_gla", "householder_key_learned"])
def test_polynomial_of_degree_one_is_identity(form: str, evolution: str) -> None:
    same(design(evolution), design(evolution, Polynomial([0.0, 1.0])), form)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_causal_and_independent_over_the_batch(name: str) -> None:
    mixer = preset(name)
    x = torch.randn(3, 20, 6, dtype=torch.float64)
    changed = x.clone()
    changed[0, 12:] += 1.0
    before, after = mixer(x), mixer(changed)
    torch.testing.assert_close(after[0, :12], before[0, :12])
    torch.testing.assert_close(after[1:], before[1:])
    assert not torch.allclose(after[0, 12:], before[0, 12:])


def products(transition: Transition, k: Tensor) -> Tensor:
    """P_ij = A_i ... A_{j+1} (identity for i = j, zero for j > i), multiplied out."""
    A = transition.matrices(like=k)
    length, n = k.shape[2], A.shape[-1]
    P = torch.zeros(*k.shape[:2], length, length, n, n, dtype=k.dtype)
    for j in range(length):
        P[:, :, j, j] = torch.eye(n, dtype=k.dtype)
        for i in range(j + 1, length):
            P[:, :, i, j] = A[:, :, i] @ P[:, :, i - 1, j]
    return P


def closed_form(name: str, mixer: torch.nn.Module, x: Tensor) -> Tensor:
    """alpha/eta written out for each preset: the "Coefficients" column of Table 1, and more."""
    given = mixer.projected(x)
    q, k = given.q, given.k
    root = q.shape[-1] ** 0.5
    transition = mixer.design.evolution(x, given.direction)
    beta, delta = transition.strength, transition.step_size
    if name in ("alibi", "fox", "path_fox"):  # a shear adds to scores the sum of what lies between
        shear, plain = transition.shear, replace(transition, shear=None)
        added = torch.stack([
            torch.stack([shear[..., j + 1 : i + 1].sum(-1) for j in range(x.shape[1])], -1)
            for i in range(x.shape[1])
        ], -2)  # fmt: skip
        dot = torch.einsum("bhin,bhijnm,bhjm->bhij", q, products(plain, k), k)
        causal = torch.ones(dot.shape[-2:], dtype=torch.bool).tril()
        return (dot / root + added).masked_fill(~causal, -torch.inf).softmax(-1)
    if "product" in name:  # a query reads after both micro-steps of its step
        P = products(transition, k)[:, :, 1::2]
        dot = torch.einsum("bhin,bhijnm,bhjm->bhij", q, P, k)
        return dot * beta.unsqueeze(-2) / root
    dot = torch.einsum("bhin,bhijnm,bhjm->bhij", q, products(transition, k), k)
    causal = torch.ones(dot.shape[-2:], dtype=torch.bool).tril()
    if name.startswith("softmax_attention") or name in ("rope", "path", "wall"):
        score = dot if name == "softmax_attention_unscaled" else dot / root
        return score.masked_fill(~causal, -torch.inf).softmax(-1)
    if name == "relu_attention":
        alpha = F.relu(dot) * causal
        total = alpha.sum(-1, keepdim=True)
        return torch.where(total > 0, alpha / total, 0.0)
    if name == "linear_attention":
        kernel = torch.einsum("bhin,bhjn->bhij", F.elu(q) + 1, F.elu(k / root) + 1) * causal
        return kernel / kernel.sum(-1, keepdim=True)
    if name == "normalized_attention":
        log_eta = mixer.design.normalization.log_eta(x).mT.unsqueeze(-1)
        return dot / (root * log_eta.exp())
    if name == "mlstm":
        log_input = mixer.design.scaling.gate(x).mT
        gate = mixer.design.normalization.output_gate(x).sigmoid().mT.unsqueeze(-1)
        alpha = dot * log_input.exp().unsqueeze(-2) / root
        return gate * alpha / alpha.sum(-1, keepdim=True).abs().clamp(min=1.0)
    if name in ("deltanet", "gated_deltanet", "deltanet_signed", "kda"):
        return dot * beta.unsqueeze(-2) / root
    if name in ("mamba2", "mamba3"):
        return dot * delta.unsqueeze(-2)
    if name in ("mamba2_unscaled", "rwkv7"):
        return dot
    if name.startswith("all_"):  # b_j = z_j/sqrt(n), z_j, or 1/sqrt(n); phi = Id or softplus
        gate = getattr(mixer.design.scaling, "gate", None)
        z = 1.0 if gate is None else gate(x).sigmoid().mT.unsqueeze(-2)
        score = dot * z / (1.0 if name == "all_but_p5" else root)
        if name != "all_but_p1":
            return score
        alpha = F.softplus(score) * causal
        return alpha / alpha.sum(-1, keepdim=True)
    known = ("gla", "householder", "mamba2_inverse_sqrt", "retnet")
    assert name in known, f"Table 1 has no closed form for {name}: add it here"
    return dot / root


@pytest.mark.parametrize("name", PRESETS)
def test_coefficients_equal_the_closed_form_of_table_1(name: str) -> None:
    mixer = preset(name)
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    alpha, eta = mixer.coefficients(x)
    weights = alpha / eta.unsqueeze(-1)
    torch.testing.assert_close(weights, closed_form(name, mixer, x))
    y = torch.einsum("bhij,bhjp->bihp", weights, mixer.projected(x).v).flatten(2)
    torch.testing.assert_close(mixer(x), y)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("softmax_attention", "convex"),
        ("linear_attention", "convex"),
        ("normalized_attention", "linear"),
        ("gla", "linear"),
        ("mamba2", "linear"),
        ("deltanet", "linear"),
        ("gated_deltanet", "linear"),
        ("mlstm", "linear"),
        *((name, "convex") for name in ("rope", "alibi", "fox", "path", "path_fox", "wall")),
        *((name, "linear") for name in ("retnet", "mamba3", "kda", "deltanet_signed", "rwkv7")),
        *((name, "linear") for name in ("deltaproduct", "gated_deltaproduct")),
    ],
)
def test_output_class_of_the_presets(name: str, expected: str) -> None:
    assert preset(name).output_class == expected


@pytest.mark.parametrize("readout", options("model/readout"))
@pytest.mark.parametrize("normalization", options("model/normalization"))
def test_output_class_agrees_with_the_coefficients(readout: str, normalization: str) -> None:
    """Signs and row sums of alpha/eta are what the class promises, and no stricter."""
    made = designs.mixer(("identity", "one", readout, normalization))
    x = 3 * torch.randn(8, 12, 6, dtype=torch.float64)
    alpha, eta, guarded = made.design.coefficients(made.projected(x))
    weights = alpha / eta.unsqueeze(-1)
    whole = torch.ones_like(eta, dtype=torch.bool) if guarded is None else ~guarded
    nonnegative = bool((weights >= 0).all())
    sums_to_one = bool(torch.isclose(weights.sum(-1)[whole], torch.ones(1).double()).all())
    expected = {
        (True, True): "convex",
        (True, False): "conical",
        (False, True): "affine",
        (False, False): "linear",
    }[nonnegative, sums_to_one]
    assert made.output_class == expected
