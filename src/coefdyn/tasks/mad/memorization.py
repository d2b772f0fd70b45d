"""Learn a fixed map from keys to values: nothing in the sequence helps."""

import numpy as np

from coefdyn.tasks.task import IGNORE, Examples, Split, Task, check_noise, halves


class Memorization(Task):
    """key, insert, key, insert, ...: at each insert token V-1 the target is the key's value.

    The map is fixed by `map_seed` and the same in all splits. The value of a test key that never
    occurs in training cannot be known, which bounds the accuracy.
    """

    original = "generate_memorization_instance"

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        num_train: int,
        num_test: int,
        frac_noise: float = 0.0,
        noise_vocab_size: int = 0,
        map_seed: int = 12345,
    ) -> None:
        super().__init__(vocab_size, seq_len, num_train, num_test)
        check_noise(frac_noise, noise_vocab_size)
        if seq_len % 2:
            raise ValueError(f"task.seq_len={seq_len} must be even: a sequence is made of pairs")
        self.frac_noise, self.noise_vocab_size = frac_noise, noise_vocab_size
        self.n_keys, self.n_values = halves(vocab_size, 1, noise_vocab_size, least=1)
        self.map_seed = self.kv_map_seed = map_seed  # ours, and the original's name
        rng = np.random.default_rng(map_seed)
        self.value_of = self.n_keys + rng.permutation(self.n_values)[: self.n_keys]

    @property
    def chance(self) -> float:
        return 1 / self.n_values

    def ceiling(self, train: Examples, test: Examples) -> float:
        """The share of answers whose key occurs in training; others can only be guessed."""
        train_keys = train.inputs[train.inputs < self.n_keys]
        test_keys = test.inputs[:, ::2][test.targets[:, 1::2] != IGNORE]
        return float(np.isin(test_keys, train_keys).mean())

    def draw(self, count: int, split: Split, rng: np.random.Generator) -> Examples:
        pairs = self.seq_len // 2
        keys = rng.integers(self.n_keys, size=(count, pairs))
        noisy = rng.random((count, pairs)) < self.frac_noise
        noisy[np.arange(count), rng.integers(pairs, size=count)] = False
        noise = rng.integers(max(self.noise_vocab_size, 1), size=(count, pairs, 2))
        inputs = np.stack([keys, np.full_like(keys, self.vocab_size - 1)], axis=-1)
        targets = np.stack([np.full_like(keys, IGNORE), self.value_of[keys]], axis=-1)
        inputs[noisy] = self.n_keys + self.n_values + noise[noisy]
        targets[noisy] = IGNORE
        return Examples(inputs.reshape(count, -1), targets.reshape(count, -1))
