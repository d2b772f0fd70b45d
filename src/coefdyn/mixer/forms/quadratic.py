"""The quadratic form: any A_t with any phi, in tiles that stay in cache and are never stored."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from coefdyn.mixer.forms.chunks import Chunks, carry_and_add, carry_gradients, cut, of_chunk
from coefdyn.mixer.forms.folding import over_members
from coefdyn.mixer.forms.tiles import (
    Inputs,
    alpha_tiles,
    causal,
    groups,
    inputs_of,
    keys_seen,
    own_blocks,
    scores,
    take_added,
    tile_chunks,
    tiles_of,
)
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.transition import Transition

KEPT_TILES = 16  # whose keys the backward pass may hold at once, whatever the length


def quadratic_form(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"],
    transition: Transition,
    readout: Readout,
    shift: bool,
    added: Float64[Tensor, "b h t"] | None = None,
) -> tuple[Float[Tensor, "b h t p"], Float[Tensor, "b h t"] | None]:
    """sum_{j <= i} phi(q_i . h_ij + added_i - added_j) v_j; k are scaled keys.

    With `shift`, each row's largest score is subtracted before phi, and returned. For exponential
    readouts it is the logarithm of the row's unit.
    """
    inputs = inputs_of(q, k, transition)
    sums = None if added is None else added.flatten(0, 1)
    total, unit = ReadoutSum.apply(  # type: ignore[no-untyped-call]
        v.flatten(0, 1), sums, *inputs, readout, shift
    )
    return total.unflatten(0, q.shape[:2]), unit.unflatten(0, q.shape[:2]) if shift else None


@over_members
class ReadoutSum(torch.autograd.Function):
    """sum_j phi(score_ij) v_j, one group of heads at a time.

    Only inputs, outputs and one group's tiles are in memory: the backward pass recomputes the rest.
    """

    @staticmethod
    def forward(
        v: Float[Tensor, "g t p"],
        added: Float64[Tensor, "g t"] | None,
        *arguments: Any,
    ) -> tuple[Float[Tensor, "g t p"], Float[Tensor, "g s"]]:
        """`arguments` are those of `Inputs`, and the readout and `shift`."""
        *parts, readout, shift = arguments
        inputs, length = Inputs(*parts), v.shape[1]
        total = torch.empty_like(v)
        unit = v.new_empty(v.shape[0], length if shift else 0)
        for heads in groups(inputs.q):
            group_total, group_unit = _sum_group(
                tile_chunks(inputs.take(heads)), v[heads], readout, shift, take_added(added, heads)
            )
            total[heads] = group_total[:, :length]
            unit[heads] = group_unit[:, :length]
        return total, unit

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.early, ctx.readout, ctx.shift = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        v, added, *tensors, unit = ctx.saved_tensors
        inputs = Inputs._make([*tensors, ctx.early])
        d_inputs = {name: torch.empty_like(x) for name, x in inputs.tensors.items()}
        d_v = torch.empty_like(v)
        d_added = None if added is None else torch.empty_like(added)
        for heads in groups(inputs.q):
            chunks, pull_back = _differentiable_chunks(inputs.take(heads))
            d_chunks, group_d_v, group_d_added = _pull_back_group(
                chunks, v[heads], grad[heads], unit[heads], ctx.readout, ctx.shift,
                take_added(added, heads),
            )  # fmt: skip
            d_v[heads] = group_d_v[:, : v.shape[1]]
            if d_added is not None and group_d_added is not None:
                d_added[heads] = group_d_added[:, : v.shape[1]]
            found = pull_back(d_chunks)
            for name, target in d_inputs.items():
                target[heads] = getattr(found, name)
        parts = (d_inputs.get(name) for name in Inputs._fields)
        return d_v, d_added, *parts, None, None


def _differentiable_chunks(
    inputs: Inputs,
) -> tuple[Chunks, Callable[[Chunks], Inputs]]:
    """The chunks of `inputs`, and the map from their gradients to those of `inputs`."""
    if inputs.transition.is_identity:  # chunks are views
        length = inputs.q.shape[1]
        return tile_chunks(inputs), lambda d_chunks: inputs._replace(
            q=d_chunks.query.flatten(1, 2)[:, :length], k=d_chunks.key.flatten(1, 2)[:, :length]
        )

    # vjp takes and returns tensors only, so absent parts are left out on both sides.
    input_names = list(inputs.tensors)
    chunk_names: list[str] = []

    def present(*tensors: Tensor) -> tuple[Tensor, ...]:
        given: dict[str, Any] = dict(zip(input_names, tensors, strict=True))
        chunks = tile_chunks(inputs._replace(**given))
        chunk_names[:] = [name for name, x in chunks._asdict().items() if x is not None]
        return tuple(getattr(chunks, name) for name in chunk_names)

    outputs, vjp = torch.func.vjp(present, *(getattr(inputs, name) for name in input_names))[:2]
    absent = dict.fromkeys(Chunks._fields)
    chunks = Chunks(**{**absent, **dict(zip(chunk_names, outputs, strict=True))})

    def pull_back(d_chunks: Chunks) -> Inputs:
        grads = vjp(tuple(getattr(d_chunks, name) for name in chunk_names))
        found: dict[str, Any] = dict(zip(input_names, grads, strict=True))
        return inputs._replace(**found)

    return chunks, pull_back


def _sum_group(
    chunks: Chunks,
    v: Float[Tensor, "g t p"],
    readout: Readout,
    shift: bool,
    added: Float64[Tensor, "g t"] | None,
) -> tuple[Float[Tensor, "g s p"], Float[Tensor, "g r"]]:
    values = cut(v, chunks.query.shape[2]).flatten(1, 2)
    totals, units = [], []
    for alpha, unit in alpha_tiles(chunks, readout, shift, added):
        totals.append(torch.bmm(alpha, values[:, : alpha.shape[-1]]))
        units += [] if unit is None else [unit]
    return torch.cat(totals, dim=1), torch.cat(units, dim=1) if shift else v[:, :0, 0]


def _pull_back_group(
    chunks: Chunks,
    v: Float[Tensor, "g t p"],
    grad: Float[Tensor, "g t p"],
    unit: Float[Tensor, "g r"],
    readout: Readout,
    shift: bool,
    added: Float64[Tensor, "g t"] | None,
) -> tuple[Chunks, Float[Tensor, "g s p"], Float64[Tensor, "g s"] | None]:
    """Gradients of a group's chunks, values and what is added to scores (padded)."""
    size = chunks.query.shape[2]
    values, d_totals = cut(v, size).flatten(1, 2), cut(grad, size)
    units = cut(unit, size) if shift else unit
    d_chunks = chunks._replace(
        **{n: torch.empty_like(x) for n, x in chunks._asdict().items() if x is not None}
    )
    d_values = torch.zeros_like(values)
    d_keys = values.new_zeros(values.shape[0], chunks.query.shape[-1], values.shape[1])
    d_added = None if added is None else added.new_zeros(values.shape[:2])
    for tile, keys in _keys_seen_backwards(chunks):
        score = scores(chunks, keys, tile, shift, added)
        if shift:
            score.sub_(units[:, tile].flatten(1, 2).unsqueeze(-1))
        alpha, d_total = causal(readout(score)), d_totals[:, tile].flatten(1, 2)
        rows, reach = alpha.shape[-2:]
        d_values[:, :reach] += torch.bmm(alpha.mT, d_total)
        d_alpha = torch.bmm(d_total, values[:, :reach].mT)
        d_score = causal(readout.backward(d_alpha, score, alpha))
        if d_added is not None:
            d_added[:, reach - rows : reach] += d_score.sum(-1)
            d_added[:, :reach] -= d_score.sum(-2)
        _pull_back_scores(chunks, d_chunks, keys, d_keys, tile, d_score)
    if chunks.inside is None:
        d_chunks.key.copy_(d_keys.mT.unflatten(1, d_chunks.key.shape[1:3]))
    return d_chunks, d_values, d_added


def _keys_seen_backwards(chunks: Chunks) -> Iterator[tuple[slice, Float[Tensor, "g c n r"]]]:
    """`keys_seen` from the last tile to the first.

    Keys change from chunk to chunk. They are stored for some tiles and recomputed for those in
    between: storing all would take more memory than an L x L matrix.
    """
    if chunks.inside is None:
        yield from reversed(list(keys_seen(chunks)))
        return
    count, size = len(tiles_of(chunks)), chunks.query.shape[2]
    stride = max(KEPT_TILES, math.isqrt(count))
    stored = [(0, chunks.key.new_empty(chunks.key.shape[0], chunks.key.shape[-1], 0))]
    if count > stride:
        stored = [
            (i, seen[:, 0, :, : tile.start * size].clone())
            for i, (tile, seen) in enumerate(keys_seen(chunks))
            if i % stride == 0
        ]
    for first, past in reversed(stored):
        yield from reversed(list(keys_seen(chunks, first, first + stride, past)))


def _pull_back_scores(
    chunks: Chunks,
    d_chunks: Chunks,
    keys: Float[Tensor, "g c n r"],
    d_keys: Float[Tensor, "g n t"],
    tile: slice,
    d_score: Float[Tensor, "g s j"],
) -> None:
    """Write one tile's gradients of query, key, inside and the carry into `d_chunks`.

    On entry `d_keys` is the gradient of the keys as the next tile sees them; on return, as this
    tile sees them.
    """
    past, size = keys.shape[-1], chunks.query.shape[2]
    d_score = d_score.unflatten(1, (-1, size))
    d_past = d_score[..., :past]
    d_chunks.query[:, tile] = d_past @ keys.mT
    d_seen = chunks.query[:, tile].mT @ d_past
    if d_chunks.inside is None:
        d_keys[..., :past] += d_seen.squeeze(1)
        return
    d_chunks.inside[:, tile] = own_blocks(d_score)
    backwards = chunks.decay, None if chunks.matrix is None else chunks.matrix.mT
    d_ends = torch.zeros_like(d_seen)  # of the keys at the end of each chunk
    for c in reversed(range(tile.start, tile.stop)):
        d_end, i = d_keys[..., : c * size], c - tile.start
        d_ends[:, i, :, : c * size] = d_end
        d_end.copy_(carry_and_add(d_end, d_seen[:, i, :, : c * size], *of_chunk(c, *backwards)))
    d_own = d_keys[..., tile.start * size : tile.stop * size]
    d_chunks.key[:, tile] = d_own.mT.unflatten(1, (-1, size))
    targets, gradients = (
        d_chunks.carrier(tile),
        carry_gradients(keys, d_ends, *chunks.carrier(tile)),
    )
    for target, gradient in zip(targets, gradients, strict=True):
        if target is not None and gradient is not None:
            target.copy_(gradient)
