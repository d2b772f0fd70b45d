"""Copy tokens that stand between blanks."""

import numpy as np

from coefdyn.tasks.task import IGNORE, Examples, Split, Task


class SelectiveCopying(Task):
    """Content tokens among blanks, a copy token, then one blank per content token.

    The targets of these last blanks are the content tokens in order. Ids: content 0..V-3, blank
    V-2, copy V-1. Each blank among the content stands before a random content token.
    """

    original = "generate_selective_copying_instance"

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        num_tokens_to_copy: int,
        num_train: int,
        num_test: int,
    ) -> None:
        super().__init__(vocab_size, seq_len, num_train, num_test)
        if vocab_size < 3:
            raise ValueError(f"task.vocab_size={vocab_size} is too small; it must be at least 3")
        if num_tokens_to_copy < 1 or seq_len < 2 * num_tokens_to_copy + 1:
            raise ValueError(
                f"task.seq_len={seq_len} is too short to copy "
                f"task.num_tokens_to_copy={num_tokens_to_copy} tokens (at least 1); "
                f"it must be at least {2 * max(num_tokens_to_copy, 1) + 1}"
            )
        self.num_tokens_to_copy = num_tokens_to_copy

    @property
    def chance(self) -> float:
        return 1 / (self.vocab_size - 2)

    def draw(self, count: int, split: Split, rng: np.random.Generator) -> Examples:
        copies = self.num_tokens_to_copy
        blanks = self.seq_len - 2 * copies - 1
        content = rng.integers(self.vocab_size - 2, size=(count, copies))
        before = rng.integers(copies, size=(count, blanks))  # the token each blank stands before
        row = np.arange(count)[:, None]
        gaps = np.bincount((before + row * copies).ravel(), minlength=count * copies)
        place = np.arange(copies) + gaps.reshape(count, copies).cumsum(1)

        inputs = np.full((count, self.seq_len), self.vocab_size - 2)
        inputs[row, place] = content
        inputs[:, copies + blanks] = self.vocab_size - 1
        targets = np.full((count, self.seq_len), IGNORE)
        targets[:, -copies:] = content
        return Examples(inputs, targets)
