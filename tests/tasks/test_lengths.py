"""A task at another length is the task that has been built with it; gaps tell how far back."""

import itertools

import numpy as np
import pytest

from coefdyn.tasks.task import IGNORE, Task
from tests.tasks.makers import MAKERS, OTHERS, copy, flip_flop, mqar, recall

ALL = MAKERS | OTHERS


@pytest.mark.parametrize("name", ALL)
def test_another_length_changes_nothing_else(name: str) -> None:
    one, other = ALL[name]().at_length(64), ALL[name](seq_len=64)
    assert one.settings() == other.settings()
    for split, seed in itertools.product(("train", "test"), range(2)):
        for a, b in zip(one.generate(split, seed), other.generate(split, seed), strict=True):
            assert np.array_equal(a, b)


def test_a_mix_is_left_out_at_another_length() -> None:
    task = mqar(train_mix=[[2, 20], [4, 40]]).at_length(16)
    assert task.settings() == mqar(seq_len=16).settings()


def test_a_task_that_forgets_its_arguments_says_so() -> None:
    class Forgetful(Task):
        def __init__(self, vocab_size: int, seq_len: int, shift: int) -> None:
            super().__init__(vocab_size, seq_len, 1, 1)

    with pytest.raises(ValueError, match=r"Forgetful cannot .* keeps no shift; keep each argument"):
        Forgetful(4, 8, 2).at_length(16)


def test_gaps_lead_back_to_what_is_asked_for() -> None:
    """At the place that a gap leads to stands the same key, and its value after it."""
    for task in (recall(), recall(multi_query=False), mqar(), mqar(random_filler=False)):
        examples = task.generate("test", 0)
        gaps = task.gaps(examples)
        row, place = np.nonzero(examples.targets != IGNORE)
        shown = place - gaps[row, place]
        assert (shown >= 0).all()
        assert (gaps[row, place] > 0).all()
        assert np.array_equal(examples.inputs[row, shown], examples.inputs[row, place])
        assert np.array_equal(examples.inputs[row, shown + 1], examples.targets[row, place])


def test_gaps_of_recall_are_to_the_last_showing() -> None:
    inputs, targets = examples = recall().generate("test", 0)
    gaps = recall().gaps(examples)
    for tokens, wanted, steps in zip(inputs.tolist(), targets.tolist(), gaps.tolist(), strict=True):
        for place, value in enumerate(wanted):
            if value != IGNORE:
                assert tokens[place] not in tokens[place - steps[place] + 1 : place]


def test_gaps_of_copies_and_of_reads() -> None:
    examples = copy().generate("train", 0)
    row, place = np.nonzero(examples.targets != IGNORE)
    shown = place - copy().gaps(examples)[row, place]
    assert np.array_equal(examples.inputs[row, shown], examples.targets[row, place])
    examples = flip_flop().generate("test", 0)
    row, place = np.nonzero(examples.targets != IGNORE)
    steps = flip_flop().gaps(examples)[row, place]
    assert (examples.inputs[row, place - steps] == 2).all()
    assert np.array_equal(examples.inputs[row, place - steps + 1], examples.targets[row, place])
    for r, p, s in zip(row[:500], place[:500], steps[:500], strict=True):
        assert 2 not in examples.inputs[r, p - s + 2 : p : 2].tolist()
