"""Finite groups by their multiplication tables.

An element is a number; 0 is the identity. Permutations are numbered in lexicographic order of
(p(1), p(2), ...). The product a b of permutations is: first a, then b.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

Permutation = tuple[int, ...]  # p[i] is where i goes, counted from 0


class Group(NamedTuple):
    """`table[a, b]` is the product a b; products of `generators` make every element."""

    table: Int64[ndarray, "g g"]
    generators: tuple[int, ...]

    @property
    def order(self) -> int:
        return len(self.table)


def cyclic(order: int) -> Group:
    """Z_n: addition modulo n. Generators are 0 and 1: with 1 alone all words would be equal."""
    numbers = np.arange(order)
    return Group((numbers[:, None] + numbers) % order, (0, 1))


def permutations(degree: int, generators: Sequence[Permutation], even_only: bool = False) -> Group:
    """S_n, or with `even_only` A_n."""
    elements = [p for p in itertools.permutations(range(degree)) if not even_only or _is_even(p)]
    number = {p: i for i, p in enumerate(elements)}
    table = [[number[tuple(b[i] for i in a)] for b in elements] for a in elements]
    return Group(np.array(table), tuple(number[p] for p in generators))


def _is_even(permutation: Permutation) -> bool:
    pairs = itertools.combinations(permutation, 2)
    return sum(first > second for first, second in pairs) % 2 == 0


GROUPS: dict[str, Callable[[], Group]] = {
    "Z2": partial(cyclic, 2),
    "Z60": partial(cyclic, 60),
    "S3": partial(permutations, 3, [(1, 0, 2), (1, 2, 0)]),  # (12), (123)
    "A4": partial(permutations, 4, [(1, 0, 3, 2), (1, 2, 0, 3)], even_only=True),  # (12)(34), (123)
    "S5": partial(permutations, 5, [(1, 0, 2, 3, 4), (1, 2, 3, 4, 0)]),  # (12), (12345)
}


@cache
def group_named(name: str) -> Group:
    if name not in GROUPS:
        raise ValueError(f"task.group={name} is not known; choose from {', '.join(GROUPS)}")
    return GROUPS[name]()
