"""A population ends its members where their own runs would end: the limits of test_loop.py."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from coefdyn.runs.population.stacked import Stack
from coefdyn.runs.population.training import train_population
from coefdyn.runs.progress import LARGEST_LOSS, Scores
from coefdyn.runs.record import Record, Row
from tests.runs.populations import FUSED, grid, records
from tests.runs.test_loop import TOO_LARGE

RATES = (1e-3, 2e-3, 3e-3, 4e-3)


def train(results: Path, *more: str, members: int = 2) -> list[Record]:
    """Three epochs of two steps."""
    given = ("trainer.max_epochs=3", *more, FUSED)
    return records(train_population(grid(results, *given, lrs=RATES[:members], decays=(0.0,))))


def with_losses(monkeypatch: pytest.MonkeyPatch, bad: dict[float, tuple[int, float]]) -> list[int]:
    """The member of a learning rate has a loss at a step, all others 1; the steps are returned."""
    taken: list[int] = []

    def losses(self: Stack, _: Any, rows: Sequence[int]) -> Tensor:
        taken.append(len(taken) + 1)
        found = [bad.get(self.optimizers[row]["lr"], (0, 1.0)) for row in rows]
        wanted = torch.tensor([loss if at == taken[-1] else 1.0 for at, loss in found])
        return wanted + torch.stack([self.weights[row].sum() * 0 for row in rows])

    monkeypatch.setattr(Stack, "losses", losses)
    return taken


def with_tests(monkeypatch: pytest.MonkeyPatch, rows: Sequence[Row], of: str = "test") -> None:
    """The numbers of the members' tests, one member after the other, test by test."""
    given, own = iter(rows), Scores.row

    def row(self: Scores, split: str) -> Row:
        return own(self, split) | (next(given) if split == of else {})

    monkeypatch.setattr(Scores, "row", row)


def test_losses_of_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At step 3: as large as may be, just larger, infinite and NaN."""
    losses = (LARGEST_LOSS, TOO_LARGE, math.inf, math.nan)
    with_losses(monkeypatch, {lr: (3, x) for lr, x in zip(RATES, losses, strict=True)})
    found = train(tmp_path, members=4)
    assert [record.diverged_at_step for record in found] == [None, 3, 3, 3]
    assert [record.epochs for record in found] == [3, 1, 1, 1]
    assert found[0].history["train/loss"] == [1, (LARGEST_LOSS + 1) / 2, 1]


def test_losses_of_tests_of_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the second epoch, step 4; the row of who leaves is not kept."""
    with_losses(monkeypatch, {})
    losses: list[Any] = [2.0] * 3 + [LARGEST_LOSS, math.nextafter(LARGEST_LOSS, 1e9), math.nan, 3.0]
    with_tests(monkeypatch, [{"test/loss": loss} for loss in losses])
    found = train(tmp_path, members=3)
    assert [record.diverged_at_step for record in found] == [None, 4, 4]
    tests = [record.history["test/loss"] for record in found]
    assert tests == [[2.0, LARGEST_LOSS, 3.0], [2.0], [2.0]]


def test_a_member_ends_when_its_accuracy_is_reached_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_losses(monkeypatch, {})
    reached = [0.75, math.nextafter(0.75, 0), 0.9]  # the last one is of the one that is left
    rows = [{"validation/accuracy": x, "validation/accuracy_macro": 0.9} for x in reached]
    with_tests(monkeypatch, rows, "validation")
    found = train(tmp_path, "trainer.stop_at=0.75")
    assert [record.epochs for record in found] == [1, 2]
    assert [record.steps for record in found] == [2, 4]
    assert [record.history["validation/accuracy"][-1] for record in found] == [0.75, 0.9]


@pytest.mark.parametrize(("bad", "seen_after"), [(3, 50), (51, 100), (103, 110)])
def test_losses_are_looked_at_every_fifty_steps_and_at_the_end_of_an_epoch(
    bad: int, seen_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = with_losses(monkeypatch, dict.fromkeys(RATES, (bad, math.nan)))
    sizes = ("task.num_train=110", "trainer.batch_size=1")
    found = train(tmp_path, *sizes)
    assert [record.diverged_at_step for record in found] == [bad, bad]
    assert taken == list(range(1, seen_after + 1))


def test_tests_are_as_far_apart_as_asked_and_the_last_epoch_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_losses(monkeypatch, {})
    (record, *_) = train(tmp_path, "trainer.test_every=2")
    tests = [accuracy is not None for accuracy in record.history["test/accuracy"]]
    assert tests == [False, True, True]
    assert record.history["epoch"] == [1, 2, 3]
    assert record.history["step"] == [2, 4, 6]


def test_the_first_member_may_leave_before_it_has_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_losses(monkeypatch, {RATES[0]: (1, math.nan)})
    found = train(tmp_path)
    assert [record.diverged_at_step for record in found] == [1, None]
    assert [record.epochs for record in found] == [0, 3]
