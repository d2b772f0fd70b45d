"""Coefficients in tiles that fit the cache: some heads, some steps i, all j <= i."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

from coefdyn.mixer.forms.chunks import Chunks, carry, chunks_of_time, cut
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.transition import Transition

ROWS = 32  # steps per tile
# With a Householder a longer triangular solve would cost float32 digits. An a_t of any sign is
# multiplied out for each pair of steps.
ROWS_HOUSEHOLDER = 8
TILE_ELEMENTS = 2**25  # scores per tile: memory stays small, and calls stay few


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
    """Chunks with as many steps as a tile has rows. Where A_t = I they have no scores `inside`: a
    tile reads its own keys as it reads earlier ones, under a causal mask."""
    q, k, transition = inputs.q, inputs.k, inputs.transition
    plain = transition.direction is None and transition.factor is None
    size = min(ROWS if plain else ROWS_HOUSEHOLDER, q.shape[1])
    if transition.is_identity:
        return Chunks(cut(q, size), cut(k, size), None, None, None, None)
    return chunks_of_time(q, k, transition, size)


def alpha_tiles(
    chunks: Chunks, readout: Readout, shift: bool, added: Float64[Tensor, "g r"] | None
) -> Iterator[tuple[Float[Tensor, "g s j"], Float[Tensor, "g s"] | None]]:
    """Yield the coefficients of each chunk's rows. With `shift`, also yield their largest scores,
    which are subtracted before phi."""
    for c, keys in keys_seen(chunks):
        score = scores(chunks, keys, c, shift, added)
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
    chunks: Chunks,
    keys: Float[Tensor, "g n r"],
    c: int,
    shift: bool,
    added: Float64[Tensor, "g t"] | None,
) -> Float[Tensor, "g s j"]:
    """What chunk c reads of all keys up to its own. added_i - added_j is part of score_ij."""
    score = torch.bmm(chunks.query[:, c], keys)
    if chunks.inside is not None:
        score = torch.cat([score, chunks.inside[:, c]], dim=-1)
    rows = score.shape[-2]
    if added is not None:
        seen = F.pad(added, (0, -added.shape[1] % rows))[:, : score.shape[-1]]
        score += (seen[:, -rows:, None] - seen[:, None]).to(score.dtype)
    if shift:
        score[..., -rows:] += score.new_full((rows, rows), -torch.inf).triu(1)
    return score


def causal(tile: Float[Tensor, "g s j"]) -> Float[Tensor, "g s j"]:
    """Set what lies above the diagonal to zero, in place: each row ends at its own step."""
    tile[..., -tile.shape[-2] :].tril_()
    return tile


def take_added(added: Float64[Tensor, "g t"] | None, heads: slice) -> Tensor | None:
    return None if added is None else added[heads]


def groups(q: Float[Tensor, "g t n"]) -> Iterator[slice]:
    """Slices of heads, each small enough for one tile of scores."""
    heads, length, _ = q.shape
    step = max(1, TILE_ELEMENTS // (ROWS * length))
    for start in range(0, heads, step):
        yield slice(start, min(start + step, heads))
