"""Whether two designs are the same function: the same weights and input give the same output.

The eps of the norms is removed for this. With it, a norm undoes a factor only if its input is large
against eps, which is a matter of precision and not of the design.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import nn

from coefdyn.config.build import build_model
from coefdyn.config.compose import compose

SAME = 1e-6  # largest relative difference of outputs of one function, in float64


def same_function(one: Sequence[str], other: Sequence[str]) -> tuple[bool, str]:
    """Whether two lists of overrides give the same function, and a sentence with the number."""
    difference = largest_difference(tuple(one), tuple(other))
    return difference <= SAME, f"outputs of the two differ by {difference:.1e} of their size"


@cache
@torch.no_grad()
def largest_difference(one: tuple[str, ...], other: tuple[str, ...]) -> float:
    """Difference of the outputs of two whole models at scale=smoke with the same seed, relative to
    the largest output."""
    outputs = []
    for overrides in (one, other):
        model = build_model(compose(["scale=smoke", *overrides])).double().eval()
        for module in model.modules():
            if isinstance(module, nn.RMSNorm):
                module.eps = 1e-60  # as good as 0, but rows of zeros stay finite
        tokens = torch.arange(2 * 12).reshape(2, 12) % 7
        outputs.append(model(tokens))
    return float((outputs[0] - outputs[1]).abs().max() / outputs[0].abs().max())
