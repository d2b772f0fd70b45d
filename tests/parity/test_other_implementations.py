"""Our designs equal other people's implementations of the same architecture."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coefdyn.config.build import build_mixer
from coefdyn.config.compose import compose
from coefdyn.mixer.design import Design
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.normalization import Mlstm, One, RowSum
from coefdyn.mixer.slots.readout import Exp, Identity
from coefdyn.mixer.slots.scaling import InverseSqrt, Scaling, Strength
from coefdyn.mixer.slots.transition import Transition
from coefdyn.mixer.stream import Projected
from tests import designs

BATCH, HEADS, LENGTH, WIDTH, VALUE, MODEL = 2, 3, 75, 8, 6, 5


def heads(width: int) -> Tensor:
    return torch.randn(BATCH, HEADS, LENGTH, width, requires_grad=True)


class GivenEvolution(Evolution):
    """The transition that the other implementation is given too."""

    has_decay = has_direction = True

    def __init__(self, transition: Transition) -> None:
        super().__init__()
        self.transition = transition
        self.has_direction = self.has_strength = transition.direction is not None

    def forward(self, x: Tensor, k: Tensor) -> Transition:
        return self.transition


class GivenLogScaling(Scaling):
    log_space = True

    def __init__(self, log_b: Tensor) -> None:
        super().__init__()
        self.log_b = log_b

    def forward(self, x: Tensor, transition: Transition) -> Tensor:
        return self.log_b


def assert_same(ours: Tensor, theirs: Tensor, inputs: tuple[Tensor, ...], tolerance: float) -> None:
    """Values, and gradients of a random projection of them."""
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    weight = torch.randn_like(ours)
    for mine, other in zip(
        torch.autograd.grad(ours, inputs, weight, retain_graph=True),
        torch.autograd.grad(theirs, inputs, weight),
        strict=True,
    ):
        scale = other.abs().max().item()
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance * max(scale, 1.0))


def test_softmax_attention_equals_scaled_dot_product_attention() -> None:
    q, k, v = heads(WIDTH), heads(WIDTH), heads(VALUE)
    scaling = InverseSqrt(HEADS * WIDTH, HEADS)
    design = Design(designs.slot("evolution", "identity"), scaling, Exp(), RowSum(1e-6))
    ours = design.quadratic(Projected(torch.zeros(BATCH, LENGTH, MODEL), q, k, v, k))
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_same(ours, theirs, (q, k, v), 2e-5)


@pytest.mark.parametrize("form", ["quadratic", "linear"])
def test_gated_deltanet_equals_qwen3_next(form: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns about kernels that are not installed
        from transformers.models.qwen3_next import modeling_qwen3_next

    q, k, v = heads(WIDTH), heads(WIDTH), heads(VALUE)
    log_decay = (-torch.rand(BATCH, HEADS, LENGTH)).requires_grad_()
    beta = torch.rand(BATCH, HEADS, LENGTH, requires_grad=True)
    unit_q, unit_k = (F.normalize(z, dim=-1) for z in (q, k))
    evolution = GivenEvolution(Transition(log_decay.unsqueeze(-1), unit_k, beta))
    design = Design(evolution, Strength(HEADS * WIDTH, HEADS), Identity(), One())
    ours = getattr(design, form)(
        Projected(torch.zeros(BATCH, LENGTH, MODEL), unit_q, unit_k, v, unit_k)
    )
    theirs, _ = modeling_qwen3_next.torch_chunk_gated_delta_rule(
        *(z.transpose(1, 2) for z in (unit_q, unit_k, v, log_decay, beta))
    )
    assert_same(ours, theirs.transpose(1, 2), (q, k, v, log_decay, beta), 2e-4)


@pytest.mark.parametrize("form", ["quadratic", "linear"])
@pytest.mark.parametrize("input_gate", [0.0, 40.0])
def test_mlstm_equals_mlstm_kernels(form: str, input_gate: float) -> None:
    """With input gates around e^40 too, where only log space does not overflow in products."""
    from mlstm_kernels.torch.parallel.native.fw import mlstm_parallel_fw

    torch.set_default_dtype(torch.float64)
    try:
        q, k, v = heads(WIDTH), heads(WIDTH), heads(VALUE)
        forget = torch.randn(BATCH, HEADS, LENGTH, requires_grad=True)
        log_input = (torch.randn(BATCH, HEADS, LENGTH) + input_gate).requires_grad_()
        normalization = Mlstm(MODEL, HEADS)
        nn.init.zeros_(normalization.output_gate.weight)
        nn.init.constant_(normalization.output_gate.bias, 60.0)  # o = 1: theirs has no output gate
        evolution = GivenEvolution(Transition(F.logsigmoid(forget).unsqueeze(-1)))
        log_b = log_input - 0.5 * torch.tensor(float(WIDTH)).log()
        design = Design(evolution, GivenLogScaling(log_b), Identity(), normalization)
        ours = getattr(design, form)(Projected(torch.zeros(BATCH, LENGTH, MODEL), q, k, v, k))
        theirs, _, _ = mlstm_parallel_fw(q, k, v, log_input, forget, eps=0.0)
        assert_same(ours, theirs, (q, k, v, forget, log_input), 1e-9)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("form", ["quadratic", "linear"])
def test_mamba2_equals_transformers(form: str) -> None:
    """Our weights in their mixer; their gated norm and output projection set to identity."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import Mamba2Config
        from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    d_model = HEADS * VALUE
    sizes = {"d_model": d_model, "n_state": HEADS * WIDTH, "d_value": d_model, "n_heads": HEADS}
    config = compose(["model=mamba2", *(f"model.{name}={size}" for name, size in sizes.items())])
    ours: SequenceMixer = build_mixer(config)
    ours.backend = form
    theirs = Mamba2Mixer(
        Mamba2Config(
            hidden_size=d_model,
            expand=1,
            num_heads=HEADS,
            head_dim=VALUE,
            state_size=WIDTH,
            n_groups=HEADS,
            chunk_size=16,
            use_conv_bias=False,
            num_hidden_layers=1,
        ),
        layer_idx=0,
    )
    copy_weights(ours, theirs)
    x = torch.randn(BATCH, LENGTH, d_model, requires_grad=True)
    assert_same(ours(x), theirs.eval()(x), (x,), 1e-5)


def copy_weights(ours: SequenceMixer, theirs: nn.Module) -> None:
    """Their in_proj gives gate, v, k, q, step; ours gives q, k, v and the step apart."""
    q, k, v = ours.project.weight.split(ours.splits)
    conv_q, conv_k, conv_v = ours.preprocess.kernel.split(ours.splits)
    evolution = copy.deepcopy(ours.design.evolution)
    with torch.no_grad():
        gate = torch.zeros_like(v)
        theirs.in_proj.weight.copy_(torch.cat([gate, v, k, q, evolution.step.weight]))
        theirs.conv1d.weight.copy_(torch.cat([conv_v, conv_k, conv_q]))
        theirs.dt_bias.copy_(evolution.step.bias)
        theirs.A_log.copy_(evolution.log_rate.squeeze(-1))
        theirs.D.zero_()
        theirs.out_proj.weight.copy_(torch.eye(theirs.hidden_size))
    theirs.norm = IgnoreGate()


class IgnoreGate(nn.Module):
    def forward(self, hidden_states: Tensor, gate: Tensor) -> Tensor:
        return hidden_states
