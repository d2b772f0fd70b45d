"""Settings of the tasks of state tracking and recall: what they change, and which are refused."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from coefdyn.tasks.order_free import order_free
from coefdyn.tasks.task import IGNORE
from tests.tasks.makers import OTHERS

Change = dict[str, Any]
CHANGES: list[tuple[str, Change]] = [
    ("parity", {"seq_len": 41}),
    ("arithmetic", {"seq_len": 26}),
    ("arithmetic", {"modulus": 4}),
    ("arithmetic", {"brackets": True}),
    ("nested", {"seq_len": 38}),
    ("nested", {"modulus": 4}),
    ("group_word", {"seq_len": 41}),
    ("group_word", {"group": "S3"}),
    ("group_word", {"tokens": "elements"}),
    ("flip_flop", {"seq_len": 42}),
    ("flip_flop", {"p_ignore": 0.5}),
    ("mqar", {"vocab_size": 34}),
    ("mqar", {"seq_len": 42}),
    ("mqar", {"num_kv_pairs": 5}),
    ("mqar", {"power_a": 0.3}),
    ("mqar", {"random_filler": False}),
    ("mqar", {"train_mix": [[2, 20], [4, 40]]}),
    ("copy", {"vocab_size": 13}),
    ("copy", {"seq_len": 26}),
]


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=lambda value: str(value))
def test_every_argument_changes_the_data(name: str, change: Change) -> None:
    split = "train" if "train_mix" in change else "test"
    before, after = (OTHERS[name](**c).generate(split, 0) for c in ({}, change))
    assert not all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))


# By hand: one over the tokens that can be an answer.
CHANCE = {
    "parity": 1 / 2,
    "arithmetic": 1 / 5,
    "nested": 1 / 5,
    "group_word": 1 / 12,
    "flip_flop": 1 / 2,
    "mqar": 1 / 16,
    "copy": 1 / 10,
}


@pytest.mark.parametrize("name", OTHERS)
def test_chance_is_the_accuracy_of_guessing(name: str) -> None:
    task = OTHERS[name]()
    assert task.chance == pytest.approx(CHANCE[name], rel=1e-12)
    targets = task.generate("test", 0).targets
    assert len(set(targets[targets != IGNORE])) == round(1 / CHANCE[name])


@pytest.mark.parametrize("name", OTHERS)
def test_counting_tokens_lies_between_chance_and_everything(name: str) -> None:
    task = OTHERS[name]()
    assert task.chance - 0.02 <= order_free(task) < 0.8
    assert task.ceiling(task.generate("train", 0), task.generate("test", 0)) == 1.0


# The smallest that BAD's messages ask for.
LEAST: list[tuple[str, Change]] = [
    ("parity", {"seq_len": 1}),
    ("arithmetic", {"seq_len": 4, "vocab_size": 10}),
    ("nested", {"seq_len": 6, "vocab_size": 12}),
    ("nested", {"modulus": 2, "vocab_size": 9}),
    ("group_word", {"vocab_size": 12, "seq_len": 1}),
    ("flip_flop", {"seq_len": 4, "p_ignore": 0.0}),
    ("mqar", {"seq_len": 16, "vocab_size": 10}),
    ("mqar", {"train_mix": [[1, 4]]}),
    ("copy", {"seq_len": 2, "vocab_size": 4}),
    ("copy", {"seq_len": 3}),
]


@pytest.mark.parametrize(("name", "change"), LEAST, ids=lambda v: str(v))
def test_the_smallest_settings_work(name: str, change: Change) -> None:
    task = OTHERS[name](**change)
    for split in ("train", "test"):
        inputs, targets = task.generate(split, 0)
        assert inputs.shape == targets.shape == (3000, task.seq_len)
        assert 0 <= inputs.min() <= inputs.max() < task.vocab_size
        assert ((targets != IGNORE).sum(1) > 0).all()


BAD: list[tuple[str, Change, str]] = [
    ("parity", {"vocab_size": 1}, "task.vocab_size=1 is too small for the bits 0 and 1; raise it"),
    ("parity", {"seq_len": 0}, "task.seq_len=0 must be a whole number of at least 1"),
    ("arithmetic", {"vocab_size": 9}, "raise it to 10 or more"),
    ("nested", {"vocab_size": 11}, "raise it to 12 or more"),
    ("arithmetic", {"modulus": 8}, "too small for task.modulus=8 and task.brackets=false; raise"),
    ("arithmetic", {"modulus": 1}, "task.modulus=1 must be a whole number of at least 2"),
    ("arithmetic", {"seq_len": 3}, "task.seq_len=3 is too short"),
    ("nested", {"seq_len": 5}, "it must be at least 6"),
    ("group_word", {"group": "S4"}, "task.group=S4 is not known; choose from Z2, Z60, S3, A4, S5"),
    ("group_word", {"vocab_size": 11}, "for the 12 elements of task.group=A4; raise it to 12"),
    ("flip_flop", {"seq_len": 41}, "must be even and at least 4"),
    ("flip_flop", {"seq_len": 2}, "must be even and at least 4"),
    ("flip_flop", {"p_ignore": 1.0}, "task.p_ignore=1.0 must lie in [0, 1)"),
    ("flip_flop", {"vocab_size": 4}, "raise it to 5 or more"),
    ("mqar", {"seq_len": 14}, "task.seq_len=14 must be even and at least 16"),
    ("mqar", {"seq_len": 41}, "task.seq_len=41 must be even"),
    ("mqar", {"num_kv_pairs": 0}, "task.num_kv_pairs=0 must be a whole number of at least 1"),
    ("mqar", {"vocab_size": 9}, "4 different keys and as many values; raise it to 10"),
    ("mqar", {"power_a": 0.0}, "task.power_a=0.0 must be a number above 0"),
    ("mqar", {"power_a": float("nan")}, "task.power_a=nan must be a number above 0"),
    ("mqar", {"train_mix": []}, "task.train_mix=[] must be a list of [num_kv_pairs, seq_len]"),
    ("mqar", {"train_mix": [[4, 12]]}, "seq_len=12 must be even and at least 16"),
    ("mqar", {"train_mix": [[4, 80]]}, "task.seq_len=40 is the longest; raise task.seq_len"),
    ("mqar", {"train_mix": [[1, 40]] * 3001}, "3001 parts of task.train_mix; raise it"),
    ("copy", {"vocab_size": 3}, "raise it to 4 or more"),
    ("copy", {"seq_len": 1}, "must be at least 2"),
]


@pytest.mark.parametrize(("name", "change", "message"), BAD, ids=lambda v: str(v)[:60])
def test_settings_that_cannot_work_say_so(name: str, change: Change, message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        OTHERS[name](**change)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


# Values of the wrong kind. Here the annotations would refuse them; for a user, the task does.
WRONG_KIND = {
    "task=modular_arithmetic task.modulus=five": "task.modulus=five must be a whole number",
    "task=modular_arithmetic task.brackets=2": "task.brackets=2 must be true or false",
    "task=group_word task.tokens=letters": "choose from generators, elements",
    "task=group_word task.group=5": "task.group=5 is not known; choose from Z2, Z60, S3, A4, S5",
    "task=flip_flop task.p_ignore=most": "task.p_ignore=most must lie in [0, 1)",
    "task=mqar task.power_a=small": "task.power_a=small must be a number above 0",
    "task=mqar task.random_filler=2": "task.random_filler=2 must be true or false",
    "task=mqar task.train_mix=[4,16]": "task.train_mix=[4, 16] must be a list of",
    "task=mqar task.train_mix=[[a,16]]": "num_kv_pairs=a must be a whole number",
    "task=mqar task.train_mix=4": "task.train_mix=4 must be a list of",
}
BUILD = """
import sys
from coefdyn.config.build import build_task
from coefdyn.config.compose import compose
from coefdyn.errors import ConfigError
for text in sys.argv[1:]:
    try:
        build_task(compose(["scale=smoke", *text.split()]))
        print("built")
    except ConfigError as error:
        print(error)
"""


def test_values_of_the_wrong_kind_get_one_sentence() -> None:
    command = [sys.executable, "-c", BUILD, *WRONG_KIND]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    for (overrides, message), line in zip(WRONG_KIND.items(), lines, strict=True):
        assert message in line, overrides
