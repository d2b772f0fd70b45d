"""The quadratic form: any A_t with any phi, in tiles that stay in cache and are never stored."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.chunks import (
    carry,
    carry_adjoint,
    carry_gradients,
    chunks_of_time,
    cut,
    join,
)
from coefdyn.mixer.readout import Readout
from coefdyn.mixer.transition import Transition

ROWS = 32  # steps per tile
ROWS_HOUSEHOLDER = 16  # as in linear.py: the triangular solve must stay short
TILE_ELEMENTS = {"cpu": 2**19}  # scores per tile: they fit a core's L2 cache
TILE_ELEMENTS_ELSEWHERE = 2**25


def quadratic_form(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"],
    transition: Transition,
    readout: Readout,
    shift: bool,
) -> tuple[Float[Tensor, "b h t p"], Float[Tensor, "b h t"] | None]:
    """sum_{j <= i} phi(q_i . h_ij) v_j; k are scaled keys.

    With `shift`, each row's largest score is taken off before phi, and returned: for exponential
    readouts this is the logarithm of the row's unit.
    """
    size = min(ROWS if transition.direction is None else ROWS_HOUSEHOLDER, q.shape[2])
    if transition.direction is None and transition.log_decay is None:
        parts = Parts(cut(q, size), cut(k, size), None, None, None, None, cut(v, size))
    else:
        chunks = chunks_of_time(q, k, transition, size)
        parts = Parts(
            chunks.query,
            chunks.key,
            chunks.inside,
            chunks.decay,
            chunks.erase,
            chunks.write,
            cut(v, size),
        )
    total, unit = ReadoutSum.apply(*parts, readout, shift)
    return join(total, like=v), join(unit, like=v) if shift else None


class Parts(NamedTuple):
    """The tensors of a tiled sum: those of `Chunks`, and the values. `inside` is absent where
    A_t = I: then a tile's own keys are read as the earlier ones are, under a causal mask."""

    query: Tensor
    key: Tensor
    inside: Tensor | None
    decay: Tensor | None
    erase: Tensor | None
    write: Tensor | None
    value: Tensor

    def take(self, index: Any) -> "Parts":
        return Parts(*(part if part is None else part[index] for part in self))


class ReadoutSum(torch.autograd.Function):
    """sum_j phi(score_ij) v_j over tiles of rows, scores recomputed in the backward pass."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Float[Tensor, "g c s p"], Float[Tensor, "g c s"]]:
        parts, readout, shift = Parts(*inputs[:-2]), inputs[-2], inputs[-1]
        total = torch.empty_like(parts.value)
        unit = parts.value.new_zeros(total.shape[:3] if shift else (0, 0, 0))
        for group in _groups(parts.query):
            heads = parts.take(group)
            values = heads.value.flatten(1, 2)
            for c, keys in _keys_seen(heads):
                score = _scores(heads, keys, c, shift)
                if shift:
                    unit[group, c] = score.amax(-1)
                    score.sub_(unit[group, c].unsqueeze(-1))
                alpha = _causal(readout(score), 0.0)
                total[group, c] = _narrow(alpha, values[:, : alpha.shape[-1]])
        return total, unit

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.readout, ctx.shift = inputs[-2:]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs[:-2], output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        *saved, unit = ctx.saved_tensors
        parts = Parts(*saved)
        grads = Parts(*(part if part is None else torch.zeros_like(part) for part in parts))
        for group in _groups(parts.query):
            heads, d_heads = parts.take(group), grads.take(group)
            values, d_values = heads.value.flatten(1, 2), d_heads.value.flatten(1, 2)
            d_keys = torch.zeros_like(heads.key.flatten(1, 2).mT.contiguous())
            seen = [(c, keys.clone() if parts.inside is not None else keys)
                    for c, keys in _keys_seen(heads)]  # fmt: skip
            for c, keys in reversed(seen):
                score = _scores(heads, keys, c, ctx.shift)
                if ctx.shift:
                    score.sub_(unit[group, c].unsqueeze(-1))
                alpha = _causal(ctx.readout(score), 0.0)
                reach = alpha.shape[-1]
                d_total = grad[group, c]
                d_values[:, :reach] += _narrow(alpha.mT, d_total)
                d_alpha = d_total @ values[:, :reach].mT
                d_score = _causal(ctx.readout.backward(d_alpha, score, alpha), 0.0)
                _pull_back_scores(heads, d_heads, keys, d_keys, c, d_score)
            if parts.inside is None:
                d_heads.key.copy_(d_keys.mT.unflatten(1, d_heads.key.shape[1:3]))
        return *grads, None, None


def _keys_seen(heads: Parts) -> Iterator[tuple[int, Float[Tensor, "g n r"]]]:
    """Each chunk with the keys it reads, channels first and as they stand at its start.

    Where A_t = I they include the chunk's own. One buffer: copy what is to be kept.
    """
    keys = heads.key.flatten(1, 2).mT.contiguous()
    size = heads.query.shape[2]
    for c in range(heads.query.shape[1]):
        start = c * size
        if heads.inside is None:
            yield c, keys[..., : start + size]
            continue
        past = keys[..., :start]
        yield c, past
        step = heads.take((slice(None), c))
        past.copy_(carry(past, step.decay, step.erase, step.write))


def _scores(
    heads: Parts, keys: Float[Tensor, "g n r"], c: int, shift: bool
) -> Float[Tensor, "g s j"]:
    score = heads.query[:, c] @ keys
    if heads.inside is not None:
        score = torch.cat([score, heads.inside[:, c]], dim=-1)
    return _causal(score, -torch.inf) if shift else score


def _pull_back_scores(
    heads: Parts,
    d_heads: Parts,
    keys: Float[Tensor, "g n r"],
    d_keys: Float[Tensor, "g n t"],
    c: int,
    d_score: Float[Tensor, "g s j"],
) -> None:
    """Add one tile's gradients to those of query, key, inside and the carry.

    On entry `d_keys` is the gradient of the keys as the next chunk sees them, on return as this
    one does.
    """
    past = keys.shape[-1]
    d_past = d_score[..., :past]
    d_heads.query[:, c] = _narrow(d_past, keys.mT)
    if heads.inside is not None and d_heads.inside is not None:
        d_heads.inside[:, c] = d_score[..., past:]
        d_heads.key[:, c] = d_keys[..., past : past + d_score.shape[-2]].mT
        d_end = d_keys[..., :past]
        step, d_step = heads.take((slice(None), c)), d_heads.take((slice(None), c))
        found = carry_gradients(keys, d_end, step.decay, step.erase, step.write)
        for target, value in zip((d_step.decay, d_step.erase, d_step.write), found, strict=True):
            if target is not None and value is not None:
                target.copy_(value)
        d_end.copy_(carry_adjoint(d_end, step.decay, step.erase, step.write))
    d_keys[..., :past] += heads.query[:, c].mT @ d_past


def _causal(tile: Float[Tensor, "g s j"], fill: float) -> Float[Tensor, "g s j"]:
    """Fill what lies above the diagonal, in place: row r of a tile ends at its own step."""
    rows, columns = tile.shape[-2:]
    above = torch.ones(rows, rows, dtype=torch.bool, device=tile.device).triu(1)
    tile[..., columns - rows :].masked_fill_(above, fill)
    return tile


def _narrow(a: Float[Tensor, "g i j"], b: Float[Tensor, "g j p"]) -> Float[Tensor, "g i p"]:
    """a @ b as (b^T a^T)^T: for a narrow b, BLAS is up to six times faster with wide outputs."""
    return (b.mT @ a.mT).mT


def _groups(query: Float[Tensor, "g c s n"]) -> Iterator[slice]:
    """Slices of heads whose tiles of scores fit the cache."""
    heads, chunks, size, _ = query.shape
    budget = TILE_ELEMENTS.get(query.device.type, TILE_ELEMENTS_ELSEWHERE)
    step = max(1, budget // (size * size * chunks))
    for start in range(0, heads, step):
        yield slice(start, min(start + step, heads))
