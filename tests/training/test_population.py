"""Populations: every member as its own run."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from coefdyn.training.config import Config, compose
from coefdyn.training.population import Ending, train_population
from coefdyn.training.run import run_one
from coefdyn.training.stack import Stack
from tests.training.runs import history

TABLE_1 = ["softmax_attention", "linear_attention", "normalized_attention", "gla", "mamba2",
           "deltanet", "gated_deltanet", "mlstm"]  # fmt: skip
FUSED = "population.mode=fused"


@pytest.fixture
def in_float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


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


def records(endings: list[Ending]) -> list[dict[str, Any]]:
    for ending in endings:
        assert isinstance(ending, dict), ending
    return endings  # type: ignore[return-value]


def assert_same(ours: dict[str, Any], solo: dict[str, Any], rel: float) -> None:
    """But for times and sessions."""
    assert ours.keys() - solo.keys() == {"population"}
    for name in ("run_id", "status", "diverged_at_step", "epochs", "steps", "chance",
                 "choices", "backend", "parameters", "data"):  # fmt: skip
        assert ours[name] == solo[name], name
    for name, value in solo["metrics"].items():
        assert ours["metrics"][name] == pytest.approx(value, rel=rel), name
    if solo["coefficients"] is None:
        assert ours["coefficients"] is None
    else:
        for name in ("near_zero", "near_one", "most_zeros", "guarded_rows"):
            assert ours["coefficients"][name] == pytest.approx(solo["coefficients"][name], rel=rel)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("compared", [[2, 9], pytest.param(range(10), marks=pytest.mark.slow)])
@pytest.mark.parametrize("model", TABLE_1)
def test_every_member_equals_its_own_run(
    model: str, compared: Sequence[int], tmp_path: Path
) -> None:
    """Ten members, fifty steps in float64."""
    more = [f"model={model}", "trainer.max_epochs=5", "task.num_train=80", "trainer.batch_size=8",
            "trainer.clip=0.5", "trainer.warmup_steps=5",
            "trainer.test_every=5", "task.num_test=16"]  # fmt: skip
    together = records(train_population(grid(tmp_path / "together", *more, FUSED)))
    assert len(together) == 10
    alone = grid(tmp_path / "alone", *more)
    for i in compared:
        ours, solo = together[i], run_one(alone[i])
        assert solo["steps"] == 50
        assert ours["population"] == {"mode": "fused", "members": 10}
        assert_same(ours, solo, rel=1e-9)
        rows = zip(history(tmp_path / "together", ours), history(tmp_path / "alone", solo),
                   strict=True)  # fmt: skip
        for row, wanted in rows:
            assert row.keys() == wanted.keys()
            for name in wanted:
                if wanted[name]:
                    found = float(row[name])
                    assert found == pytest.approx(float(wanted[name]), rel=1e-9), name


@pytest.mark.usefixtures("in_float64")
def test_the_others_go_on_when_members_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One diverges at step 10, one is good enough after an epoch; seeds differ too."""
    more = ["model=mamba2", "trainer.max_epochs=4", "task.num_train=48", "trainer.batch_size=8"]
    lrs, seeds = (1e-3, 2e-3), (0, 1)

    def make(place: str, *extra: str) -> list[Config]:
        return grid(tmp_path / place, *more, *extra, lrs=lrs, seeds=seeds)

    solos = [run_one(config) for config in make("alone")]
    tests = [[float(r["test/accuracy"]) for r in history(tmp_path / "alone", s)] for s in solos]
    ranked = sorted(max(accuracies[:-1]) for accuracies in tests)
    stop = (ranked[-1] + ranked[-2]) / 2 if ranked[-1] > ranked[-2] else ranked[-1]
    early = f"trainer.stop_at={stop}"
    stopped = [run_one(config) for config in make("stopped", early)]
    assert 0 < sum(run["epochs"] < 4 for run in stopped) < len(stopped)

    step = Stack.step

    def spoiled(self: Stack, inputs: Any, targets: Any, number: int, factor: float) -> Any:
        losses = step(self, inputs, targets, number, factor)
        if number == 9:  # what the tenth step finds
            self.weights.data[-1] = torch.nan
        return losses

    monkeypatch.setattr(Stack, "step", spoiled)
    together = records(train_population(make("together", early, FUSED)))
    for ours, solo in zip(together[:-1], stopped[:-1], strict=True):
        assert_same(ours, solo, rel=1e-9)
    assert together[-1]["status"] == "diverged"
    assert together[-1]["diverged_at_step"] == 10
    assert together[-1]["coefficients"] is None
    assert [ours["population"]["members"] for ours in together] == [8] * 8
