"""The quadratic form of kernels psi(q) . psi(h) whose feature map does not commute with A_t."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.forms.chunks import cut
from coefdyn.mixer.forms.folding import over_members
from coefdyn.mixer.numerics import exp, narrow_product
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.transition import Transition

ROWS = 8  # steps per chunk
TILE_ELEMENTS = 2**20  # transformed keys of a tile


def noncommuting_form(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"] | None,
    transition: Transition,
    feature_map: Readout,
) -> Float[Tensor, "b h t p"]:
    """sum_{j <= i} psi(q_i) . psi(h_ij) v_j, or without v the coefficients; k are scaled keys.

    Every h_ij is needed as a vector: t^2 n / 2 numbers per head, in tiles that are recomputed in
    the backward pass. The keys at the start of each chunk are kept.
    """
    shape, length, n = q.shape[:2], q.shape[2], q.shape[3]
    q, k = q.flatten(0, 1), k.flatten(0, 1)
    step = max(1, TILE_ELEMENTS // (ROWS * length * n))
    # split and unbind, here and below: slices would each get a gradient of the whole's size.
    count = -(-q.shape[0] // step)
    parts = [
        [None] * count if x is None else x.flatten(0, 1).split(step)
        for x in (v, transition.log_decay, transition.direction, transition.strength)
    ]
    groups = zip(q.split(step), k.split(step), *parts, strict=True)
    outputs = [_group(q, k, v, Transition(*rest), feature_map) for q, k, v, *rest in groups]
    return torch.cat(outputs).unflatten(0, shape)


def _group(
    q: Float[Tensor, "g t n"],
    k: Float[Tensor, "g t n"],
    v: Float[Tensor, "g t p"] | None,
    transition: Transition,
    feature_map: Readout,
) -> Float[Tensor, "g t p"]:
    length, size = q.shape[1], min(ROWS, q.shape[1])
    features, keys = cut(feature_map(q), size), cut(k, size)
    values = None if v is None else cut(v, size).flatten(1, 2)
    through, own = _inside(keys, transition)
    inside = (features.unsqueeze(-1) * feature_map(own)).sum(-2).tril()
    ends = (through[:, :, -1].unbind(1), own[:, :, -1].unbind(1))
    past = keys[:, 0, :0].mT
    outputs = []
    for turn, query, within, turn_end, own_end in zip(
        through.unbind(1), features.unbind(1), inside.unbind(1), *ends, strict=True
    ):
        earlier = KernelScores.apply(turn, past, query, feature_map)  # type: ignore[no-untyped-call]
        alpha = torch.cat([earlier, within], dim=-1)
        reach = alpha.shape[-1]
        if values is None:
            outputs.append(F.pad(alpha[..., :length], (0, max(0, length - reach))))
        else:
            outputs.append(narrow_product(alpha, values[:, :reach]))
        past = torch.cat([turn_end @ past, own_end], dim=-1)
    return torch.cat(outputs, dim=1)[:, :length]


def _inside(
    keys: Float[Tensor, "g c s n"], transition: Transition
) -> tuple[Float[Tensor, "g c s n n"], Float[Tensor, "g c s n s"]]:
    """For every step of every chunk: what turns keys at the chunk's start into keys there, and
    the chunk's own keys as they stand there (later ones are zero)."""
    size, n = keys.shape[2:]
    decay, w, beta = (
        None if x is None else cut(x, size)
        for x in (transition.log_decay, transition.direction, transition.strength)
    )
    start = torch.eye(n, n + size, dtype=keys.dtype, device=keys.device)
    state = start.expand(*keys.shape[:2], n, n + size)  # the matrix, and the keys beside it
    states = []
    for s, key in enumerate(keys.unsqueeze(-1).unbind(2)):
        if decay is not None:
            state = state * exp(decay[:, :, s]).unsqueeze(-1)
        if w is not None and beta is not None:
            along = w[:, :, s].unsqueeze(-1)
            taken = beta[:, :, s, None, None] * (along * state).sum(-2, keepdim=True)
            state = state - along * taken
        state = torch.cat([state[..., : n + s], key, state[..., n + s + 1 :]], dim=-1)
        states.append(state)
    through, own = torch.stack(states, dim=2).split([n, size], dim=-1)
    return through, own


@over_members
class KernelScores(torch.autograd.Function):
    """alpha_sj = psi(q_s) . psi(P_s k_j); the vectors P_s k_j are recomputed, never stored."""

    @staticmethod
    def forward(
        through: Float[Tensor, "g s n n"],
        past: Float[Tensor, "g n r"],
        features: Float[Tensor, "g s n"],
        feature_map: Readout,
    ) -> Float[Tensor, "g s r"]:
        h = _turned(through, past)
        return (feature_map(h) * features.unsqueeze(-1)).sum(2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.feature_map = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        through, past, features = ctx.saved_tensors
        h = _turned(through, past)
        psi = ctx.feature_map(h)
        weight = grad.unsqueeze(2)
        d_h = ctx.feature_map.backward(weight * features.unsqueeze(-1), h, psi).flatten(1, 2)
        d_through = torch.bmm(past, d_h.mT).mT.unflatten(1, through.shape[1:3])
        d_past = torch.bmm(through.flatten(1, 2).mT, d_h)
        return d_through, d_past, (psi * weight).sum(-1), None


def _turned(
    through: Float[Tensor, "g s n n"], past: Float[Tensor, "g n r"]
) -> Float[Tensor, "g s n r"]:
    return torch.bmm(through.flatten(1, 2), past).unflatten(1, through.shape[1:3])
