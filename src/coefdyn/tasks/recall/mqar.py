"""Multi-query associative recall: many pairs first, a question about each of them later."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from coefdyn.tasks.task import IGNORE, Examples, Split, Task, check_vocabulary

Mix = Sequence[Sequence[int]]  # (num_kv_pairs, seq_len)


class Mqar(Task):
    """k_1 v_1 ... k_n v_n, then each key once more: the target there is its value.

    The distribution of Arora et al. 2023 (zoology). Keys are n different ids from 1 to V/2 - 1,
    values n different ids from V/2 to V-1. A question can stand at every second step after the
    pairs. Those g = 0, 1, ... are drawn for k_1, k_2, ... one after the other, without
    replacement, with p(g) ~ (g + 1)^(power_a - 1): near the pairs for a small `power_a`, uniform
    for 1. So the question about k_i stands 2(n - i + 1 + g) steps after k_i. All other steps hold
    random ids of the whole vocabulary, or with `random_filler`=false the id 0. Only questions are
    scored, in training too.

    `train_mix`: a list of [num_kv_pairs, seq_len], each of which makes an equal part of the
    training data; sequences that are shorter than seq_len end with the id 0. Tests have
    `num_kv_pairs` and `seq_len`. Without a mix, training has them too.
    """

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        num_kv_pairs: int,
        num_train: int,
        num_test: int,
        power_a: float = 0.01,
        random_filler: bool = True,
        train_mix: Mix | None = None,
    ) -> None:
        super().__init__(vocab_size, seq_len, num_train, num_test)
        if type(power_a) not in (int, float) or not 0 < power_a < np.inf:
            raise ValueError(f"task.power_a={power_a} must be a number above 0; 1 is uniform")
        if random_filler not in (True, False):
            raise ValueError(f"task.random_filler={random_filler} must be true or false")
        _check_pairs("task.", num_kv_pairs, seq_len)
        self.num_kv_pairs, self.power_a, self.random_filler = num_kv_pairs, power_a, random_filler
        self.train_mix = train_mix
        self.mix = [(num_kv_pairs, seq_len)] if train_mix is None else _checked(train_mix, seq_len)
        most = max(num_kv_pairs, *(pairs for pairs, _ in self.mix))
        check_vocabulary(vocab_size, 2 * (most + 1), f"{most} different keys and as many values")
        if num_train < len(self.mix):
            raise ValueError(
                f"task.num_train={num_train} is less than the {len(self.mix)} parts of "
                "task.train_mix; raise it"
            )

    def at_length(self, seq_len: int) -> "Task":
        """As many pairs, with more or less room for questions. Only tests have another length, so
        there is no mix."""
        return type(self)(**self.settings() | {"seq_len": seq_len, "train_mix": None})

    @property
    def chance(self) -> float:
        """That of guessing among all values."""
        return 1 / (self.vocab_size - self.vocab_size // 2)

    def gaps(self, examples: Examples) -> Int64[ndarray, "b t"]:
        """From a question back to its key among the pairs of a test."""
        inputs, gaps = examples.inputs, np.zeros_like(examples.inputs)
        row, place = np.nonzero(examples.targets != IGNORE)
        keys = inputs[row, : 2 * self.num_kv_pairs : 2]
        gaps[row, place] = place - 2 * (keys == inputs[row, place][:, None]).argmax(1)
        return gaps

    def draw(self, count: int, split: Split, rng: np.random.Generator) -> Examples:
        mix = self.mix if split == "train" else [(self.num_kv_pairs, self.seq_len)]
        bounds = [count * part // len(mix) for part in range(len(mix) + 1)]
        inputs = np.zeros((count, self.seq_len), dtype=np.int64)
        targets = np.full_like(inputs, IGNORE)
        for start, stop, (pairs, length) in zip(bounds, bounds[1:], mix, strict=False):
            part = self._part(stop - start, pairs, length, rng)
            inputs[start:stop, :length], targets[start:stop, :length] = part
        return Examples(inputs, targets)

    def _part(self, count: int, pairs: int, length: int, rng: np.random.Generator) -> Examples:
        first_value = self.vocab_size // 2
        keys = 1 + distinct(rng, count, pairs, first_value - 1)
        values = first_value + distinct(rng, count, pairs, self.vocab_size - first_value)
        # The places of the largest log p + Gumbel noise, from the largest down, are a draw without
        # replacement.
        room = (length - 2 * pairs) // 2
        score = (self.power_a - 1) * np.log(np.arange(1, room + 1)) + rng.gumbel(size=(count, room))
        questions = 2 * pairs + 2 * (-score).argsort(1)[:, :pairs]
        filler = np.zeros((count, length), dtype=np.int64)
        if self.random_filler:
            filler = rng.integers(self.vocab_size, size=(count, length))
        inputs, targets = filler, np.full_like(filler, IGNORE)
        inputs[:, 0 : 2 * pairs : 2], inputs[:, 1 : 2 * pairs : 2] = keys, values
        np.put_along_axis(inputs, questions, keys, axis=1)
        np.put_along_axis(targets, questions, values, axis=1)
        return Examples(inputs, targets)


def distinct(rng: np.random.Generator, count: int, size: int, n: int) -> Int64[ndarray, "b s"]:
    """In each row `size` different numbers below n, every choice and order equally likely.

    What repeats an earlier number of its row is drawn again. No number is special in that, so all
    results are equally likely. For most of the n numbers a permutation takes less time.
    """
    if 2 * size > n:
        return rng.random((count, n)).argsort(1)[:, :size]
    numbers = rng.integers(n, size=(count, size))
    while True:
        order = numbers.argsort(1, kind="stable")
        ordered = np.take_along_axis(numbers, order, axis=1)
        row, place = np.nonzero(ordered[:, 1:] == ordered[:, :-1])
        if not len(row):
            return numbers
        numbers[row, order[row, place + 1]] = rng.integers(n, size=len(row))


def _checked(mix: Mix, longest: int) -> list[tuple[int, int]]:
    """The mix, if every part of it can be drawn and fits."""
    rule = "must be a list of [num_kv_pairs, seq_len], such as [[4,64],[8,128]], or null"
    if not isinstance(mix, list | tuple) or not mix:
        raise ValueError(f"task.train_mix={mix} {rule}")
    for part in mix:
        if not isinstance(part, list | tuple) or len(part) != 2:
            raise ValueError(f"task.train_mix={mix} {rule}")
        pairs, length = part
        _check_pairs(f"task.train_mix={mix}: ", pairs, length)
        if length > longest:
            raise ValueError(
                f"task.train_mix={mix} has sequences of {length}, and task.seq_len={longest} is "
                "the longest; raise task.seq_len"
            )
    return [(pairs, length) for pairs, length in mix]


def _check_pairs(where: str, pairs: int, length: int) -> None:
    for name, value in (("num_kv_pairs", pairs), ("seq_len", length)):
        if type(value) is not int or value < 1:
            raise ValueError(f"{where}{name}={value} must be a whole number of at least 1")
    if length < 4 * pairs or length % 2:
        raise ValueError(
            f"{where}seq_len={length} must be even and at least {4 * pairs}, to show "
            f"num_kv_pairs={pairs} pairs and to ask for each at every second step"
        )
