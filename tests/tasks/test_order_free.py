"""Accuracies to compare with: counting tokens, and the best that can be learned."""

import numpy as np
import pytest

from coefdyn.config.build import build_task
from coefdyn.config.compose import compose
from coefdyn.tasks.mad.compression import Compression
from coefdyn.tasks.mad.in_context_recall import InContextRecall
from coefdyn.tasks.order_free import order_free
from coefdyn.tasks.task import IGNORE, Task

RECALL = {"vocab_size": 32, "seq_len": 128, "multi_query": True, "frac_noise": 0.2,
          "noise_vocab_size": 16, "num_train": 2, "num_test": 600}  # fmt: skip


def by_rule(task: InContextRecall) -> float:
    """The value that occurred as often as the key has before, or else the next more frequent."""
    inputs, targets = task.generate("test", 7)
    right = []
    for row, wanted in zip(inputs, targets, strict=True):
        for t in np.flatnonzero(wanted != IGNORE):
            counts = np.bincount(row[: t + 1], minlength=task.vocab_size)
            values = counts[task.n_keys : task.n_keys + task.n_values]
            before = counts[row[t]] - 1
            right.append(
                np.where(values < before, 1000, values).argmin() + task.n_keys == wanted[t]
            )
    return float(np.mean(right))


def test_counting_is_far_above_chance_in_noisy_recall() -> None:
    """At the paper's sizes, and better than one rule of thumb that counts."""
    task = InContextRecall(**RECALL)
    found = order_free(task)
    assert task.chance == 0.125
    assert by_rule(task) == pytest.approx(0.40, abs=0.02)
    assert found == pytest.approx(0.48, abs=0.03)


def test_the_order_of_a_sequence_is_not_looked_at() -> None:
    """Tokens that are drawn anew for each place tell nothing but their number."""

    class Coin(Task):
        """The last of three tokens is wanted: the present one, or one that occurred as often."""

        @property
        def chance(self) -> float:
            return 0.5

        def draw(self, count, split, rng):  # type: ignore[no-untyped-def]
            inputs = rng.permuted(np.tile([0, 1, 2], (count, 1)), axis=1)
            targets = np.full_like(inputs, IGNORE)
            targets[:, -1] = inputs[:, 0]
            return type(Compression(3, 3, 2, 2).generate("test", 0))(inputs, targets)

    assert order_free(Coin(3, 3, 2, 2)) == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.parametrize("task", ["selective_copying", "fuzzy_recall", "compression"])
def test_every_task_has_one_between_chance_and_its_ceiling(task: str) -> None:
    made = build_task(compose([f"task={task}", "scale=lite"]))
    assert made.chance - 0.02 <= order_free(made) < 0.9
    assert order_free(made) == order_free(build_task(compose([f"task={task}", "scale=lite"])))


def test_what_memorization_never_showed_is_beyond_its_ceiling() -> None:
    task = build_task(compose(["task=memorization", "scale=lite", "task.num_train=64"]))
    train, test = (task.generate(split, 0) for split in ("train", "test"))
    shown = set(train.inputs.flatten().tolist())
    asked = [
        int(row[t - 1])
        for row, wanted in zip(test.inputs, test.targets, strict=True)
        for t in np.flatnonzero(wanted != IGNORE)
    ]
    known = np.mean([key in shown for key in asked])
    assert task.ceiling(train, test) == pytest.approx(known)
    assert 0.5 < known < 1
    other = build_task(compose(["task=noisy_recall", "scale=lite"]))
    assert other.ceiling(train, test) == 1.0


def test_a_validation_set_is_neither_of_the_others_and_moves_none() -> None:
    task = build_task(compose(["task=noisy_recall", "scale=smoke"]))
    train, test, validation = (task.generate(s, 0) for s in ("train", "test", "validation"))
    assert len(validation.inputs) == len(test.inputs)
    assert not np.array_equal(validation.inputs, test.inputs)
    assert not np.array_equal(validation.inputs, train.inputs[: len(test.inputs)])
    # (seed, 2) would be the numbers that order the batches of the first epoch.
    same = [np.random.default_rng(key).random() for key in ([5, 2], [5, 2, 0])]
    assert same[0] == same[1]
