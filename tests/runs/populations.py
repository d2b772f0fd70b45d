"""Small populations, for tests of them."""

from itertools import product
from pathlib import Path

from coefdyn.config.compose import Config, compose
from coefdyn.runs.population.training import Ending
from coefdyn.runs.record import Record

FUSED = "population.mode=fused"
# Larger ones make 1e-9 of a last digit within 50 steps, in whatever order sums are taken.
RATES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3)


def grid(
    results: Path,
    *more: str,
    lrs: tuple[float, ...] = RATES,
    decays: tuple[float, ...] = (0.0, 0.1),
    seeds: tuple[int, ...] = (0,),
) -> list[Config]:
    return [
        compose(["scale=smoke", f"paths.results={results}", f"optimizer.lr={lr}",
                 f"optimizer.weight_decay={decay}", f"seed={seed}", *more])
        for lr, decay, seed in product(lrs, decays, seeds)
    ]  # fmt: skip


def records(endings: list[Ending]) -> list[Record]:
    for ending in endings:
        assert isinstance(ending, Record), ending
    return endings  # type: ignore[return-value]


def small(results: Path, *more: str, mode: str = FUSED) -> list[Config]:
    few = ["trainer.max_epochs=3", "task.num_train=32", "trainer.batch_size=8", "task.num_test=8"]
    return grid(results, *few, mode, *more, lrs=(1e-3, 2e-3), decays=(0.0,), seeds=(0, 1))
