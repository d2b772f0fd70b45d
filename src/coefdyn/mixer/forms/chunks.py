"""A sequence in chunks of steps: how a chunk reads and changes the keys that came before it.

Let M hold the earlier keys (or keys times values) at the start of a chunk. Whatever the structure
of A_t, the chunk reads M through effective queries. It changes M by a decay or a matrix, and adds
its own keys:

    scores of earlier keys   query M
    scores inside the chunk  inside
    M at the chunk's end     decay * M or matrix M, and key^T besides

The quadratic form carries the keys themselves from chunk to chunk. The linear form carries the sum
of keys times values. Both see A_t only through these quantities.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.forms.decayed_dot import (
    Decay,
    FactorDecay,
    LogDecay,
    a_step_later,
    following,
)
from coefdyn.mixer.slots.transition import Transition


class Chunks(NamedTuple):
    """g (batch, head) pairs, c chunks of s steps, key width n; see the module's docstring."""

    query: Float[Tensor, "g c s n"]
    key: Float[Tensor, "g c s n"]
    inside: Float[Tensor, "g c s s"] | None
    decay: Float[Tensor, "g c m"] | None
    matrix: Float[Tensor, "g c n n"] | None

    def carrier(self, c: int | slice) -> tuple[Tensor | None, Tensor | None]:
        """decay and matrix of chunk c (or several), for `carry`."""
        return of_chunk(c, self.decay, self.matrix)


def of_chunk(
    c: int | slice, decay: Tensor | None, matrix: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    return None if decay is None else decay[:, c], None if matrix is None else matrix[:, c]


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
            matrix=None,
        )

    w, u, beta = cut(transition.direction, size), None, None
    if transition.column is not None:
        u = cut(transition.column, size)
    elif transition.strength is not None:
        u, beta = w, cut(transition.strength, size).unsqueeze(-1)
    assert u is not None
    reader = following(w) if transition.early else w
    q_k, q_u, w_k, w_u = decay.dots((query, reader), (key, u))
    if transition.early:
        w_k, w_u = a_step_later(w_k), a_step_later(w_u)
        from_start_read = None if from_start is None else _before(from_start)
    else:
        from_start_read = from_start
    w_start = _times(w, from_start_read)
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
    kept = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)
    return Chunks(
        query=_times(query, from_start) - q_u @ erase,
        key=_times(key, to_end) - erased_inside.mT @ write,
        inside=q_k - q_u @ erased_inside,
        decay=None,
        matrix=_times(kept, None if whole is None else whole.unsqueeze(-1)) - write.mT @ erase,
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
    matrix: Float[Tensor, "*g n n"] | None,
) -> Float[Tensor, "*g n r"]:
    """M at a chunk's end from M at its start, without the chunk's own keys."""
    if matrix is not None:
        return matrix @ state
    return _times(state, None if decay is None else decay.unsqueeze(-1))


def carry_and_add(
    state: Float[Tensor, "g n r"],
    added: Float[Tensor, "g n r"],
    decay: Float[Tensor, "g m"] | None,
    matrix: Float[Tensor, "g n n"] | None,
) -> Float[Tensor, "g n r"]:
    """`carry` + `added`, in one call."""
    if matrix is not None:
        return torch.baddbmm(added, matrix, state)
    return added + state if decay is None else added.addcmul(state, decay.unsqueeze(-1))


def carry_gradients(
    state: Float[Tensor, "*g n r"],
    grad: Float[Tensor, "*g n r"],
    decay: Float[Tensor, "*g m"] | None,
    matrix: Float[Tensor, "*g n n"] | None,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of decay and matrix, from M at the start and its gradient at the end. The gradient
    of M itself is `carry` with the matrix transposed."""
    if matrix is not None:
        return None, grad @ state.mT
    if decay is None:
        return None, None
    d_decay = (state * grad).sum(-1)
    return (d_decay.sum(-1, keepdim=True) if decay.shape[-1] == 1 else d_decay), None


def _times(x: Tensor, factor: Tensor | None) -> Tensor:
    return x if factor is None else x * factor
