"""Recall the value that a key had earlier in the sequence; with noise pairs: noisy recall."""

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from coefdyn.tasks.task import (
    IGNORE,
    Examples,
    Split,
    Task,
    check_multi_query,
    check_noise,
    halves,
    shifted,
)


class InContextRecall(Task):
    """Pairs key value key value ..., the last of which repeats a key already shown.

    A key's value is drawn when the key first appears. A slot holds noise tokens with probability
    `frac_noise`, except for one random slot that never does. With `multi_query` the test scores the
    values of all repeated keys, otherwise only the last one, which follows a copy token V-1.
    """

    original = "generate_in_context_recall_instance"

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        num_train: int,
        num_test: int,
        multi_query: bool = True,
        frac_noise: float = 0.0,
        noise_vocab_size: int = 0,
    ) -> None:
        super().__init__(vocab_size, seq_len, num_train, num_test)
        check_noise(frac_noise, noise_vocab_size)
        check_multi_query(multi_query)
        if seq_len % 2 or seq_len < 4:
            raise ValueError(
                f"task.seq_len={seq_len} must be even and at least 4: a pair, and its repetition"
            )
        self.multi_query = multi_query
        self.frac_noise, self.noise_vocab_size = frac_noise, noise_vocab_size
        special = 0 if multi_query else 1
        self.n_keys, self.n_values = halves(vocab_size, special, noise_vocab_size, least=1)

    @property
    def length(self) -> int:
        return self.seq_len - 1 if self.multi_query else self.seq_len

    @property
    def chance(self) -> float:
        return 1 / self.n_values

    def gaps(self, examples: Examples) -> Int64[ndarray, "b t"]:
        """From a key back to the last place where it stood."""
        return steps_since_last(examples.inputs)

    def draw(self, count: int, split: Split, rng: np.random.Generator) -> Examples:
        slots = self.seq_len // 2 - 1
        rows = np.arange(count)
        keys = rng.integers(self.n_keys, size=(count, slots))
        value_of = self.n_keys + rng.integers(self.n_values, size=(count, self.n_keys))
        noisy = rng.random((count, slots)) < self.frac_noise
        noisy[rows, rng.integers(slots, size=count)] = False
        noise = rng.integers(max(self.noise_vocab_size, 1), size=(count, slots, 2))

        shown = np.zeros((count, self.n_keys), dtype=bool)
        repeated = np.zeros((count, slots), dtype=bool)
        for slot in range(slots):
            repeated[:, slot] = shown[rows, keys[:, slot]] & ~noisy[:, slot]
            shown[rows, keys[:, slot]] |= ~noisy[:, slot]
        # A uniform choice among the keys shown: the one with the largest random number.
        probe = np.where(shown, rng.random(shown.shape), -1).argmax(1)

        values = value_of[rows[:, None], keys]
        tokens = np.stack([keys, values], axis=-1)
        tokens[noisy] = self.n_keys + self.n_values + noise[noisy]
        scored = np.full_like(tokens, IGNORE)
        if self.multi_query:
            scored[..., 1] = np.where(repeated, values, IGNORE)
        answer = value_of[rows, probe]
        last = np.stack([probe, answer], axis=-1)
        last_scored = np.stack([np.full_like(probe, IGNORE), answer], axis=-1)
        if not self.multi_query:
            last = np.insert(last, 0, self.vocab_size - 1, axis=1)
            last_scored = np.insert(last_scored, 0, IGNORE, axis=1)
        return shifted(
            np.concatenate([tokens.reshape(count, -1), last], axis=1),
            np.concatenate([scored.reshape(count, -1), last_scored], axis=1),
            split,
        )


def steps_since_last(tokens: Int64[ndarray, "b t"]) -> Int64[ndarray, "b t"]:
    """At each place, how many steps before it the same token stood last; 0 if it is the first."""
    order = tokens.argsort(axis=1, kind="stable")
    ordered = np.take_along_axis(tokens, order, axis=1)
    steps = np.zeros_like(tokens)
    since = np.where(ordered[:, 1:] == ordered[:, :-1], np.diff(order, axis=1), 0)
    np.put_along_axis(steps, order[:, 1:], since, axis=1)
    return steps
