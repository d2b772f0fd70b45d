"""The quadratic form of kernels psi(q) . psi(h) whose feature map does not commute with A_t."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from coefdyn.mixer.chunks import cut
from coefdyn.mixer.readout import Readout
from coefdyn.mixer.transition import Transition

ROWS = 8  # steps per chunk
GROUP_ELEMENTS = 2**22  # transformed keys of a group of heads, over all pairs of steps


def noncommuting_form(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"],
    transition: Transition,
    feature_map: Readout,
) -> Float[Tensor, "b h t p"]:
    """sum_{j <= i} psi(q_i) . psi(h_ij) v_j; k are scaled keys.

    Every h_ij is needed as a vector, t^2 n / 2 numbers per head: heads are taken in groups and
    recomputed in the backward pass.
    """
    shape, (_, _, t, n) = q.shape[:2], q.shape
    A = transition.matrices(like=k).flatten(0, 1)
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    group = max(1, GROUP_ELEMENTS // (t * t * n))
    outputs = [
        checkpoint(_group, q[g], k[g], v[g], A[g], feature_map, use_reentrant=False)
        for g in (slice(i, i + group) for i in range(0, q.shape[0], group))
    ]
    return torch.cat(outputs).unflatten(0, shape)


def _group(
    q: Float[Tensor, "g t n"],
    k: Float[Tensor, "g t n"],
    v: Float[Tensor, "g t p"],
    A: Float[Tensor, "g t n n"],
    feature_map: Readout,
) -> Float[Tensor, "g t p"]:
    size = min(ROWS, q.shape[1])
    features, keys, values, A = (cut(x, size) for x in (feature_map(q), k, v, A))
    # For every step of every chunk: what turns the state at the chunk's start into the state
    # there, and the chunk's own keys so far.
    through: list[Tensor] = []
    own: list[Tensor] = []
    for s in range(size):
        through.append(A[:, :, s] @ through[-1] if through else A[:, :, s])
        new = keys[:, :, s, :, None]
        own.append(torch.cat([A[:, :, s] @ own[-1], new], dim=-1) if own else new)

    past = keys[:, 0, :0].mT
    outputs = []
    for c in range(keys.shape[1]):
        turned = torch.cat([step[:, c] for step in through], dim=1) @ past
        turned = turned.unflatten(1, (size, -1))
        rows = []
        for s in range(size):
            h = torch.cat([turned[:, s], own[s][:, c]], dim=-1)
            alpha = features[:, c, s, None] @ feature_map(h)
            rows.append(alpha @ values.flatten(1, 2)[:, : h.shape[-1]])
        outputs += rows
        past = torch.cat([turned[:, -1], own[-1][:, c]], dim=-1)
    return torch.cat(outputs, dim=1)[:, : q.shape[1]]
