"""suite=population: several runs trained at once, against the same runs one after another."""

import itertools
import tempfile
from collections.abc import Iterator
from functools import partial

import torch

from coefdyn.benchmarks.measure import (
    Result,
    interleaved_medians,
    result,
    result_of_pairs,
)
from coefdyn.benchmarks.training import bare_steps
from coefdyn.config.build import build_model, build_optimizer
from coefdyn.config.compose import Config, compose
from coefdyn.runs.population.fusing import is_fused
from coefdyn.runs.population.stacked import Stack
from coefdyn.runs.population.training import train_population
from coefdyn.runs.record import Record
from coefdyn.runs.setup import set_up

SUITE = "population"
MEMBERS = 10
# The bar for a member's time against a run alone. On a CPU a population must only be no slower:
# compiled layers leave a run few calls to save, and they go member by member in a population. On a
# GPU members share launches.
PAYS = 1.0
SMALL = ["scale=lite", "task=noisy_recall", "trainer.batch_size=8"]
SHAPES = {  # from tiny to the paper's
    "batch 8, L 32, d 32": SMALL,
    "scale=lite": ["scale=lite", "task=noisy_recall"],
    "scale=paper": ["scale=paper", "task=noisy_recall"],
}


def run(repeats: int) -> Iterator[Result]:
    yield whole_runs(max(5, repeats // 2))
    yield operator_calls()
    for shape, overrides in SHAPES.items():
        yield choice_of_auto(shape, overrides, 3 if "paper" in shape else repeats)


def whole_runs(repeats: int) -> Result:
    """Time of a step within train_population, checkpoints and metrics files included."""
    short = ["task.num_train=320", "task.num_test=8", "trainer.max_epochs=2"]
    seconds: dict[str, list[float]] = {"fused": [], "sequential": []}
    for _ in range(repeats):
        for mode, spent in seconds.items():
            with tempfile.TemporaryDirectory() as results:
                fixed = [*SMALL, *short, f"paths.results={results}", f"population.mode={mode}"]
                members = [
                    compose([*fixed, f"optimizer.lr={lr}", f"optimizer.weight_decay={decay}"])
                    for lr, decay in itertools.product((1e-4, 5e-4, 1e-3, 5e-3, 1e-2), (0.0, 0.1))
                ]
                records = [
                    ended for ended in train_population(members) if isinstance(ended, Record)
                ]
                assert len(records) == MEMBERS
                spent.append(sum(record.seconds["training"] for record in records))
                steps = sum(record.steps for record in records)
    fused, alone = ([1e3 * s / steps for s in seconds[mode]] for mode in ("fused", "sequential"))
    case = f"a member's step of {MEMBERS} fused, against sequential; batch 8, L 32, d 32"
    return result_of_pairs(SUITE, case, fused, "ms", alone, PAYS)


class Pair:
    """The same training step, of all members at once and of one alone."""

    def __init__(self, overrides: list[str]) -> None:
        self.config: Config = compose(overrides)
        prepared = set_up(self.config)
        size = prepared.trainer.batch_size
        make = partial(prepared.data.training_batches, size, torch.device("cpu"), 0)
        self.inputs, self.targets = next(iter(make()))
        models = [build_model(compose([*overrides, f"seed={i}"])) for i in range(MEMBERS)]
        optimizer = self.config.settings.optimizer
        device = torch.device("cpu")
        self.stack = Stack(models, [0] * MEMBERS, [optimizer] * MEMBERS, device)
        self.optimizer = build_optimizer(self.config, self.stack.groups())
        self.alone = bare_steps(self.config, make(), 1000)

    def fused(self) -> None:
        self.optimizer.zero_grad()
        self.stack.losses({0: (self.inputs, self.targets)}, range(MEMBERS)).sum().backward()
        self.optimizer.step()

    def solo(self) -> None:
        next(self.alone)


def operator_calls() -> Result:
    """Operator calls per member that call no other operator, counted by the profiler."""
    pair = Pair(SMALL)
    counts = []
    for one in (pair.fused, pair.solo):
        one()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            one()
        counts.append(sum(
            event.name.startswith("aten::")
            and not any(child.name.startswith("aten::") for child in event.cpu_children)
            for event in profile.events()
        ))  # fmt: skip
    case = f"operator calls of a member's step of {MEMBERS} fused, against alone"
    return result(SUITE, case, counts[0] / MEMBERS, "calls", counts[1], PAYS)


def choice_of_auto(shape: str, overrides: list[str], repeats: int) -> Result:
    pair = Pair(overrides)
    times = interleaved_medians({"fused": pair.fused, "solo": pair.solo}, repeats)
    per_member = {"fused": times["fused"] / MEMBERS, "sequential": times["solo"]}
    config = compose([*overrides, "population.mode=auto"])
    chosen = "fused" if is_fused(config) else "sequential"
    case = f"auto ({chosen}), against the better of both; {shape}"
    best = min(per_member.values())
    return result(SUITE, case, per_member[chosen], "ms", best, 1.1)
