"""Cross-entropy that never holds all logits."""

from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from coefdyn.tasks.task import IGNORE

MANY = 2**20  # up to so many logits, those of unscored targets are computed too
LARGEST = 2**25  # up to so many logits, all are computed at once, as in the MAD tasks
CHUNK_LOGITS = 2**23  # logits of a chunk


class _Chunked(torch.autograd.Function):
    """Sum of -log softmax(x W^T)[target] over the scored targets.

    Gradients are computed together with the loss, chunk by chunk, and scaled in the backward pass.
    So only the logits of one chunk are ever in memory.
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
        with_grad = any(ctx.needs_input_grad[:2])
        grad_x = torch.empty_like(x) if with_grad else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if with_grad else None
        for start in range(0, len(x), size):
            part, target = x[start : start + size], targets[start : start + size]
            log_p = (part @ weight.mT).float().log_softmax(-1)
            counts, place = target != IGNORE, target.clamp(min=0).unsqueeze(-1)
            total -= (log_p.gather(-1, place).squeeze(-1) * counts).sum()
            if grad_x is None or grad_weight is None:
                continue
            grad = log_p.exp_()  # softmax - one-hot, in place
            grad.scatter_add_(-1, place, grad.new_full(place.shape, -1.0))
            grad = (grad.mul_(counts.unsqueeze(-1))).to(x.dtype)
            grad_x[start : start + size] = grad @ weight
            if part.dtype == grad_weight.dtype:
                grad_weight.addmm_(grad.mT, part)
            else:
                grad_weight += grad.mT @ part
        ctx.gradients = grad_x, grad_weight
        ctx.kind = weight.dtype
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Scale the stored gradients in place, so this can run only once."""
        (grad_x, grad_weight), ctx.gradients = ctx.gradients, (None, None)
        grad_weight = grad_weight.mul_(grad).to(ctx.kind)
        return grad_x.mul_(grad.to(grad_x.dtype)), grad_weight, None, None


def summed_cross_entropy(
    x: Float[Tensor, "b t d"], weight: Float[Tensor, "v d"], targets: Int64[Tensor, "b t"]
) -> Float[Tensor, ""]:
    """Cross-entropy of next-token predictions x W^T, summed over the scored targets."""
    if torch.is_autocast_enabled(x.device.type):
        kind = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(kind), weight.to(kind)
    size = max(1, CHUNK_LOGITS // len(weight))
    with torch.autocast(x.device.type, enabled=False):
        loss: Tensor = _Chunked.apply(x.flatten(0, 1), weight, targets.flatten(), size)  # type: ignore[no-untyped-call]
        return loss
