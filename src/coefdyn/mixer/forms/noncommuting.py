"""Kernels psi(q) . psi(h) whose feature map does not commute with A_t, without compiled loops."""

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.transition import Transition, rotated


def noncommuting_coefficients(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    transition: Transition,
    feature_map: Readout,
) -> Float[Tensor, "b h t t"]:
    """alpha_ij = psi(q_i) . psi(h_ij); k are scaled keys.

    Every h_ij is needed as a vector, so the keys are transformed step by step, as definition.py
    does: t steps, and t^2 n / 2 numbers per head for the backward pass.
    """
    features, length = feature_map(q), q.shape[2]
    keys, rows = k[:, :, :0], []
    for i in range(length):
        here = transition.map(partial(torch.narrow, dim=2, start=i, length=1))
        keys = torch.cat([_transformed(keys, here), k[:, :, i : i + 1]], dim=2)
        alpha = (feature_map(keys) * features[:, :, i : i + 1]).sum(-1)
        rows.append(F.pad(alpha, (0, length - 1 - i)))
    return torch.stack(rows, dim=2)


def _transformed(keys: Float[Tensor, "b h j n"], here: Transition) -> Float[Tensor, "b h j n"]:
    """A_t h for the A_t of one step."""
    before, w, u = keys, here.direction, here.erased
    if here.angle is not None:
        keys = rotated(keys, here.angle)
    if here.decay is not None:
        keys = keys * here.decay
    if w is None or u is None:
        return keys
    return keys - ((before if here.early else keys) * w).sum(-1, keepdim=True) * u
