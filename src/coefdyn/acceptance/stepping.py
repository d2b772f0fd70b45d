"""Training steps of a model on a device: their time, launches and memory."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._autograd import DeviceType

from coefdyn.benchmarks.calls import count_calls
from coefdyn.config.build import build_model, build_optimizer
from coefdyn.config.compose import Config
from coefdyn.model.model import mixers_of
from coefdyn.runs.population.stacked import Stack
from coefdyn.runs.trainer import autocast
from coefdyn.tasks.task import IGNORE

Step = Callable[[], object]


def training_step(config: Config, length: int, device: torch.device, backend: str) -> Step:
    """A step of one model by `backend`, on random tokens."""
    model = build_model(config).to(device)
    for mixer in mixers_of(model):
        mixer.backend = backend
    tokens = _tokens(config, length, device)

    def loss() -> Tensor:
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten(), ignore_index=IGNORE)

    return _with_optimizer(config, loss, list(model.parameters()), device)


def population_step(config: Config, length: int, device: torch.device, members: int) -> Step:
    """A step of so many models at once."""
    models = [build_model(config) for _ in range(members)]
    stack = Stack(models, [0] * members, [{"lr": 1e-3, "weight_decay": 0.0}] * members, device)
    tokens = _tokens(config, length, device)

    def loss() -> Tensor:
        return stack.losses({0: (tokens, tokens)}, range(members)).sum()

    return _with_optimizer(config, loss, list(stack.groups()), device)


def measured(step: Step, tokens: int, device: torch.device, repeats: int) -> dict[str, Any]:
    """Milliseconds, tokens per second, launches and peak memory of a step."""
    step()  # compiles what there is to compile
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    milliseconds = 1e3 * median(_seconds(step, device) for _ in range(repeats))
    return {
        "milliseconds": milliseconds,
        "tokens_per_second": 1e3 * tokens / milliseconds,
        "launches": _launches(step) if device.type == "cuda" else count_calls(step).working,
        "megabytes": torch.cuda.max_memory_allocated(device) / 2**20
        if device.type == "cuda"
        else None,
    }


def _with_optimizer(
    config: Config, loss: Callable[[], Tensor], parameters: list[Any], device: torch.device
) -> Step:
    optimizer = build_optimizer(config, parameters)

    def step() -> None:
        optimizer.zero_grad()
        with autocast(config.settings.trainer, device):
            value = loss()
        value.backward()
        optimizer.step()

    return step


def _tokens(config: Config, length: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (config.settings.trainer.batch_size, length)
    return torch.randint(config.settings.model.vocab_size, shape, generator=generator).to(device)


def _seconds(step: Step, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def _launches(step: Step) -> int:
    """Kernels that ran on the GPU."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step()
        torch.cuda.synchronize()
    return sum(event.device_type == DeviceType.CUDA for event in profile.events())
