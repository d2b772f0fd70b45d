"""Every split of every seed is a stream of its own, and stays what it was."""

import itertools
import json

import numpy as np
import pytest

from tests.tasks.digests import DIGESTS, GENERATED, SEEDS, SPLITS, digests
from tests.tasks.makers import MAKERS, OTHERS, memorization

ALL = MAKERS | OTHERS
# In training they have short sequences too, of which there are few.
SHORT = ("arithmetic", "nested", "copy")

KNOWN: dict[str, dict[str, list[str]]] = json.loads(DIGESTS.read_text())


@pytest.mark.parametrize("name", KNOWN)
def test_data_are_what_they_were(name: str) -> None:
    """A task that fails here makes other data than it did: see tests/tasks/digests.py."""
    assert digests(name) == KNOWN[name]


def test_every_stream_has_digests_of_its_own() -> None:
    assert sorted(KNOWN) == GENERATED
    for streams in KNOWN.values():
        assert sorted(streams) == sorted(f"{split} {seed}" for split in SPLITS for seed in SEEDS)
        inputs = [digest for digest, _ in streams.values()]
        assert len(set(inputs)) == len(inputs)


@pytest.mark.parametrize("name", ALL)
def test_no_two_streams_share_a_sequence(name: str) -> None:
    """The test data of seed 0 are not the training data of seed 1, for one. Both splits have as
    many sequences here, so that equal streams would give equal sequences."""
    task = ALL[name]()
    task.num_train = task.num_test = 200
    splits = ("test", "validation") if name in SHORT else SPLITS
    streams = {key: task.generate(*key).inputs for key in itertools.product(splits, range(4))}
    rows = {key: {row.tobytes() for row in inputs} for key, inputs in streams.items()}
    for (one, a), (other, b) in itertools.combinations(rows.items(), 2):
        assert not a & b, f"{one} and {other}"
    assert all(len(found) == 200 for found in rows.values()), "a sequence comes twice"


@pytest.mark.parametrize("name", SHORT)
def test_few_training_sequences_are_shared_where_some_are_short(name: str) -> None:
    task = ALL[name]()
    rows = [{row.tobytes() for row in task.generate("train", seed).inputs} for seed in range(4)]
    for one, other in itertools.combinations(rows, 2):
        assert len(one & other) < 0.15 * len(one)


@pytest.mark.parametrize("name", ALL)
def test_a_stream_is_the_same_in_any_order_and_of_any_object(name: str) -> None:
    task = ALL[name]()
    task.num_train = task.num_test = 50
    first = {key: task.generate(*key) for key in itertools.product(SPLITS, range(3))}
    again = ALL[name]()
    again.num_train = again.num_test = 50
    for key, examples in reversed(first.items()):
        for one, other in zip(examples, again.generate(*key), strict=True):
            assert np.array_equal(one, other)
            assert one.dtype == np.int64
            assert one.shape == (50, task.length)
        assert examples.inputs.min() >= 0
        assert examples.inputs.max() < task.vocab_size


def test_the_map_to_memorize_depends_on_its_own_seed_alone() -> None:
    first, again, other = (memorization(map_seed=seed) for seed in (12345, 12345, 12346))
    assert np.array_equal(first.value_of, again.value_of)
    assert not np.array_equal(first.value_of, other.value_of)
    for split, seed in itertools.product(SPLITS, range(3)):
        inputs, targets = first.generate(split, seed)
        assert np.array_equal(targets[:, 1::2], first.value_of[inputs[:, ::2]])
    # The same keys come up whatever the map.
    keys = (task.generate("train", 0).inputs for task in (first, other))
    assert np.array_equal(*keys)


def test_the_map_is_what_it_was() -> None:
    """Keys 0..7 to eight of the nine values 8..16, none twice."""
    assert memorization(vocab_size=18).value_of.tolist() == [12, 14, 15, 11, 16, 8, 10, 9]
