"""Cross-entropy that never holds all logits."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from coefdyn.tasks.task import IGNORE

LARGEST = 2**25  # logits up to which they are computed at once, as in the MAD tasks
CHUNK_LOGITS = 2**24  # of a chunk


class _Chunked(torch.autograd.Function):
    """Sum of -log softmax(x W^T)[target] over the targets that count.

    Gradients are computed along with the loss, chunk by chunk, and scaled when they are asked for:
    the logits of one chunk are all that is ever held.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "t d"],
        weight: Float[Tensor, "v d"],
        targets: Int64[Tensor, " t"],
        size: int,
    ) -> Float[Tensor, ""]:
        total = x.new_zeros((), dtype=torch.float32)
        wanted = any(ctx.needs_input_grad[:2])
        grad_x = torch.empty_like(x) if wanted else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if wanted else None
        for start in range(0, len(x), size):
            part, target = x[start : start + size], targets[start : start + size]
            logits = (part @ weight.mT).float()
            total += F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="sum")
            if grad_x is None or grad_weight is None:
                continue
            counts = target != IGNORE
            grad = logits.softmax(-1)
            grad[torch.arange(len(target), device=x.device), target.clamp(min=0)] -= 1
            grad *= counts.unsqueeze(-1)
            grad = grad.to(x.dtype)
            grad_x[start : start + size] = grad @ weight
            grad_weight += (grad.mT @ part).float()
        if grad_x is not None and grad_weight is not None:
            ctx.save_for_backward(grad_x, grad_weight.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_x, grad_weight = ctx.saved_tensors
        return grad_x * grad.to(grad_x.dtype), grad_weight * grad.to(grad_weight.dtype), None, None


def summed_cross_entropy(
    x: Float[Tensor, "b t d"], weight: Float[Tensor, "v d"], targets: Int64[Tensor, "b t"]
) -> Float[Tensor, ""]:
    """Of next-token predictions x W^T, over all targets that count."""
    if torch.is_autocast_enabled(x.device.type):
        kind = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(kind), weight.to(kind)
    size = max(1, CHUNK_LOGITS // len(weight))
    with torch.autocast(x.device.type, enabled=False):
        loss: Tensor = _Chunked.apply(x.flatten(0, 1), weight, targets.flatten(), size)  # type: ignore[no-untyped-call]
        return loss
