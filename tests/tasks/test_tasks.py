"""Each fact about the MAD tasks on thousands of sequences, and agreement with plain loops."""

import numpy as np
import pytest

from coefdyn.tasks.mad.memorization import Memorization
from coefdyn.tasks.task import IGNORE
from tests.tasks import reference
from tests.tasks.compared import assert_same_distribution, stack
from tests.tasks.makers import MAKERS, N, compression, copying, fuzzy, memorization, recall

CHANGES = [
    ("copying", {"vocab_size": 17}),
    ("copying", {"seq_len": 41}),
    ("copying", {"num_tokens_to_copy": 7}),
    ("memorization", {"vocab_size": 70}),
    ("memorization", {"seq_len": 18}),
    ("memorization", {"frac_noise": 0.2, "noise_vocab_size": 4}),
    ("memorization", {"noise_vocab_size": 4}),
    ("memorization", {"map_seed": 1}),
    ("recall", {"vocab_size": 26}),
    ("recall", {"seq_len": 34}),
    ("recall", {"multi_query": False}),
    ("recall", {"frac_noise": 0.3}),
    ("recall", {"noise_vocab_size": 6}),
    ("fuzzy", {"vocab_size": 20}),
    ("fuzzy", {"seq_len": 66}),
    ("fuzzy", {"k_motif_size": 2}),
    ("fuzzy", {"v_motif_size": 2}),
    ("fuzzy", {"multi_query": False}),
    ("fuzzy", {"frac_noise": 0.2, "noise_vocab_size": 4}),
    ("fuzzy", {"noise_vocab_size": 4}),
    ("compression", {"vocab_size": 17}),
    ("compression", {"seq_len": 13}),
]


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=lambda value: str(value))
def test_every_argument_changes_the_data(name: str, change: dict[str, float]) -> None:
    before, after = (MAKERS[name](**c).generate("test", 0) for c in ({}, change))
    assert not all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))


def test_selective_copying_facts() -> None:
    for split in ("train", "test"):
        inputs, targets = copying().generate(split, 0)
        for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
            assert tokens[33] == 15
            assert tokens[34:] == [14] * 6
            assert tokens[32] < 14, "a blank after the last content token"
            content = [token for token in tokens[:33] if token != 14]
            assert len(content) == 6
            assert wanted == [IGNORE] * 34 + content


def test_memorization_facts() -> None:
    task = memorization()
    pairs: dict[int, int] = {}
    for split in ("train", "test"):
        inputs, targets = task.generate(split, 3)
        assert (inputs[:, 1::2] == 63).all()
        assert (targets[:, 0::2] == IGNORE).all()
        for key, value in zip(inputs[:, 0::2].ravel(), targets[:, 1::2].ravel(), strict=True):
            assert key < 31 <= value < 63
            assert pairs.setdefault(int(key), int(value)) == value
    assert len(set(pairs.values())) == len(pairs) == 31, "one fixed one-to-one map"


def test_unknown_keys_bound_memorization_at_paper_scale() -> None:
    task = Memorization(4096, 32, num_train=256, num_test=1280)
    known = set(task.generate("train", 0).inputs[:, 0::2].ravel())
    wanted = task.generate("test", 0).inputs[:, 0::2].ravel()
    assert np.mean([key in known for key in wanted]) == pytest.approx(0.87, abs=0.01)


@pytest.mark.parametrize("frac_noise", [0.0, 0.2])
def test_recall_facts(frac_noise: float) -> None:
    task = recall(frac_noise=frac_noise)
    train = task.generate("train", 0)
    assert np.array_equal(train.inputs[:, 1:], train.targets[:, :-1])
    assert (train.targets != IGNORE).all()
    inputs, targets = task.generate("test", 0)
    noise = 0
    for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        tokens = [*tokens, wanted[-1]]  # the last target is the last token
        known: dict[int, int] = {}
        for slot in range(16):
            key, value = tokens[2 * slot : 2 * slot + 2]
            if key >= 16:
                assert value >= 16
                noise += 1
                expected = IGNORE
            else:
                assert key < 8 <= value < 16
                expected = known.get(key, IGNORE)
                assert known.setdefault(key, value) == value
            assert wanted[2 * slot] == expected
            if slot:
                assert wanted[2 * slot - 1] == IGNORE
        assert wanted[-1] != IGNORE, "the last pair repeats a key already shown"
    assert noise / (N * 15) == pytest.approx(frac_noise * 14 / 15, abs=0.01)


def test_single_query_recall_scores_the_last_value_after_a_copy_token() -> None:
    inputs, targets = recall(multi_query=False).generate("test", 0)
    assert inputs.shape[1] == 32
    assert (inputs[:, -2] == 23).all()
    assert (targets[:, :-1] == IGNORE).all()
    for tokens, answer in zip(inputs.tolist(), targets[:, -1].tolist(), strict=True):
        place = next(s for s in range(15) if tokens[2 * s] == tokens[-1])
        assert tokens[2 * place + 1] == answer


def parse_fuzzy(tokens: list[int], n_keys: int, n_values: int) -> list[tuple[tuple, tuple]]:
    """Split a sequence without pads and noise into (key, value) pairs by kind of token."""
    pairs: list[tuple[list[int], list[int]]] = []
    for token in tokens:
        if token < n_keys:
            if not pairs or pairs[-1][1]:
                pairs.append(([], []))
            pairs[-1][0].append(token)
        else:
            assert token < n_keys + n_values
            pairs[-1][1].append(token)
    return [(tuple(key), tuple(value)) for key, value in pairs]


@pytest.mark.parametrize("split", ["train", "test"])
def test_fuzzy_recall_facts(split: str) -> None:
    task = fuzzy()
    inputs, targets = task.generate(split, 0)
    if split == "train":
        assert np.array_equal(inputs[:, 1:], targets[:, :-1])
        assert (targets != IGNORE).all()
    sizes = {"key": set(), "value": set()}
    for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        tokens = [*tokens, wanted[-1]]
        pads = next(i for i, token in enumerate(tokens) if token != 15)
        assert 15 not in tokens[pads:], "pads on the left only"
        pairs = parse_fuzzy(tokens[pads:], task.n_keys, task.n_values)
        known: dict[tuple, tuple] = {}
        scored = [IGNORE] * pads
        for key, value in pairs:
            assert len(set(key)) == len(key) <= 3
            assert len(set(value)) == len(value) <= 3
            sizes["key"].add(len(key))
            sizes["value"].add(len(value))
            scored += [IGNORE] * len(key)
            scored += list(value) if key in known else [IGNORE] * len(value)
            assert known.setdefault(key, value) == value
        assert pairs[-1] in pairs[:-1], "the probe can be answered"
        if split == "test":
            assert wanted == scored[1:]
    assert sizes["value"] == {1, 2, 3}
    assert sizes["key"] == ({1, 2, 3} if split == "train" else {3})


def test_fuzzy_recall_with_noise_and_single_query() -> None:
    task = fuzzy(frac_noise=0.3, noise_vocab_size=4, vocab_size=20, multi_query=False)
    inputs, targets = task.generate("test", 0)
    is_noise = (inputs >= task.n_keys + task.n_values) & (inputs < 18)
    assert 0.2 < is_noise.mean() < 0.35
    for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        answer = [t for t in wanted if t != IGNORE]
        assert wanted[-len(answer) :] == answer
        prefix = len(tokens) - len(answer) - 3
        assert tokens[prefix] == 19, "a copy token before the probe"
        key = tokens[prefix + 1 : prefix + 4]
        found = [i for i in range(prefix - 3) if tokens[i : i + 3] == key]
        assert any(tokens[i + 3 : i + 3 + len(answer)] == answer for i in found)


def test_compression_facts() -> None:
    inputs, targets = compression().generate("train", 0)
    assert (inputs[:, -1] == 15).all()
    assert (inputs[:, :-1] < 15).all()
    assert np.array_equal(inputs, targets)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("name", MAKERS)
def test_fast_generator_agrees_with_plain_loops(name: str, split: str) -> None:
    task, train = MAKERS[name](), split == "train"
    loops = {
        "copying": lambda rng: reference.selective_copying(rng, 16, 40, 6),
        "memorization": lambda rng: reference.memorization(rng, 64, 16, task.value_of),
        "recall": lambda rng: reference.recall(rng, 24, 32, 0.2, 8, train),
        "fuzzy": lambda rng: reference.fuzzy_recall(rng, 16, 64, 3, train),
        "compression": lambda rng: reference.compression(rng, 16, 12),
    }
    assert_same_distribution(task.generate(split, 0), stack(loops[name]), task.vocab_size)


# By hand: one over the tokens that can be an answer. Memorization has one value more than keys.
CHANCE = {
    "copying": 1 / 14,
    "memorization": 1 / 32,
    "recall": 1 / 8,
    "fuzzy": 1 / 8,
    "compression": (1 + 11 / 15) / 12,  # the last token is always the same
}


@pytest.mark.parametrize("name", MAKERS)
def test_chance_is_the_accuracy_of_guessing(name: str) -> None:
    task = MAKERS[name]()
    assert task.chance == pytest.approx(CHANCE[name], rel=1e-12)
    targets = task.generate("test", 0).targets
    if name != "compression":
        answers = len(set(targets[targets != IGNORE]))
        assert answers == round(1 / CHANCE[name]) - (name == "memorization")


# The smallest that BAD's messages ask for.
LEAST = [
    ("copying", {"vocab_size": 3}),
    ("copying", {"seq_len": 13}),
    ("memorization", {"vocab_size": 3}),
    ("memorization", {"seq_len": 2}),
    ("recall", {"vocab_size": 10}),
    ("recall", {"seq_len": 4}),
    ("fuzzy", {"seq_len": 18}),
    ("fuzzy", {"vocab_size": 7}),
    ("compression", {"vocab_size": 2}),
    ("compression", {"seq_len": 2}),
]


@pytest.mark.parametrize(("name", "change"), LEAST, ids=lambda v: str(v))
def test_the_smallest_settings_work(name: str, change: dict[str, int]) -> None:
    task = MAKERS[name](**change)
    for split in ("train", "test"):
        inputs, targets = task.generate(split, 0)
        assert 0 <= inputs.min() <= inputs.max() < task.vocab_size
        assert ((targets != IGNORE).sum(1) > 0).all()


BAD = [
    ("copying", {"vocab_size": 2}, "must be at least 3"),
    ("copying", {"seq_len": 12}, "must be at least 13"),
    ("copying", {"seq_len": 0}, "task.seq_len=0"),
    ("memorization", {"vocab_size": 2}, "too small"),
    ("memorization", {"seq_len": 15}, "must be even"),
    ("memorization", {"frac_noise": 1.0}, "must lie in [0, 1)"),
    ("memorization", {"frac_noise": 0.1}, "raise task.noise_vocab_size"),
    ("recall", {"frac_noise": -0.1}, "must lie in [0, 1)"),
    ("recall", {"vocab_size": 9}, "raise it to 10 or more"),
    ("recall", {"seq_len": 31}, "must be even"),
    ("recall", {"seq_len": 2}, "at least 4"),
    ("recall", {"noise_vocab_size": -1}, "at least 0"),
    ("fuzzy", {"seq_len": 17}, "must be at least 18"),
    ("fuzzy", {"vocab_size": 6}, "raise it to 7 or more"),
    ("fuzzy", {"k_motif_size": 0}, "at least 1"),
    ("compression", {"vocab_size": 1}, "at least 2"),
    ("compression", {"seq_len": 1}, "at least 2"),
]


@pytest.mark.parametrize(("name", "change", "message"), BAD, ids=lambda v: str(v))
def test_settings_that_cannot_work_say_so(
    name: str, change: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        MAKERS[name](**change)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
