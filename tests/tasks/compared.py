"""Comparing a generator with plain loops: the same distribution, within five standard errors."""

from collections.abc import Callable

import numpy as np

from coefdyn.tasks.task import IGNORE, Examples
from tests.tasks.makers import N

Example = tuple[list[int], list[int]]


def stack(make: Callable[[np.random.Generator], Example]) -> Examples:
    rng = np.random.default_rng(99)
    inputs, targets = zip(*(make(rng) for _ in range(N)), strict=True)
    return Examples(np.array(inputs), np.array(targets))


def assert_same_distribution(fast: Examples, slow: Examples, vocab: int) -> None:
    """Token marginals, how much is scored, both per position: within 5 standard errors."""
    for quick, plain in zip(fast, slow, strict=True):
        assert quick.shape == plain.shape
        for token in (*range(vocab), IGNORE):
            for axis in (0, None):
                a, b = (quick == token).mean(axis), (plain == token).mean(axis)
                count = N if axis == 0 else N * quick.shape[1] / 20  # tokens of a row are related
                error = np.sqrt((a + b + 2 / count) / count)
                assert (np.abs(a - b) <= 5 * error).all(), f"token {token}, axis {axis}"
    scored = [(examples.targets != IGNORE).sum(1) for examples in (fast, slow)]
    spread = np.sqrt((scored[0].var() + scored[1].var()) / N) + 1e-12
    assert abs(scored[0].mean() - scored[1].mean()) <= 5 * spread
