"""Coefficients in tiles that fit the cache: some heads, some steps i, all j <= i."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.forms.chunks import Chunks, carry, chunks_of_time, cut
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.transition import Transition

ROWS = 32  # steps per tile
ROWS_HOUSEHOLDER = 8  # a longer triangular solve would cost float32 digits
TILE_ELEMENTS = 2**25  # scores per tile: memory stays small, and calls stay few


class Inputs(NamedTuple):
    """What the scores of a group of heads depend on."""

    q: Float[Tensor, "g t n"]
    k: Float[Tensor, "g t n"]
    log_decay: Float[Tensor, "g t m"] | None
    direction: Float[Tensor, "g t n"] | None
    strength: Float[Tensor, "g t"] | None

    def take(self, heads: slice) -> "Inputs":
        return self._replace(**{n: x[heads] for n, x in self._asdict().items() if x is not None})


def tile_chunks(inputs: Inputs) -> Chunks:
    """Chunks with as many steps as a tile has rows. Where A_t = I they have no scores `inside`: a
    tile reads its own keys as it reads earlier ones, under a causal mask."""
    q, k, *parts = inputs
    transition = Transition(*parts)
    size = min(ROWS if transition.direction is None else ROWS_HOUSEHOLDER, q.shape[1])
    if transition.is_identity:
        return Chunks(cut(q, size), cut(k, size), None, None, None, None)
    return chunks_of_time(q, k, transition, size)


def alpha_tiles(
    chunks: Chunks, readout: Readout, shift: bool
) -> Iterator[tuple[Float[Tensor, "g s j"], Float[Tensor, "g s"] | None]]:
    """Yield the coefficients of each chunk's rows. With `shift`, also yield their largest scores,
    which are subtracted before phi."""
    for c, keys in keys_seen(chunks):
        score = scores(chunks, keys, c, shift)
        unit = None
        if shift:
            unit = score.amax(-1)
            score.sub_(unit.unsqueeze(-1))
        yield causal(readout(score)), unit


def coefficients(
    inputs: Inputs, readout: Readout, shift: bool
) -> tuple[Float[Tensor, "g t t"], Float[Tensor, "g t"] | None]:
    """All of alpha, zero above the diagonal, and with `shift` the logarithm of each row's unit."""
    heads, length, _ = inputs.q.shape
    alpha = inputs.q.new_zeros(heads, length, length)
    units = inputs.q.new_empty(heads, length)
    for group in groups(inputs.q):
        start = 0
        for tile, unit in alpha_tiles(tile_chunks(inputs.take(group)), readout, shift):
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
) -> Iterator[tuple[int, Float[Tensor, "g n r"]]]:
    """Yield the chunks from `first` to `last`, each with the keys it reads: channels first, as they
    are at the chunk's start. `past` are the keys that chunk `first` reads.

    Where A_t = I they include the chunk's own keys. All share one buffer: copy keys to keep them.
    """
    keys = chunks.key.flatten(1, 2).mT.contiguous()
    if past is not None:
        keys[..., : past.shape[-1]] = past
    size = chunks.query.shape[2]
    for c in range(chunks.query.shape[1])[first:last]:
        if chunks.inside is None:
            yield c, keys[..., : (c + 1) * size]
        else:
            earlier = keys[..., : c * size]
            yield c, earlier
            earlier.copy_(carry(earlier, *chunks.carrier(c)))


def scores(
    chunks: Chunks, keys: Float[Tensor, "g n r"], c: int, shift: bool
) -> Float[Tensor, "g s j"]:
    score = torch.bmm(chunks.query[:, c], keys)
    if chunks.inside is not None:
        score = torch.cat([score, chunks.inside[:, c]], dim=-1)
    if shift:
        rows = score.shape[-2]
        score[..., -rows:] += score.new_full((rows, rows), -torch.inf).triu(1)
    return score


def causal(tile: Float[Tensor, "g s j"]) -> Float[Tensor, "g s j"]:
    """Set what lies above the diagonal to zero, in place: each row ends at its own step."""
    tile[..., -tile.shape[-2] :].tril_()
    return tile


def groups(q: Float[Tensor, "g t n"]) -> Iterator[slice]:
    """Slices of heads, each small enough for one tile of scores."""
    heads, length, _ = q.shape
    step = max(1, TILE_ELEMENTS // (ROWS * length))
    for start in range(0, heads, step):
        yield slice(start, min(start + step, heads))
