"""suite=launches: how many launches a training step of tensor forms takes on a GPU.

Counted without one: on torch's meta device, where nothing is computed, code takes the same way as
on a GPU, with its tile sizes. An operator that does work is at least one launch. Norms are fused on
a GPU and several operators here, so the counts are a little too high. The optimizer is counted on
the CPU.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from coefdyn.benchmarks.calls import NO_WORK, count_calls
from coefdyn.benchmarks.measure import Result, result
from coefdyn.config.build import build_model, build_optimizer
from coefdyn.config.compose import Config, compose
from coefdyn.model.model import mixers_of
from coefdyn.paper.looks import PRESETS
from coefdyn.runs.population.stacked import Stack
from coefdyn.tasks.task import IGNORE

SUITE = "launches"
MOST = 900
MEMBERS, MOST_OF_MEMBERS = 10, 1.1
META = torch.device("meta")


def run(repeats: int) -> Iterator[Result]:
    """A count is exact: it needs no repeats."""
    del repeats
    for preset in PRESETS:
        alone, together = launches(preset), launches(preset, MEMBERS)
        case = f"launches of a training step, {preset}, scale=paper"
        yield result(SUITE, case, alone, "launches", MOST, 1.0)
        yield result(SUITE, f"{case}, {MEMBERS} members against one", together, "launches", alone,
                     MOST_OF_MEMBERS)  # fmt: skip


def launches(preset: str, members: int = 1) -> int:
    """Launches of a step of tensor forms, at the paper's shape of noisy recall."""
    config = compose([f"model={preset}", "task=noisy_recall", "scale=paper"])
    tokens = torch.zeros(
        config.settings.trainer.batch_size, config.settings.task["seq_len"] - 1,
        dtype=torch.int64, device=META,
    )  # fmt: skip
    loss = _loss(config, tokens, members)
    with Counting() as counter:  # type: ignore[no-untyped-call]
        loss().backward()
    return counter.working + _optimizer_calls(config, members)


def _loss(config: Config, tokens: torch.Tensor, members: int) -> Callable[[], torch.Tensor]:
    models = [build_model(config) for _ in range(members)]
    if members > 1:
        tuned = [{"lr": 1e-3, "weight_decay": 0.0}] * members
        stack = Stack(models, [0] * members, tuned, META)
        return lambda: stack.losses({0: (tokens, tokens)}, range(members)).sum()
    (model,) = models
    for mixer in mixers_of(model.to(META)):
        mixer.may_use_adapters = False
    return lambda: F.cross_entropy(
        model(tokens).flatten(0, 1), tokens.flatten(), ignore_index=IGNORE
    )


def _optimizer_calls(config: Config, members: int) -> int:
    parameters = list(build_model(config).parameters())
    groups = [{"params": [torch.nn.Parameter(torch.zeros(8))]} for _ in range(members)]
    optimizer = build_optimizer(config, parameters if members == 1 else groups)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # makes its state
    return count_calls(optimizer.step).working


class Counting(TorchDispatchMode):
    """Counts the operators that do work, below autograd."""

    working = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = str(func).removeprefix("aten.").partition(".")[0]
        if f"aten::{name}" not in NO_WORK and not getattr(func, "is_view", False):
            self.working += 1
        return func(*args, **(kwargs or {}))
