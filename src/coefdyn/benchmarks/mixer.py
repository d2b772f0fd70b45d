"""suite=mixer: compiled loops against SDPA, the tensor forms and transformers' delta rule."""

import contextlib
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.benchmarks.measure import Result, Run, interleaved_medians, peak_megabytes, result
from coefdyn.config.build import build_design_mixer, readout
from coefdyn.config.compose import compose
from coefdyn.config.plugins import options
from coefdyn.mixer.compiled.form import Sums, scan_form
from coefdyn.mixer.compiled.kernels import without_kernels
from coefdyn.mixer.design import Design
from coefdyn.mixer.sequence_mixer import MixerState, SequenceMixer
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.normalization import RowSum
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.scaling import InverseSqrt
from coefdyn.mixer.slots.transition import Transition
from coefdyn.mixer.stream import Projected
from coefdyn.paper.looks import TABLE_1

SUITE = "mixer"
BATCH, HEADS, LENGTH, WIDTH = 128, 16, 128, 8
SCORED = ("exp", "relu", "sigmoid", "softplus", "elu_plus_one")
SCANNED = ("gla", "mamba2", "deltanet", "gated_deltanet", "mlstm")
LINEAR = {"d_model": 512, "n_state": 512, "d_value": 512, "n_heads": 8}


def run(repeats: int) -> Iterator[Result]:
    yield from pairs_time(repeats)
    yield from scan_time(repeats)
    yield from resident_memory()
    yield from delta_rule_time(repeats)
    yield from growth_with_length(repeats)
    yield from recurrent_step(repeats)


def pairs_time(repeats: int) -> Iterator[Result]:
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
    readouts = {name: readout(name) for name in options("model/readout")}
    cases: dict[str, Run] = {"sdpa": lambda: sdpa(q, k, v, grad)}
    limits: dict[str, float] = {}
    for name, transition in structures.items():
        for phi_name in readouts if name == "householder" else SCORED:
            case = f"compiled, {name}, {phi_name}, against sdpa"
            cases[case] = normalized_sum(q, k, v, grad, transition, readouts[phi_name])
            limits[case] = bar_of(name, readouts[phi_name])
    medians = interleaved_medians(cases, repeats)
    for case, bar in limits.items():
        yield result(SUITE, case, medians[case], "ms", medians["sdpa"], bar)


def bar_of(structure: str, phi: Readout) -> float:
    if structure == "householder":
        return 0.8 if phi.feature_map is None else 1.2
    if structure == "scalar decay":
        return 0.6
    return 0.4 if phi.exponential else 0.45


def scan_time(repeats: int) -> Iterator[Result]:
    """Presets as loops over time, against the linear form; both compute A_t and b_j too."""
    for name in SCANNED:
        sizes = [f"model.{size}={HEADS * WIDTH}" for size in ("d_model", "n_state", "d_value")]
        mixer = build_design_mixer(compose([f"model={name}", *sizes, f"model.n_heads={HEADS}"]))
        x = torch.randn(BATCH, LENGTH, HEADS * WIDTH)
        with torch.no_grad():
            initial = mixer.projected(x)
        q, k, v = (z.detach().clone().requires_grad_() for z in (initial.q, initial.k, initial.v))
        projected = Projected(x, q, k, v, k)
        cases = {
            form: partial(both_passes, mixer.design, form, projected)
            for form in ("compiled", "linear")
        }
        medians = interleaved_medians(cases, repeats)
        case = f"compiled, {name}, against the linear form"
        yield result(SUITE, case, medians["compiled"], "ms", medians["linear"], 0.2)


def both_passes(design: Design, form: str, given: Projected) -> object:
    y = getattr(design, form)(given)
    inputs = (given.q, given.k, given.v, *design.parameters())
    return torch.autograd.grad(y, inputs, torch.ones_like(y))


def resident_memory() -> Iterator[Result]:
    """Peak memory of a process that computes a design, against the tensor forms.

    Each case has a process of its own, since torch does not record what a kernel allocates.
    """
    shapes = {"paper's shape": (BATCH, HEADS, LENGTH, WIDTH), "L 1024, n 64": (4, 8, 1024, 64)}
    for shape, sizes in shapes.items():
        for name in ("softmax_attention", "gla", "gated_deltanet"):
            peaks = {}
            for backend in ("compiled", "auto"):
                code = f"from coefdyn.benchmarks.mixer import use; use{(name, backend, *sizes)}"
                command = [sys.executable, "-c", code]
                peaks[backend] = float(
                    subprocess.run(command, check=True, capture_output=True, text=True).stdout
                )
            case = f"resident memory, {name}, {shape}, against tensor forms"
            yield result(SUITE, case, peaks["compiled"], "MB", peaks["auto"], 1.0)


def use(name: str, backend: str, batch: int, heads: int, length: int, width: int) -> None:
    """Do some steps with loops (backend `compiled`) or without, and print the peak megabytes."""
    sizes = [f"model.{size}={heads * width}" for size in ("d_model", "n_state", "d_value")]
    mixer = build_design_mixer(compose([f"model={name}", *sizes, f"model.n_heads={heads}"]))
    mixer.backend = backend
    x = torch.randn(batch, length, heads * width)
    with contextlib.nullcontext() if backend == "compiled" else without_kernels():
        for _ in range(3):
            mixer(x).sum().backward()
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x]
    print(int(line.split()[1]) / 1024)


def delta_rule_time(repeats: int) -> Iterator[Result]:
    """The gated delta rule as a loop over time, against transformers' PyTorch reference."""
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
        y = scan_form(q, k * (beta / 8).unsqueeze(-1), v, transition, Sums.ALONE)
        return torch.autograd.grad(y, inputs, grad)

    def theirs() -> object:
        y, _ = torch_chunk_gated_delta_rule(*(z.transpose(1, 2) for z in inputs))
        return torch.autograd.grad(y.transpose(1, 2), inputs, grad)

    medians = interleaved_medians({"ours": ours, "theirs": theirs}, repeats)
    case = "compiled, gated delta rule, length 4096, against transformers"
    yield result(SUITE, case, medians["ours"], "ms", medians["theirs"], 0.4)


def growth_with_length(repeats: int) -> Iterator[Result]:
    """Forward and backward of Table 1's presets with a linear form, 8192 steps against 1024."""
    for name in TABLE_1:
        mixer = build_preset(name)
        if mixer.design.recurrence_obstacle is not None:
            continue
        cases = {
            str(length): training_step(mixer, torch.randn(1, length, LINEAR["d_model"]))
            for length in (1024, 8192)
        }
        medians = interleaved_medians(cases, max(3, repeats // 3))
        case = f"auto, {name}, length 8192 against 1024"
        yield result(SUITE, case, medians["8192"], "ms", medians["1024"], 10.0)


def recurrent_step(repeats: int) -> Iterator[Result]:
    """Time and memory of 64 tokens after 4096 tokens, against 64 tokens after 64."""
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
    """One training step of sum_j (alpha_ij / eta_i) v_j: eta is the row sum, all inputs learn."""
    parts = (transition.log_decay, transition.direction, transition.strength)
    inputs = [q, k, v, *(part for part in parts if part is not None)]

    design = Design(Given(transition), InverseSqrt(HEADS * WIDTH, HEADS), readout, RowSum(1e-6))
    projected = Projected(torch.zeros(BATCH, LENGTH, 1), q, k, v, k)
    return lambda: torch.autograd.grad(design.compiled(projected), inputs, grad)


class Given(Evolution):
    """A transition made beforehand, so that computing it is not timed."""

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
