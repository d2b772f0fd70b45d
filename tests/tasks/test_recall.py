"""Each fact about copying and multi-query recall on thousands of sequences, and their loops."""

from collections import Counter

import numpy as np
import pytest

from coefdyn.tasks.recall.mqar import distinct
from coefdyn.tasks.task import IGNORE
from tests.tasks import loops
from tests.tasks.compared import assert_same_distribution, stack
from tests.tasks.makers import N, copy, mqar

SPLITS = ("train", "test")


@pytest.mark.parametrize("split", SPLITS)
def test_what_follows_the_separator_is_what_came_before_it(split: str) -> None:
    inputs, targets = copy().generate(split, 0)
    sizes = Counter()
    for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        size = tokens.index(11)
        string = tokens[:size]
        assert max(string) < 10
        assert tokens[size + 1 : 2 * size] == string[:-1], "it reads what it should have written"
        assert tokens[2 * size :] == [10] * (24 - 2 * size)
        assert wanted == [IGNORE] * size + string + [IGNORE] * (24 - 2 * size)
        sizes[size] += 1
    if split == "test":
        assert sizes == {12: N}
    else:
        assert [sizes[n] / N for n in range(1, 13)] == pytest.approx([1 / 12] * 12, abs=0.03)
    slow = stack(lambda rng: loops.copy(rng, 12, 24, split == "train"))
    assert_same_distribution(copy().generate(split, 1), slow, 12)


@pytest.mark.parametrize("random_filler", [True, False])
def test_every_pair_is_asked_for_once(random_filler: bool) -> None:
    task = mqar(random_filler=random_filler)
    inputs, targets = task.generate("test", 0)
    for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        pairs = dict(zip(tokens[0:8:2], tokens[1:8:2], strict=True))
        assert len(pairs) == len(set(pairs.values())) == 4
        assert all(1 <= key < 16 <= value < 32 for key, value in pairs.items())
        asked = [place for place, value in enumerate(wanted) if value != IGNORE]
        assert sorted(tokens[place] for place in asked) == sorted(pairs)
        assert all(wanted[place] == pairs[tokens[place]] for place in asked)
        assert all(place >= 8 and place % 2 == 0 for place in asked)
        filler = [token for place, token in enumerate(tokens) if place >= 8 and place not in asked]
        assert random_filler or set(filler) == {0}
    if random_filler:
        rest = inputs[:, 9::2]  # never a question
        assert np.bincount(rest.ravel()) / rest.size == pytest.approx(np.full(32, 1 / 32), abs=5e-3)


@pytest.mark.parametrize("random_filler", [True, False])
@pytest.mark.parametrize("power_a", [0.01, 1.0])
def test_recall_has_the_distribution_of_plain_loops(power_a: float, random_filler: bool) -> None:
    task = mqar(power_a=power_a, random_filler=random_filler)
    slow = stack(lambda rng: loops.mqar(rng, 32, 40, 4, power_a, random_filler))
    for split in SPLITS:
        assert_same_distribution(task.generate(split, 0), slow, 32)


def first_gaps(power_a: float) -> np.ndarray:
    """How often the first key is asked for at place 0, 1, ... of those where it could be."""
    task = mqar(power_a=power_a, random_filler=False)
    inputs, _ = task.generate("test", 0)
    asked = np.argmax(inputs[:, 8:] == inputs[:, :1], axis=1)
    return np.bincount(asked // 2, minlength=16) / N


@pytest.mark.parametrize("power_a", [0.01, 0.5, 1.0])
def test_gaps_of_the_first_key_follow_the_power_law(power_a: float) -> None:
    law = np.arange(1, 17) ** (power_a - 1)
    expected = law / law.sum()
    error = np.sqrt(expected / N)
    assert (np.abs(first_gaps(power_a) - expected) < 5 * error).all()


def test_a_small_power_asks_soon_and_one_anywhere() -> None:
    shares = {power_a: first_gaps(power_a)[:4].sum() for power_a in (0.01, 0.5, 1.0)}
    assert shares[0.01] == pytest.approx(0.615, abs=0.03)  # (1 + 1/2 + 1/3 + 1/4) / H_16
    assert shares[1.0] == pytest.approx(0.25, abs=0.03)
    assert shares[0.01] > shares[0.5] > shares[1.0]


def test_a_mix_has_equal_parts_and_tests_have_none() -> None:
    mix = [[1, 8], [2, 20], [4, 40]]
    task = mqar(train_mix=mix, random_filler=False)
    inputs, targets = task.generate("train", 0)
    scored = Counter((targets != IGNORE).sum(1).tolist())
    assert scored == {1: N // 3, 2: N // 3, 4: N // 3}
    for pairs, length in mix:
        rows = (targets != IGNORE).sum(1) == pairs
        assert (inputs[rows, length:] == 0).all()
        assert (inputs[rows, : 2 * pairs] > 0).all()
        last = np.flatnonzero((targets[rows] != IGNORE).any(0)).max()
        assert last == length - 2, "questions reach the end"
    alone = mqar(random_filler=False)
    for one, other in zip(task.generate("test", 0), alone.generate("test", 0), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(("size", "n"), [(3, 4), (3, 6), (2, 6), (1, 1), (4, 4)])
def test_different_numbers_are_drawn_uniformly(size: int, n: int) -> None:
    rows = distinct(np.random.default_rng(0), 24000, size, n).tolist()
    counts = Counter(map(tuple, rows))
    possible = int(np.prod(range(n, n - size, -1)))
    assert all(len(set(row)) == size and set(row) <= set(range(n)) for row in counts)
    assert len(counts) == possible
    expected = len(rows) / possible
    assert max(abs(count - expected) for count in counts.values()) < 5 * np.sqrt(expected)
