"""Whether two designs are the same function: the same weights and input give the same output."""

from collections.abc import Sequence
from functools import cache

import torch

from coefdyn.training.build import build
from coefdyn.training.config import compose

SAME = 1e-6  # largest relative difference of outputs of one function, in float64


def same_function(one: Sequence[str], other: Sequence[str]) -> tuple[bool, str]:
    """Also in words, with the number."""
    difference = largest_difference(tuple(one), tuple(other))
    return difference <= SAME, f"outputs of the two differ by {difference:.1e} of their size"


@cache
@torch.no_grad()
def largest_difference(one: tuple[str, ...], other: tuple[str, ...]) -> float:
    """Relative to the largest output, of whole models at scale=smoke with the same seed."""
    outputs = []
    for overrides in (one, other):
        model = build(compose(["scale=smoke", *overrides])).double().eval()
        tokens = torch.arange(2 * 12).reshape(2, 12) % 7
        outputs.append(model(tokens))
    return float((outputs[0] - outputs[1]).abs().max() / outputs[0].abs().max())
