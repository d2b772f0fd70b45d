"""The linear form: time and memory proportional to length, for identity readouts on features."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.forms.chunks import carry, carry_adjoint, carry_gradients, chunks_of_time, cut
from coefdyn.mixer.forms.folding import over_members
from coefdyn.mixer.slots.transition import Transition

# Steps per chunk. With a Householder a longer triangular solve would cost float32 digits.
CHUNK = 64
CHUNK_PER_CHANNEL = 32
CHUNK_HOUSEHOLDER = 16
CHUNK_FACTOR = 16  # a_t of any sign are multiplied out for each pair of steps


def linear_form(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"],
    transition: Transition,
) -> tuple[Float[Tensor, "b h t p"], Float[Tensor, "b h n p"]]:
    """sum_{j <= i} (q_i . h_ij) v_j, chunk by chunk with a state of n x p; k are scaled keys.
    Also the state after the last step, which carries no gradient."""
    size = min(chunk_size(transition), q.shape[2])
    shape, length = q.shape[:2], q.shape[2]
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    chunks = chunks_of_time(q, k, transition.map(lambda x: x.flatten(0, 1)), size)
    values = cut(v, size)
    read, states = Scan.apply(  # type: ignore[no-untyped-call]
        chunks.query, chunks.key, values, chunks.decay, chunks.erase, chunks.write
    )
    assert chunks.inside is not None
    y = read + chunks.inside @ values
    return y.flatten(1, 2)[:, :length].unflatten(0, shape), states[:, -1].unflatten(0, shape)


def chunk_size(transition: Transition) -> int:
    if transition.direction is not None:
        return CHUNK_HOUSEHOLDER
    if transition.factor is not None:
        return CHUNK_FACTOR
    return CHUNK_PER_CHANNEL if transition.per_channel else CHUNK


@over_members
class Scan(torch.autograd.Function):
    """M_{c+1} = carry(M_c) + key^T value, M_0 = 0: returns query M_c of every chunk c, and all M.

    There is one loop over chunks each way, and only M is stored per chunk: with many chunks,
    tensors of that size dominate the cost.
    """

    @staticmethod
    def forward(
        query: Float[Tensor, "g c s n"],
        key: Float[Tensor, "g c s n"],
        value: Float[Tensor, "g c s p"],
        decay: Float[Tensor, "g c m"] | None,
        erase: Float[Tensor, "g c s n"] | None,
        write: Float[Tensor, "g c s n"] | None,
    ) -> tuple[Float[Tensor, "g c s p"], Float[Tensor, "g d n p"]]:
        heads, count, _, p = value.shape
        read = torch.empty_like(value)
        states = value.new_empty(heads, count + 1, query.shape[-1], p)
        state = value.new_zeros(heads, query.shape[-1], p)
        for c in range(count):
            states[:, c] = state
            read[:, c] = torch.bmm(query[:, c], state)
            step = _step(c, decay, erase, write)
            state = torch.baddbmm(carry(state, *step), key[:, c].mT, value[:, c])
        states[:, count] = state
        return read, states

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *parts, states = ctx.saved_tensors
        d_query, d_key, d_value = (torch.empty_like(x) for x in (query, key, value))
        d_parts = [x if x is None else torch.empty_like(x) for x in parts]
        d_state = torch.zeros_like(states[:, 0])  # of M at the chunk's end
        for c in reversed(range(grad.shape[1])):
            step, d_step = _step(c, *parts), _step(c, *d_parts)
            d_query[:, c] = torch.bmm(grad[:, c], states[:, c].mT)
            d_key[:, c] = torch.bmm(value[:, c], d_state.mT)
            d_value[:, c] = torch.bmm(key[:, c], d_state)
            gradients = carry_gradients(states[:, c], d_state, *step)
            for target, gradient in zip(d_step, gradients, strict=True):
                if target is not None and gradient is not None:
                    target.copy_(gradient)
            d_state = torch.baddbmm(carry_adjoint(d_state, *step), query[:, c].mT, grad[:, c])
        return d_query, d_key, d_value, *d_parts


def _step(c: int, *parts: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """decay, erase and write of chunk c."""
    return tuple(part if part is None else part[:, c] for part in parts)  # type: ignore[return-value]
