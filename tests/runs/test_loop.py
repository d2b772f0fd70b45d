"""What decides in a training loop, on both sides of each limit, on losses made by hand."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from coefdyn.runs import run as run_module
from coefdyn.runs.data import ExampleData
from coefdyn.runs.learner import Alone
from coefdyn.runs.loop import Training
from coefdyn.runs.progress import LARGEST_LOSS, Progress, Scores, cosine
from coefdyn.runs.record import Row
from coefdyn.runs.run import Job, make_record
from coefdyn.runs.setup import Setup, set_up
from coefdyn.tasks.task import Examples
from tests.runs.runs import history, run_smoke, smoke

TOO_LARGE = float(np.nextafter(np.float32(LARGEST_LOSS), np.float32(np.inf)))  # losses are float32


def test_micro_and_macro_accuracy_by_hand() -> None:
    """Token 0 is wanted six times and guessed three, token 1 three and three, token 3 once and
    never; 2 and 4 are never wanted. A guess has probability 1/2, every other token 1/8."""
    wanted = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 3])
    guess = torch.tensor([0, 0, 0, 1, 2, 4, 1, 1, 1, 0])
    probability = torch.full((10, 5), 1 / 8).scatter(1, guess[:, None], 1 / 2)
    scores = Scores(5, torch.device("cpu"))
    for part in (slice(0, 7), slice(7, 10)):  # batches of unequal size
        scores.add(probability.log()[part], wanted[part])
    assert scores.row("test") == pytest.approx(
        {
            "test/loss": (6 * math.log(2) + 4 * math.log(8)) / 10,
            "test/accuracy": 6 / 10,
            "test/accuracy_macro": (3 / 6 + 3 / 3 + 0 / 1) / 3,
        },
        rel=1e-6,
    )


def with_losses(monkeypatch: pytest.MonkeyPatch, value: Callable[[int], float]) -> list[int]:
    """Step s of training, from 1, has the loss value(s); the steps taken are returned."""
    taken: list[int] = []

    def loss(self: Alone, *_: Any) -> Tensor:
        taken.append(len(taken) + 1)
        return self.model.norm.weight.sum() * 0 + value(taken[-1])

    monkeypatch.setattr(Alone, "losses", loss)
    return taken


def with_tests(monkeypatch: pytest.MonkeyPatch, of: str = "test", **columns: list[float]) -> None:
    """The numbers of one test after the other."""
    rows: Iterator[Any] = iter(zip(*columns.values(), strict=True))
    own = Scores.row

    def row(self: Scores, split: str) -> Row:
        if split != of:
            return own(self, split)
        named = {f"{split}/{name}": x for name, x in zip(columns, next(rows), strict=True)}
        return own(self, split) | named

    monkeypatch.setattr(Scores, "row", row)


def test_the_largest_loss_is_where_a_probability_is_zero() -> None:
    assert math.exp(-LARGEST_LOSS) > 0 == math.exp(-LARGEST_LOSS - 1)


@pytest.mark.parametrize(
    ("loss", "diverged_at"),
    [(LARGEST_LOSS, None), (TOO_LARGE, 3), (math.nan, 3), (math.inf, 3)],
)
def test_a_training_loss_diverges_just_above_the_largest(
    loss: float, diverged_at: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first of two steps of the second epoch."""
    with_losses(monkeypatch, lambda step: loss if step == 3 else 1.0)
    record = run_smoke(tmp_path, "trainer.max_epochs=3")
    assert record.diverged_at_step == diverged_at
    assert record.history["epoch"] == ([1, 2, 3] if diverged_at is None else [1])


@pytest.mark.parametrize(
    ("loss", "diverged_at"),
    [
        (LARGEST_LOSS, None),
        (math.nextafter(LARGEST_LOSS, math.inf), 4),
        (math.nan, 4),
        (math.inf, 4),
    ],
)
def test_a_test_loss_diverges_just_above_the_largest(
    loss: float, diverged_at: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test after the second epoch, step 4: its row is not kept."""
    with_losses(monkeypatch, lambda _: 1.0)
    with_tests(monkeypatch, loss=[2.0, loss, 3.0], accuracy=[0.1, 0.2, 0.3])
    record = run_smoke(tmp_path, "trainer.max_epochs=3")
    assert record.diverged_at_step == diverged_at
    kept = [2.0, loss, 3.0] if diverged_at is None else [2.0]
    assert record.history["test/loss"] == kept
    assert record.metrics["test/loss"] == kept[-1]
    assert record.metrics["test/accuracy"] == (0.3 if diverged_at is None else 0.1)


@pytest.mark.parametrize(("bad", "seen_after"), [(3, 50), (50, 50), (51, 100), (103, 110)])
def test_losses_are_looked_at_every_fifty_steps_and_at_the_end_of_an_epoch(
    bad: int, seen_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """110 steps an epoch; the step that is named is the bad one, whenever it is seen."""
    taken = with_losses(monkeypatch, lambda step: math.nan if step == bad else 1.0)
    sizes = ["task.num_train=110", "trainer.batch_size=1", "trainer.max_epochs=1"]
    record = run_smoke(tmp_path, *sizes)
    assert (record.diverged_at_step, len(taken)) == (bad, seen_after)


def test_the_first_of_several_bad_losses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_losses(monkeypatch, lambda step: {6: TOO_LARGE, 7: math.nan}.get(step, 1.0))
    sizes = ["task.num_train=64", "trainer.max_epochs=2"]  # four steps an epoch
    assert run_smoke(tmp_path, *sizes).diverged_at_step == 6


@pytest.mark.parametrize(
    ("second", "epochs"), [(0.75, 2), (math.nextafter(0.75, 1), 2), (math.nextafter(0.75, 0), 3)]
)
def test_a_run_ends_when_an_accuracy_is_reached_exactly(
    second: float, epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_losses(monkeypatch, lambda _: 1.0)
    reached = [0.5, second, 0.76, 0.8]
    with_tests(monkeypatch, "validation", accuracy=reached, accuracy_macro=[0.9] * 4)
    record = run_smoke(tmp_path, "trainer.stop_at=0.75", "trainer.max_epochs=4")
    assert (record.status, record.epochs, record.steps) == ("finished", epochs, 2 * epochs)


def test_every_epoch_has_one_row_with_the_mean_of_its_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests after the second and fourth of five epochs, and after the last."""
    with_losses(monkeypatch, float)
    with_tests(monkeypatch, accuracy=[0.2, 0.9, 0.5])
    more = ("trainer.test_every=2", "trainer.max_epochs=5", "optimizer.lr=0.004")
    record = run_smoke(tmp_path, *more)
    rows = record.history
    assert rows["epoch"] == [1, 2, 3, 4, 5]
    assert rows["step"] == [2, 4, 6, 8, 10]
    assert rows["train/loss"] == [1.5, 3.5, 5.5, 7.5, 9.5]
    last_steps = [0.004 * cosine(10, 0, step - 1) for step in (2, 4, 6, 8, 10)]
    assert rows["lr"] == pytest.approx(last_steps, rel=1e-12)
    assert rows["test/accuracy"] == [None, 0.2, None, 0.9, 0.5]
    kept = history(tmp_path, record)  # metrics.csv
    assert [row["epoch"] for row in kept] == list("12345")
    assert [row["test/accuracy"] for row in kept] == ["", "0.2", "", "0.9", "0.5"]
    assert record.metrics["test/accuracy"] == 0.5, "the last, not the best"
    assert record.metrics["test/accuracy_best"] == 0.9
    assert record.metrics["train/loss"] == 9.5


def module_of(setup: Setup) -> Training:
    return Training(
        Alone(setup.model, 12), [Progress("name", [])], vocab_size=12,
        make_optimizer=lambda p: torch.optim.SGD(p), total_steps=1, trainer=setup.trainer,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("clip", "expected"), [(None, (3.0, 4.0)), (1.0, (0.6, 0.8)), (5.1, (3.0, 4.0))]
)
def test_gradients_are_scaled_down_to_the_largest_norm(
    clip: float | None, expected: tuple[float, float], tmp_path: Path
) -> None:
    """All parameters together: 3 in one and 4 in another make a norm of 5."""
    setup = set_up(smoke(tmp_path))
    module = module_of(setup)
    first, *_, last = setup.model.parameters()
    for parameter, size in ((first, 3.0), (last, 4.0)):
        parameter.grad = torch.zeros_like(parameter)
        parameter.grad.view(-1)[0] = size
    module.configure_gradient_clipping(torch.optim.SGD([first, last]), clip)
    found = [parameter.grad.norm().item() for parameter in (first, last)]
    assert found == pytest.approx(expected, rel=1e-6)


EXAMPLES = Examples(*(np.zeros((2, 8), dtype=np.int64),) * 2)


class Sampled(ExampleData):
    """Notes how many test sequences are asked for, and gives two."""

    asked = 0

    def sample(self, count: int) -> Any:
        self.asked = count
        return super().sample(2)


def test_statistics_take_64_sequences_and_32768_tokens_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "coefficient_statistics", lambda *_: {})
    setup = set_up(smoke(tmp_path, "task=compression"))
    data = Sampled(setup.task, EXAMPLES, EXAMPLES)
    setup = replace(setup, data=data)
    module = module_of(setup)
    run = Progress("name", [{"git": {}, "versions": {}, "device": {}}])
    lengths = {7: 64, 511: 64, 512: 64, 513: 63, 1024: 32, 2**15: 1, 2**15 + 1: 1}
    for length, sequences in lengths.items():
        setup.task.seq_len = length
        make_record(Job(setup, tmp_path, run), module)
        assert data.asked == sequences, length


def test_metrics_of_a_run_that_never_had_a_test_are_chance(tmp_path: Path) -> None:
    setup = set_up(smoke(tmp_path))
    never = Progress("name", [], history=[{"epoch": 1, "train/loss": 2.5}], diverged_at=9)
    module = module_of(setup)
    assert ExampleData(setup.task, EXAMPLES, EXAMPLES).metrics(never, module, 0.125) == {
        "test/accuracy": 0.125,
        "test/accuracy_macro": 0.125,
        "test/accuracy_best": 0.125,
        "test/loss": None,
        "train/loss": 2.5,
    }
