"""Squeeze a sequence into its last step, from which an auto-encoder must restore it."""

import numpy as np

from coefdyn.tasks.task import Examples, Split, Task


class Compression(Task):
    """seq_len - 1 random tokens and the aggregation token V-1; the targets are the inputs."""

    auto_encoder = True
    original = "generate_compression_instance"

    def __init__(self, vocab_size: int, seq_len: int, num_train: int, num_test: int) -> None:
        super().__init__(vocab_size, seq_len, num_train, num_test)
        if vocab_size < 2:
            raise ValueError(f"task.vocab_size={vocab_size} is too small; it must be at least 2")
        if seq_len < 2:
            raise ValueError(f"task.seq_len={seq_len} is too short; it must be at least 2")

    @property
    def chance(self) -> float:
        """The aggregation token is always the last one, so a guesser has it right."""
        return (1 + (self.seq_len - 1) / (self.vocab_size - 1)) / self.seq_len

    def draw(self, count: int, split: Split, rng: np.random.Generator) -> Examples:
        tokens = rng.integers(self.vocab_size - 1, size=(count, self.seq_len))
        tokens[:, -1] = self.vocab_size - 1
        return Examples(tokens, tokens.copy())
