"""Checks of sizes and inputs that all slots share."""

import torch
from torch import Tensor


def head_width(total: int, n_heads: int, name: str = "n_state") -> int:
    """Width of one head. `total` is split evenly; `name` is what messages call it."""
    if total < 1 or n_heads < 1:
        raise ValueError(f"{name}={total} and n_heads={n_heads} must both be at least 1")
    if total % n_heads:
        divisors = [h for h in range(1, total + 1) if total % h == 0]
        raise ValueError(
            f"{name}={total} is not divisible by n_heads={n_heads}; "
            f"choose n_heads from {divisors} or change {name}"
        )
    return total // n_heads


def check_input(x: Tensor, weight: Tensor) -> None:
    """Raise unless x is (batch, time, d_model) of floats in the precision of `weight`.

    Autocast hands over less than float32. That is accepted with float32 weights.
    """
    d_model = weight.shape[-1]
    if x.ndim != 3 or x.shape[-1] != d_model or 0 in x.shape:
        raise ValueError(
            f"input has shape {tuple(x.shape)}; expected (batch, time, {d_model}) "
            "with at least one sequence and one step"
        )
    if not x.is_floating_point():
        raise TypeError(f"input has dtype {x.dtype}; expected a floating-point type")
    expected = torch.promote_types(x.dtype, torch.float32)
    if weight.dtype != expected:
        raise TypeError(
            f"input of dtype {x.dtype} needs weights of {expected}, but they are {weight.dtype}; "
            "convert the input or the model (autocast is the way to bfloat16)"
        )
