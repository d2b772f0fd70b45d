"""Count ones modulo 2: the smallest state that a decay alone cannot keep."""

import numpy as np

from coefdyn.tasks.task import Examples, Split, Task, check_vocabulary


class Parity(Task):
    """y_t = x_1 + ... + x_t mod 2 for random bits x, scored at every step.

    It is the word problem of Z_2. The answer depends on the number of ones, not on their order.
    """

    def __init__(self, vocab_size: int, seq_len: int, num_train: int, num_test: int) -> None:
        super().__init__(vocab_size, seq_len, num_train, num_test)
        check_vocabulary(vocab_size, 2, "the bits 0 and 1")

    @property
    def chance(self) -> float:
        return 1 / 2

    def draw(self, count: int, split: Split, rng: np.random.Generator) -> Examples:
        bits = rng.integers(2, size=(count, self.seq_len))
        return Examples(bits, bits.cumsum(1) % 2)
