"""The two block types, and the ablations that their norm makes vacuous."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.config.build import build_block
from coefdyn.config.compose import compose
from coefdyn.config.plugins import options
from coefdyn.model.blocks import Block

SIZES = ["model.d_model=12", "model.n_state=8", "model.d_value=12", "model.n_heads=2"]


def block(*overrides: str) -> Block:
    """A block in float64; the same seed gives the same weights to blocks of the same shape."""
    torch.manual_seed(3)
    return build_block(compose([*SIZES, "model.d_mlp=10", *overrides])).double()


def inputs(length: int = 40) -> Tensor:
    return torch.randn(2, length, 12, dtype=torch.float64)


def rms(x: Tensor, weight: Tensor, groups: int = 1) -> Tensor:
    grouped = x.unflatten(-1, (groups, -1))
    normed = grouped / (grouped.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight
    return normed.flatten(-2)


@pytest.mark.parametrize("kind", ["type1", "type2"])
@pytest.mark.parametrize("post_norm", ["all", "head", "none"])
@pytest.mark.parametrize("d_mlp", ["10", "null"])
def test_block_is_the_papers_figure(kind: str, post_norm: str, d_mlp: str) -> None:
    made = block(
        f"model/block={kind}", f"model.block.post_norm={post_norm}", f"model.d_mlp={d_mlp}"
    )
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = inputs()
    inner = rms(x, made.norm.weight)
    y = made.mixer(inner)
    if post_norm != "none":
        y = rms(y, made.post_norm.norm.weight, groups=2 if post_norm == "head" else 1)
    if kind == "type2":
        y = y * F.silu(inner @ made.gate.weight.T)
    x_mid = x + y @ made.output.weight.T
    expected = x_mid
    if d_mlp != "null":
        norm, mlp = made.mlp
        gate, value = (rms(x_mid, norm.weight) @ mlp.inner.weight.T).chunk(2, dim=-1)
        expected = x_mid + (F.silu(gate) * value) @ mlp.outer.weight.T
    torch.testing.assert_close(made(x), expected)


def difference(one: Block, other: Block) -> float:
    """Largest difference over outputs of O(1), the sequence model's own output being as large."""
    assert [p.shape for p in one.parameters()] == [p.shape for p in other.parameters()]
    with torch.no_grad():
        one.mixer.project.weight.mul_(4)
    other.load_state_dict(one.state_dict())
    x = inputs()
    return (one(x) - other(x)).abs().max().item()


POWER = ["model/evolution=constant", "model.evolution.c=1.05", "model/scaling=one"]


@pytest.mark.parametrize("readout", ["exp", "softplus", "relu"])
@pytest.mark.parametrize(("post_norm", "same"), [("all", True), ("head", True), ("none", False)])
def test_eta_one_and_power_are_one_function_under_a_post_norm(
    readout: str, post_norm: str, same: bool
) -> None:
    design = [*POWER, f"model/readout={readout}", f"model.block.post_norm={post_norm}"]
    one = block(*design, "model/normalization=one")
    power = block(*design, "model/normalization=power")
    # The norm's own eps 1e-6 is what is left of the difference.
    assert (difference(one, power) < 1e-3) == same


@pytest.mark.parametrize("evolution", options("model/evolution"))
@pytest.mark.parametrize(("post_norm", "same"), [("all", True), ("head", True), ("none", False)])
def test_scaling_is_vacuous_for_identity_readouts_under_a_post_norm(
    evolution: str, post_norm: str, same: bool
) -> None:
    design = [
        f"model/evolution={evolution}",
        "model/readout=identity",
        "model/normalization=one",
        f"model.block.post_norm={post_norm}",
    ]
    one, root = (block(*design, f"model/scaling={s}") for s in ("one", "inverse_sqrt"))
    # What a shear adds to a score has no factor b_j.
    assert (difference(one, root) < 1e-3) == (same and not one.mixer.design.evolution.has_shear)


@pytest.mark.parametrize("post_norm", ["all", "head", "none"])
def test_scaling_is_vacuous_for_relu_with_row_sum(post_norm: str) -> None:
    design = ["model/readout=relu", f"model.block.post_norm={post_norm}"]
    one, root = (block(*design, f"model/scaling={s}") for s in ("one", "inverse_sqrt"))
    assert difference(one, root) < 1e-9


@pytest.mark.parametrize("readout", ["exp", "softplus"])
def test_scaling_matters_for_other_readouts(readout: str) -> None:
    design = [f"model/readout={readout}"]
    one, root = (block(*design, f"model/scaling={s}") for s in ("one", "inverse_sqrt"))
    assert difference(one, root) > 1e-3
