"""The quadratic form for readouts of the vectors q and h_ij rather than of their product."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from coefdyn.mixer.readout import Readout
from coefdyn.mixer.transition import Transition

GROUP_ELEMENTS = 2**24  # transformed keys held at once


def measured_form(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"],
    transition: Transition,
    readout: Readout,
) -> Float[Tensor, "b h t p"]:
    """sum_{j <= i} alpha(q_i, h_ij) v_j for kernels whose feature map does not commute with A_t.

    Every h_ij is needed as a vector, t^2 n numbers per head: batches are taken in groups and
    recomputed in the backward pass.
    """
    b, h, t, n = q.shape
    group = max(1, GROUP_ELEMENTS // (h * t * t * n))
    outputs = []
    for start in range(0, b, group):
        here = slice(start, start + group)
        part = transition.map(lambda x, here=here: x.expand(b, *x.shape[1:])[here])  # type: ignore[misc]
        outputs.append(
            checkpoint(_group, q[here], k[here], v[here], part, readout, use_reentrant=False)
        )
    return torch.cat(outputs)


def _group(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"],
    transition: Transition,
    readout: Readout,
) -> Float[Tensor, "b h t p"]:
    rows = []
    keys = k[:, :, :0]
    decay, w, beta = transition.log_decay, transition.direction, transition.strength
    for i in range(q.shape[2]):
        if decay is not None:
            keys = keys * decay[:, :, i : i + 1].exp()
        if w is not None and beta is not None:
            w_i = w[:, :, i : i + 1]
            keys = keys - beta[:, :, i, None, None] * (keys @ w_i.mT) * w_i
        keys = torch.cat([keys, k[:, :, i : i + 1]], dim=2)
        alpha = readout.measure(q[:, :, i : i + 1].expand_as(keys), keys)
        rows.append(alpha.unsqueeze(2) @ v[:, :, : i + 1])
    return torch.cat(rows, dim=2)
