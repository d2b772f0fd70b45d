"""The linear form: time and memory proportional to length, for identity readouts on features."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.chunks import carry, carry_adjoint, carry_gradients, chunks_of_time, cut
from coefdyn.mixer.transition import Transition

# Steps per chunk. With a Householder a longer triangular solve would cost float32 digits.
CHUNK = 64
CHUNK_PER_CHANNEL = 32
CHUNK_HOUSEHOLDER = 16


def linear_form(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"],
    transition: Transition,
) -> Float[Tensor, "b h t p"]:
    """sum_{j <= i} (q_i . h_ij) v_j, chunk by chunk with a state of n x p; k are scaled keys."""
    size = min(chunk_size(transition.direction is not None, transition.per_channel), q.shape[2])
    query, key, value = (x.flatten(0, 1) for x in (q, k, v))
    chunks = chunks_of_time(query, key, transition.map(lambda x: x.flatten(0, 1)), size)
    values = cut(value, size)
    update = chunks.key.mT @ values
    state = Scan.apply(update, chunks.decay, chunks.erase, chunks.write)  # type: ignore[no-untyped-call]
    assert chunks.inside is not None
    y = chunks.query @ state + chunks.inside @ values
    return y.flatten(1, 2)[:, : q.shape[2]].unflatten(0, q.shape[:2])


def chunk_size(has_direction: bool, per_channel: bool) -> int:
    if has_direction:
        return CHUNK_HOUSEHOLDER
    return CHUNK_PER_CHANNEL if per_channel else CHUNK


class Scan(torch.autograd.Function):
    """M at the start of every chunk, M_0 = 0, where chunk c adds `update` U_c on top of `carry`.

    The loops hold only what must be sequential; the gradients of decay, erase and write are
    batched products of all states and their gradients afterwards.
    """

    @staticmethod
    def forward(
        update: Float[Tensor, "g c n p"],
        decay: Float[Tensor, "g c m"] | None,
        erase: Float[Tensor, "g c s n"] | None,
        write: Float[Tensor, "g c s n"] | None,
    ) -> Float[Tensor, "g c n p"]:
        states = torch.zeros_like(update)
        steps = _per_chunk(update.shape[1], decay, erase, write)
        for c, step in enumerate(steps[:-1]):
            torch.add(update[:, c], carry(states[:, c], *step), out=states[:, c + 1])
        return states

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *parts, states = ctx.saved_tensors
        d_end = torch.zeros_like(grad)  # at the end of each chunk: also the gradient of U_c
        steps = _per_chunk(grad.shape[1], *parts)
        for c in range(grad.shape[1] - 1, 0, -1):
            torch.add(grad[:, c], carry_adjoint(d_end[:, c], *steps[c]), out=d_end[:, c - 1])
        return d_end, *carry_gradients(states, d_end, *parts)


def _per_chunk(count: int, *parts: Tensor | None) -> list[tuple[Tensor | None, ...]]:
    """(decay, erase, write) of each chunk."""
    split = [[None] * count if part is None else part.unbind(1) for part in parts]
    return list(zip(*split, strict=True))
