"""Multiply the elements of a group: state tracking, as hard as the group is."""

from typing import Literal, get_args

import numpy as np

from coefdyn.tasks.state_tracking.groups import group_named
from coefdyn.tasks.task import Examples, Split, Task, check_vocabulary

Tokens = Literal["generators", "elements"]


class GroupWord(Task):
    """y_t = x_1 x_2 ... x_t, a running product in `group`, scored at every step.

    The next element is multiplied from the right: y_t = y_{t-1} x_t. A product of permutations
    applies its left factor first. `group`: Z2, Z60 (addition), S3, A4, S5 (permutations). An
    element is written as one token, its number. With `tokens`=elements, x_t is any element; with
    generators, one of these: 0, 1 (Z2, Z60); (12), (123) (S3); (12)(34), (123) (A4); (12), (12345)
    (S5). All are equally likely. Targets are elements in both cases.

    Z2 and Z60 are commutative: the order of a word does not matter. S3 and A4 are solvable. S5 is
    not: its word problem is complete for NC^1 (Barrington 1989).
    """

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        num_train: int,
        num_test: int,
        group: str = "S5",
        tokens: Tokens = "elements",
    ) -> None:
        super().__init__(vocab_size, seq_len, num_train, num_test)
        if tokens not in get_args(Tokens):
            raise ValueError(
                f"task.tokens={tokens} is not known; choose from {', '.join(get_args(Tokens))}"
            )
        self.group, self.tokens = group, tokens
        self.table, generators = group_named(group)
        self.order = len(self.table)
        self.letters = np.array(generators) if tokens == "generators" else np.arange(self.order)
        check_vocabulary(vocab_size, self.order, f"the {self.order} elements of task.group={group}")

    @property
    def chance(self) -> float:
        """That of guessing among all elements. Generators cannot make all of them in few steps."""
        return 1 / self.order

    def draw(self, count: int, split: Split, rng: np.random.Generator) -> Examples:
        word = self.letters[rng.integers(len(self.letters), size=(count, self.seq_len))]
        products = word.copy()
        for t in range(1, self.seq_len):
            products[:, t] = self.table[products[:, t - 1], word[:, t]]
        return Examples(word, products)
