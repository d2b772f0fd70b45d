"""Repeat a string: everything must be kept, in its order."""

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from coefdyn.tasks.task import IGNORE, Examples, Split, Task, check_vocabulary


class Copy(Task):
    """s_1 ... s_n, a separator, s_1 ... s_{n-1}. From the separator on, the target is the next s_i.

    The model reads what it should have written, as in Jelassi et al. 2024. Symbols are uniform and
    may repeat. A test string has n = seq_len // 2 symbols. In training n is uniform, from 1 to
    that, so that the distance from a symbol to its copy varies; what is left of the sequence is
    blank. Tokens: symbols 0 to V-3, blank V-2, separator V-1.
    """

    def __init__(self, vocab_size: int, seq_len: int, num_train: int, num_test: int) -> None:
        super().__init__(vocab_size, seq_len, num_train, num_test)
        check_vocabulary(vocab_size, 4, "two symbols, a blank and a separator")
        if seq_len < 2:
            raise ValueError(f"task.seq_len={seq_len} is too short; it must be at least 2")

    @property
    def chance(self) -> float:
        return 1 / (self.vocab_size - 2)

    def gaps(self, examples: Examples) -> Int64[ndarray, "b t"]:
        """A symbol is copied as many steps after it as the string has symbols."""
        separator = examples.inputs == self.vocab_size - 1
        return np.broadcast_to(separator.argmax(1)[:, None], separator.shape)

    def draw(self, count: int, split: Split, rng: np.random.Generator) -> Examples:
        longest = self.seq_len // 2
        symbols = rng.integers(self.vocab_size - 2, size=(count, longest))
        size = np.full((count, 1), longest)
        if split == "train":
            size = rng.integers(1, longest + 1, size=(count, 1))
        place = np.arange(self.seq_len)

        def symbol(number: Int64[ndarray, "b t"]) -> Int64[ndarray, "b t"]:
            return np.take_along_axis(symbols, number.clip(0, longest - 1), axis=1)

        shown, again = symbol(place + 0 * size), symbol(place - size - 1)
        blank, separator = self.vocab_size - 2, self.vocab_size - 1
        parts = [place < size, place == size, place < 2 * size]  # the first that holds counts
        inputs = np.select(parts, [shown, separator, again], blank)
        copying = (size <= place) & (place < 2 * size)
        return Examples(inputs, np.where(copying, symbol(place - size), IGNORE))
