"""suite=kernels: the backend that `auto` chooses, against the fastest on this machine."""

import sys
from collections.abc import Iterator
from functools import partial

import torch

from coefdyn.benchmarks.measure import Result, interleaved_medians, result
from coefdyn.config.build import build_design_mixer
from coefdyn.config.compose import compose
from coefdyn.mixer.backends import ADAPTERS
from coefdyn.mixer.sequence_mixer import SequenceMixer

SUITE = "kernels"
PRESETS = ("softmax_attention", "relu_attention", "gla", "mamba2", "gated_deltanet")
SIZES = ["model.d_model=128", "model.n_state=128", "model.d_value=128"]
SHAPES = {  # batch, length, heads
    "batch 128, L 128, 16 heads of 8": (128, 128, 16),
    "batch 2, L 1024, 2 heads of 64": (2, 1024, 2),
}


def run(repeats: int) -> Iterator[Result]:
    """On a GPU in bfloat16, as trainer=cuda does; on a CPU in float32."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name, kernel in ADAPTERS.items():
        if kernel.absence is not None:
            print(f"{name} is not measured: {kernel.absence}", file=sys.stderr)
    for shape, (batch, length, heads) in SHAPES.items():
        x = torch.randn(batch, length, 128, device=device)
        for preset in PRESETS:
            overrides = [f"model={preset}", *SIZES, f"model.n_heads={heads}"]
            mixer = build_design_mixer(compose(overrides)).to(device)
            _step(mixer, x)
            chosen = str(mixer.form_used)
            cases = {name: partial(_step_with, mixer, name, x) for name in _serving(mixer, x)}
            times = interleaved_medians(cases, repeats)
            listed = ", ".join(f"{name} {ms:.3g}" for name, ms in times.items())
            case = f"auto ({chosen}) against the best of {listed} ms; {preset}, {shape}"
            yield result(SUITE, case, times[chosen], "ms", min(times.values()), 1.1)


def _serving(mixer: SequenceMixer, x: torch.Tensor) -> Iterator[str]:
    """The backends that can compute this mixer here. One that fails is reported and left out."""
    usable = [name for name, kernel in ADAPTERS.items() if kernel.absence is None]
    for name in ("quadratic", "linear", *usable):
        try:
            mixer.backend = name
        except ValueError:  # it cannot serve the design
            continue
        try:
            _step(mixer, x)
        except Exception as error:  # a package may raise anything
            print(f"{name} is not measured: {' '.join(str(error).split())}", file=sys.stderr)
            continue
        yield name


def _step_with(mixer: SequenceMixer, name: str, x: torch.Tensor) -> None:
    mixer.backend = name
    _step(mixer, x)


def _step(mixer: SequenceMixer, x: torch.Tensor) -> None:
    mixer.zero_grad()
    with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
        mixer(x).sum().backward()
    if x.is_cuda:
        torch.cuda.synchronize()
