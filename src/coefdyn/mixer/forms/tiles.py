"""Coefficients in tiles: some heads, the steps i of some chunks, all j <= i."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

from coefdyn.mixer.forms.chunks import Chunks, carry, chunks_of_time, cut
from coefdyn.mixer.forms.sizes import sizes_on
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.transition import Transition


class Inputs(NamedTuple):
    """What the scores of a group of heads depend on."""

    q: Float[Tensor, "g t n"]
    k: Float[Tensor, "g t n"]
    log_decay: Float[Tensor, "g t m"] | None
    direction: Float[Tensor, "g t n"] | None
    strength: Float[Tensor, "g t"] | None
    factor: Float[Tensor, "g t m"] | None
    column: Float[Tensor, "g t n"] | None
    early: bool

    @property
    def tensors(self) -> dict[str, Any]:
        """Those that are present, by name."""
        return {name: x for name, x in self._asdict().items() if isinstance(x, Tensor)}

    @property
    def transition(self) -> Transition:
        parts = self._asdict()
        return Transition(**{name: x for name, x in parts.items() if name not in ("q", "k")})

    def take(self, heads: slice) -> "Inputs":
        return self._replace(**{name: x[heads] for name, x in self.tensors.items()})


def inputs_of(
    q: Float[Tensor, "b h t n"], k: Float[Tensor, "b h t n"], transition: Transition
) -> Inputs:
    """Batch and head in one axis."""
    flat = transition.map(lambda x: x.flatten(0, 1))
    parts = {name: getattr(flat, name) for name in Inputs._fields if name not in ("q", "k")}
    return Inputs(q.flatten(0, 1), k.flatten(0, 1), **parts)


def tile_chunks(inputs: Inputs) -> Chunks:
    """The chunks that tiles are made of. Where A_t = I they have no scores `inside`: a tile reads
    its own keys as it reads earlier ones, under a causal mask."""
    q, k, transition = inputs.q, inputs.k, inputs.transition
    size = min(sizes_on(q.device).quadratic.of(transition), q.shape[1])
    if transition.is_identity:
        return Chunks(cut(q, size), cut(k, size), None, None, None)
    return chunks_of_time(q, k, transition, size)


def tiles_of(chunks: Chunks) -> list[slice]:
    """The chunks of each tile."""
    count, size = chunks.query.shape[1:3]
    width = max(1, sizes_on(chunks.query.device).rows // size)
    return [slice(c, min(c + width, count)) for c in range(0, count, width)]


def alpha_tiles(
    chunks: Chunks, readout: Readout, shift: bool, added: Float64[Tensor, "g r"] | None
) -> Iterator[tuple[Float[Tensor, "g s j"], Float[Tensor, "g s"] | None]]:
    """Yield the coefficients of each tile's rows. With `shift`, also yield their largest scores,
    which are subtracted before phi."""
    for tile, keys in keys_seen(chunks):
        score = scores(chunks, keys, tile, shift, added)
        unit = None
        if shift:
            unit = score.amax(-1)
            score.sub_(unit.unsqueeze(-1))
        yield causal(readout(score)), unit


def coefficients(
    inputs: Inputs, readout: Readout, shift: bool, added: Float64[Tensor, "g t"] | None
) -> tuple[Float[Tensor, "g t t"], Float[Tensor, "g t"] | None]:
    """All of alpha, zero above the diagonal, and with `shift` the logarithm of each row's unit."""
    heads, length, _ = inputs.q.shape
    alpha = inputs.q.new_zeros(heads, length, length)
    units = inputs.q.new_empty(heads, length)
    for group in groups(inputs.q):
        start = 0
        chunks, within = tile_chunks(inputs.take(group)), take_added(added, group)
        for tile, unit in alpha_tiles(chunks, readout, shift, within):
            rows = slice(start, min(start + tile.shape[-2], length))  # the last chunk is padded
            count = rows.stop - start
            alpha[group, rows, : rows.stop] = tile[:, :count, : rows.stop]
            if unit is not None:
                units[group, rows] = unit[:, :count]
            start = rows.stop
    return alpha, units if shift else None


def keys_seen(
    chunks: Chunks,
    first: int = 0,
    last: int | None = None,
    past: Float[Tensor, "g n r"] | None = None,
) -> Iterator[tuple[slice, Float[Tensor, "g c n r"]]]:
    """Yield the tiles from `first` to `last`, each with the keys as its chunks see them: at the
    chunk's start, channels first, zero where a key comes later. `past` are the keys that the first
    chunk of tile `first` sees.

    Where A_t = I all chunks of a tile see the same keys, and these include their own.
    """
    size, tiles = chunks.query.shape[2], tiles_of(chunks)[first:last]
    keys = chunks.key.flatten(1, 2).mT.contiguous()
    if chunks.inside is None:
        yield from ((tile, keys[..., : tile.stop * size].unsqueeze(1)) for tile in tiles)
        return
    state = keys[..., :0] if past is None else past
    for tile in tiles:
        seen = keys.new_zeros(len(keys), tile.stop - tile.start, keys.shape[1],
                              (tile.stop - 1) * size)  # fmt: skip
        for c in range(tile.start, tile.stop):
            seen[:, c - tile.start, :, : c * size] = state
            own = keys[..., c * size : (c + 1) * size]
            state = torch.cat([carry(state, *chunks.carrier(c)), own], dim=-1)
        yield tile, seen


def scores(
    chunks: Chunks,
    keys: Float[Tensor, "g c n r"],
    tile: slice,
    shift: bool,
    added: Float64[Tensor, "g t"] | None,
) -> Float[Tensor, "g s j"]:
    """What a tile reads of all keys up to its own. added_i - added_j is part of score_ij."""
    score, size = chunks.query[:, tile] @ keys, chunks.query.shape[2]
    if chunks.inside is not None:
        score = F.pad(score, (0, size))
        own_blocks(score).copy_(chunks.inside[:, tile])
    score = score.flatten(1, 2)
    rows = score.shape[-2]
    if added is not None:
        seen = F.pad(added, (0, -added.shape[1] % size))[:, : score.shape[-1]]
        score += (seen[:, -rows:, None] - seen[:, None]).to(score.dtype)
    if shift:
        score[..., -rows:] += score.new_full((rows, rows), -torch.inf).triu(1)
    return score


def own_blocks(score: Float[Tensor, "g c s j"]) -> Float[Tensor, "g c s s"]:
    """The scores of each chunk's own keys, as a view: the last columns are those of the tile."""
    count, size = score.shape[1:3]
    blocks = score[..., -count * size :].unflatten(-1, (count, size))
    return blocks.diagonal(dim1=1, dim2=3).movedim(-1, 1)


def causal(tile: Float[Tensor, "g s j"]) -> Float[Tensor, "g s j"]:
    """Set what lies above the diagonal to zero, in place: each row ends at its own step."""
    tile[..., -tile.shape[-2] :].tril_()
    return tile


def take_added(added: Float64[Tensor, "g t"] | None, heads: slice) -> Tensor | None:
    return None if added is None else added[heads]


def groups(q: Float[Tensor, "g t n"]) -> Iterator[slice]:
    """Slices of heads, each small enough for one tile of scores."""
    heads, length, _ = q.shape
    sizes = sizes_on(q.device)
    rows = max(sizes.rows, sizes.quadratic.plain)  # of the largest tile
    step = max(1, sizes.scores // (rows * length))
    for start in range(0, heads, step):
        yield slice(start, min(start + step, heads))
