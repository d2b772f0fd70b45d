"""suite=mixer: the forms against SDPA, a dense implementation and transformers' delta rule."""

import warnings
from collections.abc import Iterator, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.benchmarks.measure import Result, Run, interleaved_medians, peak_megabytes, result
from coefdyn.config.build import build_design_mixer, readout
from coefdyn.config.compose import compose
from coefdyn.config.plugins import options
from coefdyn.mixer.design import Design, Projected
from coefdyn.mixer.forms.linear import linear_form
from coefdyn.mixer.sequence_mixer import MixerState, SequenceMixer
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.normalization import RowSum
from coefdyn.mixer.slots.readout import Exp, Readout, Relu, Sigmoid, Softplus
from coefdyn.mixer.slots.scaling import InverseSqrt
from coefdyn.mixer.slots.transition import Transition
from coefdyn.paper.looks import PRESETS

SUITE = "mixer"
BATCH, HEADS, LENGTH, WIDTH = 128, 16, 128, 8
FAST = {"exp": Exp(), "relu": Relu(), "sigmoid": Sigmoid()}
LINEAR = {"d_model": 512, "n_state": 512, "d_value": 512, "n_heads": 8}


def run(repeats: int) -> Iterator[Result]:
    yield from quadratic_time(repeats)
    yield from quadratic_memory()
    yield from delta_rule_time(repeats)
    yield from growth_with_length(repeats)
    yield from recurrent_step(repeats)


def quadratic_time(repeats: int) -> Iterator[Result]:
    """Forward and backward with the row sum, against softmax attention by SDPA."""
    q, k, v = (torch.randn(BATCH, HEADS, LENGTH, WIDTH, requires_grad=True) for _ in range(3))
    grad = torch.randn_like(v)
    scalar = (-0.1 * torch.rand(BATCH, HEADS, LENGTH, 1)).requires_grad_()
    direction = F.normalize(torch.randn_like(k), dim=-1).requires_grad_()
    strength = torch.rand(BATCH, HEADS, LENGTH, requires_grad=True)
    structures = {
        "identity": Transition(),
        "scalar decay": Transition(log_decay=scalar),
        "householder": Transition(direction=direction, strength=strength),
    }
    bars = {"identity": (0.8, 1.1), "scalar decay": (1.2, 1.5), "householder": (5.0, 5.0)}
    every = {name: readout(name) for name in options("model/readout")}
    cases: dict[str, Run] = {"sdpa": lambda: sdpa(q, k, v, grad)}
    limits: dict[str, float] = {}
    for name, transition in structures.items():
        fast, slow = bars[name]
        readouts = every if name == "householder" else {**FAST, "softplus": Softplus()}
        for readout_name, phi in readouts.items():
            case = f"quadratic, {name}, {readout_name}"
            cases[case] = normalized_sum(q, k, v, grad, transition, phi)
            limits[case] = fast if readout_name in FAST else slow
    medians = interleaved_medians(cases, repeats)
    for case, bar in limits.items():
        yield result(SUITE, case, medians[case], "ms", medians["sdpa"], bar)


def quadratic_memory() -> Iterator[Result]:
    """Peak of forward and backward, against alpha = phi(score) on whole matrices by autograd."""
    q, k, v = (torch.randn(BATCH, HEADS, LENGTH, WIDTH, requires_grad=True) for _ in range(3))
    grad = torch.randn_like(v)
    log_decay = (-0.1 * torch.rand(BATCH, HEADS, LENGTH, 1)).requires_grad_()

    def dense(readout: Readout, decayed: bool) -> object:
        score = q @ k.mT * WIDTH**-0.5
        if decayed:
            c = log_decay.cumsum(2)
            score = score * torch.exp((c - c.mT).tril())
        alpha = readout(score).tril()
        y = alpha @ v / alpha.sum(-1, keepdim=True).clamp(min=1e-6)
        return torch.autograd.grad(y, (q, k, v, *([log_decay] * decayed)), grad)

    for name, transition in (("identity", Transition()), ("scalar decay", Transition(log_decay))):
        for readout_name, phi in {**FAST, "softplus": Softplus()}.items():
            ours = peak_megabytes(normalized_sum(q, k, v, grad, transition, phi))
            baseline = peak_megabytes(partial(dense, phi, not transition.is_identity))
            yield result(SUITE, f"memory, {name}, {readout_name}", ours, "MB", baseline, 0.25)


def delta_rule_time(repeats: int) -> Iterator[Result]:
    """The linear form of the gated delta rule, against transformers' PyTorch reference."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about kernels that are not installed
        from transformers.models.qwen3_next.modeling_qwen3_next import (
            torch_chunk_gated_delta_rule,
        )
    q, k, v = (torch.randn(1, 8, 4096, 64) for _ in range(3))
    q, k = (F.normalize(z, dim=-1).requires_grad_() for z in (q, k))
    v.requires_grad_()
    log_decay = (-0.1 * torch.rand(1, 8, 4096)).requires_grad_()
    beta = torch.rand(1, 8, 4096, requires_grad=True)
    grad = torch.randn_like(v)
    inputs = (q, k, v, log_decay, beta)

    def ours() -> object:
        transition = Transition(log_decay.unsqueeze(-1), k, beta)
        y = linear_form(q, k * (beta / 8).unsqueeze(-1), v, transition)
        return torch.autograd.grad(y, inputs, grad)

    def theirs() -> object:
        y, _ = torch_chunk_gated_delta_rule(*(z.transpose(1, 2) for z in inputs))
        return torch.autograd.grad(y.transpose(1, 2), inputs, grad)

    medians = interleaved_medians({"ours": ours, "theirs": theirs}, repeats)
    case = "linear, gated delta rule, length 4096, against transformers"
    yield result(SUITE, case, medians["ours"], "ms", medians["theirs"], 1.0)


def growth_with_length(repeats: int) -> Iterator[Result]:
    """Forward and backward of Table 1's presets with a linear form, 8192 steps against 1024."""
    for name in PRESETS:
        mixer = build_preset(name)
        if mixer.design.recurrence_obstacle is not None:
            continue
        mixer.backend = "linear"
        cases = {
            str(length): training_step(mixer, torch.randn(1, length, LINEAR["d_model"]))
            for length in (1024, 8192)
        }
        medians = interleaved_medians(cases, max(3, repeats // 3))
        case = f"linear, {name}, length 8192 against 1024"
        yield result(SUITE, case, medians["8192"], "ms", medians["1024"], 10.0)


def recurrent_step(repeats: int) -> Iterator[Result]:
    """64 tokens after 4096 tokens, against 64 tokens after 64."""
    mixer = build_preset("gated_deltanet")
    with torch.no_grad():
        states: dict[str, MixerState | None] = {}
        state = None
        for position in range(4097):
            if position in (64, 4096):
                states[str(position)] = state
            _, state = mixer.step(torch.randn(1, 1, LINEAR["d_model"]), state)

        def tokens(position: str) -> Run:
            def run() -> object:
                now = states[position]
                for _ in range(64):
                    y, now = mixer.step(torch.randn(1, 1, LINEAR["d_model"]), now)
                return y

            return run

        cases = {position: tokens(position) for position in states}
        medians = interleaved_medians(cases, repeats)
        memory = {position: peak_megabytes(run) for position, run in cases.items()}
    case = "recurrent, gated_deltanet, 64 tokens at position 4096 against 64"
    yield result(SUITE, f"{case}, time", medians["4096"], "ms", medians["64"], 1.2)
    yield result(SUITE, f"{case}, memory", memory["4096"], "MB", memory["64"], 1.01)


def sdpa(q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> Sequence[Tensor]:
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return torch.autograd.grad(y, (q, k, v), grad)


def normalized_sum(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor, transition: Transition, readout: Readout
) -> Run:
    """One training step of sum_j (alpha_ij / eta_i) v_j, eta the row sum, every input learned."""
    parts = (transition.log_decay, transition.direction, transition.strength)
    inputs = [q, k, v, *(part for part in parts if part is not None)]

    design = Design(Given(transition), InverseSqrt(HEADS * WIDTH, HEADS), readout, RowSum(1e-6))
    given = Projected(torch.zeros(BATCH, LENGTH, 1), q, k, v, k)
    return lambda: torch.autograd.grad(design.quadratic(given), inputs, grad)


class Given(Evolution):
    """A transition made beforehand: its parameterization is not what is measured."""

    def __init__(self, transition: Transition) -> None:
        super().__init__()
        self.transition = transition
        self.has_decay = transition.log_decay is not None
        self.has_direction = transition.direction is not None

    def forward(self, x: Tensor, k: Tensor) -> Transition:
        return self.transition


def training_step(mixer: SequenceMixer, x: Tensor) -> Run:
    parameters = list(mixer.parameters())
    grad = torch.randn(1, x.shape[1], LINEAR["d_value"])
    return lambda: torch.autograd.grad(mixer(x), parameters, grad)


def build_preset(name: str) -> SequenceMixer:
    sizes = [f"model.{size}={value}" for size, value in LINEAR.items()]
    return build_design_mixer(compose([f"model={name}", *sizes]))
