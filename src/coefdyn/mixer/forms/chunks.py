"""A sequence in chunks of steps: how a chunk reads and changes the keys that came before it.

Let M hold the earlier keys (or keys times values) at the start of a chunk. Whatever the structure
of A_t, the chunk reads M through effective queries. It changes M by a decay and an erasure of low
rank, and adds its own keys:

    scores of earlier keys   query M
    scores inside the chunk  inside
    M at the chunk's end     decay * M - write^T (erase M), and key^T besides

The quadratic form carries the keys themselves from chunk to chunk. The linear form carries the sum
of keys times values. Both see A_t only through these quantities.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.forms.decayed_dot import Decay, FactorDecay, LogDecay, early_dot
from coefdyn.mixer.slots.transition import Transition


class Chunks(NamedTuple):
    """g (batch, head) pairs, c chunks of s steps, key width n; see the module's docstring."""

    query: Float[Tensor, "g c s n"]
    key: Float[Tensor, "g c s n"]
    inside: Float[Tensor, "g c s s"] | None
    decay: Float[Tensor, "g c m"] | None
    erase: Float[Tensor, "g c s n"] | None
    write: Float[Tensor, "g c s n"] | None

    def carrier(self, c: int) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """decay, erase and write of chunk c, for `carry`."""
        parts = (self.decay, self.erase, self.write)
        return tuple(part if part is None else part[:, c] for part in parts)  # type: ignore[return-value]


def cut(x: Float[Tensor, "g t *m"], size: int, pad: float = 0.0) -> Float[Tensor, "g c s *m"]:
    """Cut time into chunks of `size`, the last one padded."""
    missing = -x.shape[1] % size
    if missing:
        x = F.pad(x, [0, 0] * (x.ndim - 2) + [0, missing], value=pad)
    return x.unflatten(1, (-1, size))


def chunks_of_time(
    q: Float[Tensor, "g t n"], k: Float[Tensor, "g t n"], transition: Transition, size: int
) -> Chunks:
    """Summarise every chunk of `size` steps; k are the scaled keys b_j k_j. Padding has no effect
    on what is carried on."""
    query, key = cut(q, size), cut(k, size)
    decay = _decay_of(transition, size, q.dtype)
    from_start, to_end = decay.from_start, decay.to_end
    whole = None if from_start is None else from_start[..., -1, :]
    if transition.direction is None:
        return Chunks(
            query=_times(query, from_start),
            key=_times(key, to_end),
            inside=decay.dot(query, key),
            decay=whole,
            erase=None,
            write=None,
        )

    w, u, beta = cut(transition.direction, size), None, None
    if transition.column is not None:
        u = cut(transition.column, size)
    elif transition.strength is not None:
        u, beta = w, cut(transition.strength, size).unsqueeze(-1)
    assert u is not None
    q_k, q_u = decay.dot(query, key), decay.dot(query, u)
    if transition.early:
        w_k, w_u = early_dot(decay, w, key), early_dot(decay, w, u)
        w_start = _times(w, None if from_start is None else _before(from_start))
    else:
        w_k, w_u = decay.dot(w, key), decay.dot(w, u)
        w_start = _times(w, from_start)
    # Step t takes w_t . state off along u_t. Earlier steps of the chunk have already taken off of
    # that state: the triangular solve accounts for it.
    erased = torch.linalg.solve_triangular(
        _times(w_u.tril(-1), beta),
        _times(torch.cat([w_k.tril(-1), w_start], dim=-1), beta),
        upper=False,
        unitriangular=True,
    )
    erased_inside, erase = erased.split([size, w.shape[-1]], dim=-1)
    write = _times(u, to_end)
    return Chunks(
        query=_times(query, from_start) - q_u @ erase,
        key=_times(key, to_end) - erased_inside.mT @ write,
        inside=q_k - q_u @ erased_inside,
        decay=whole,
        erase=erase,
        write=write,
    )


def _decay_of(transition: Transition, size: int, dtype: torch.dtype) -> Decay:
    if transition.factor is not None:
        return FactorDecay(cut(transition.factor, size, pad=1.0))
    if transition.log_decay is not None:
        return LogDecay(cut(transition.log_decay, size), dtype)
    return Decay()


def _before(from_start: Float[Tensor, "*b s m"]) -> Float[Tensor, "*b s m"]:
    """The products up to the step before: 1 at a chunk's first."""
    return F.pad(from_start[..., :-1, :], (0, 0, 1, 0), value=1.0)


def carry(
    state: Float[Tensor, "*g n r"],
    decay: Float[Tensor, "*g m"] | None,
    erase: Float[Tensor, "*g s n"] | None,
    write: Float[Tensor, "*g s n"] | None,
) -> Float[Tensor, "*g n r"]:
    """M at a chunk's end from M at its start, without the chunk's own keys."""
    decayed = _times(state, None if decay is None else decay.unsqueeze(-1))
    return decayed if erase is None or write is None else decayed - write.mT @ (erase @ state)


def carry_adjoint(
    grad: Float[Tensor, "*g n r"],
    decay: Float[Tensor, "*g m"] | None,
    erase: Float[Tensor, "*g s n"] | None,
    write: Float[Tensor, "*g s n"] | None,
) -> Float[Tensor, "*g n r"]:
    """The gradient at a chunk's start from the gradient at its end."""
    return carry(grad, decay, write, erase)


def carry_gradients(
    state: Float[Tensor, "*g n r"],
    grad: Float[Tensor, "*g n r"],
    decay: Float[Tensor, "*g m"] | None,
    erase: Float[Tensor, "*g s n"] | None,
    write: Float[Tensor, "*g s n"] | None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of decay, erase and write, from M at the start and its gradient at the end."""
    d_decay = d_erase = d_write = None
    if decay is not None:
        d_decay = (state * grad).sum(-1)
        if decay.shape[-1] == 1:
            d_decay = d_decay.sum(-1, keepdim=True)
    if erase is not None and write is not None:
        d_erase = -(write @ grad) @ state.mT
        d_write = -(erase @ state) @ grad.mT
    return d_decay, d_erase, d_write


def _times(x: Tensor, factor: Tensor | None) -> Tensor:
    return x if factor is None else x * factor
