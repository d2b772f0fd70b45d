"""A task: say which of two tokens came first."""

import numpy as np

from coefdyn.tasks.task import IGNORE, Examples, Split, Task


class WhichFirst(Task):
    """Random tokens; at the last step the first token of the sequence is wanted."""

    @property
    def chance(self) -> float:
        return 1 / self.vocab_size

    def draw(self, count: int, split: Split, rng: np.random.Generator) -> Examples:
        inputs = rng.integers(self.vocab_size, size=(count, self.seq_len))
        targets = np.full_like(inputs, IGNORE)
        targets[:, -1] = inputs[:, 0]
        return Examples(inputs, targets)
