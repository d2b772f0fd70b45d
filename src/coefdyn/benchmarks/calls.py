"""suite=calls: how many operators a training step calls.

Small models spend their time on calls, not on arithmetic. On a GPU each call that does work is at
least one launch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from coefdyn.benchmarks.measure import Result, result
from coefdyn.benchmarks.training import bare_steps
from coefdyn.config.compose import compose
from coefdyn.mixer import fused
from coefdyn.mixer.compiled import form, known
from coefdyn.paper.looks import TABLE_1
from coefdyn.runs.setup import set_up

SUITE = "calls"
MOST_WORKING, MOST_LEAVES = 300, 700
# Operators that compute nothing: views of the same memory, allocations, queries.
NO_WORK = {
    "aten::" + name
    for name in """
    _local_scalar_dense _reshape_alias _unsafe_view alias as_strided as_strided_ chunk contiguous
    detach detach_ empty empty_like empty_strided expand expand_as flatten is_nonzero item
    lift_fresh movedim narrow new_empty new_empty_strided permute promote_types reshape resize_
    resolve_conj resolve_neg result_type select set_ slice split split_with_sizes squeeze squeeze_
    swapaxes t to transpose unbind unflatten unsqueeze unsqueeze_ view view_as
    """.split()  # noqa: SIM905  a list of so many strings is hard to read
}


@dataclass(frozen=True)
class Calls:
    """Numbers of calls of torch's operators and of our own compiled ones.

    `working`: those that do work. `leaves`: those that call no other operator.
    """

    working: int
    leaves: int


def run(repeats: int) -> Iterator[Result]:
    """A count is exact: it needs no repeats."""
    del repeats
    for scale in ("lite", "paper"):
        for preset in TABLE_1:
            calls = step_calls(preset, scale)
            case = f"calls of a training step, {preset}, scale={scale}"
            yield result(SUITE, f"{case}, that do work", calls.working, "calls", MOST_WORKING, 1.0)
            yield result(SUITE, f"{case}, leaves", calls.leaves, "calls", MOST_LEAVES, 1.0)


def step_calls(preset: str, scale: str) -> Calls:
    """The calls of one training step of a preset's model, optimizer included.

    The batch has only two sequences: its size does not change the number of calls.
    """
    few = ["task=noisy_recall", "task.num_train=8", "task.num_test=2", "trainer.batch_size=2"]
    config = compose([f"model={preset}", f"scale={scale}", *few])
    prepared = set_up(config)
    batches = prepared.data.training_batches(2, torch.device("cpu"), 0)
    steps = bare_steps(config, batches, 10)
    next(steps)  # the first step makes the optimizer's state
    return count_calls(lambda: next(steps))


def count_calls(step: Callable[[], object]) -> Calls:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    own = {
        name + way
        for module in (form, known, fused)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, torch.autograd.Function)
        for way in ("", "Backward")
    }
    events = list(profile.events())
    ours = sum(event.name in own for event in events)
    return Calls(
        ours + sum(_works(event) and not _any_below(event, _works) for event in events),
        ours + sum(_is_aten(event) and not any(map(_is_aten, event.cpu_children))
                   for event in events),
    )  # fmt: skip


def _is_aten(event: torch.autograd.profiler_util.FunctionEvent) -> bool:
    return event.name.startswith("aten::")


def _works(event: torch.autograd.profiler_util.FunctionEvent) -> bool:
    return _is_aten(event) and event.name not in NO_WORK


def _any_below(
    event: torch.autograd.profiler_util.FunctionEvent,
    condition: Callable[[torch.autograd.profiler_util.FunctionEvent], bool],
) -> bool:
    return any(condition(child) or _any_below(child, condition) for child in event.cpu_children)
