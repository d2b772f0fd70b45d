"""The linear form: time and memory proportional to length, for identity readouts on features."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.forms.chunks import (
    carry_and_add,
    carry_gradients,
    chunks_of_time,
    cut,
    of_chunk,
)
from coefdyn.mixer.forms.folding import over_members
from coefdyn.mixer.forms.sizes import sizes_on
from coefdyn.mixer.slots.transition import Transition


def linear_form(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"],
    transition: Transition,
) -> tuple[Float[Tensor, "b h t p"], Float[Tensor, "b h n p"]]:
    """sum_{j <= i} (q_i . h_ij) v_j, chunk by chunk with a state of n x p; k are scaled keys.
    Also the state after the last step, which carries no gradient."""
    size = min(sizes_on(q.device).linear.of(transition), q.shape[2])
    shape, length = q.shape[:2], q.shape[2]
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    chunks = chunks_of_time(q, k, transition.map(lambda x: x.flatten(0, 1)), size)
    values = cut(v, size)
    read, _, last = Scan.apply(  # type: ignore[no-untyped-call]
        chunks.query, chunks.key, values, chunks.decay, chunks.matrix
    )
    assert chunks.inside is not None
    y = read + chunks.inside @ values
    return y.flatten(1, 2)[:, :length].unflatten(0, shape), last.unflatten(0, shape)


@over_members
class Scan(torch.autograd.Function):
    """M_{c+1} = carry(M_c) + key^T value, M_0 = 0: returns query M_c of every chunk c, all M_c, and
    M after the last chunk.

    The loops over chunks, one each way, do nothing but carry M and its gradient on. Everything else
    is done for all chunks at once.
    """

    @staticmethod
    def forward(
        query: Float[Tensor, "g c s n"],
        key: Float[Tensor, "g c s n"],
        value: Float[Tensor, "g c s p"],
        decay: Float[Tensor, "g c m"] | None,
        matrix: Float[Tensor, "g c n n"] | None,
    ) -> tuple[Float[Tensor, "g c s p"], Float[Tensor, "g c n p"], Float[Tensor, "g n p"]]:
        added = key.mT @ value
        states, state = torch.empty_like(added), torch.zeros_like(added[:, 0])
        for c in range(added.shape[1]):
            states[:, c] = state
            state = carry_and_add(state, added[:, c], *of_chunk(c, decay, matrix))
        return query @ states, states, state

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, decay, matrix, states = ctx.saved_tensors
        back = None if matrix is None else matrix.mT
        d_read = query.mT @ grad
        d_ends = torch.empty_like(states)  # of M at the end of each chunk
        d_state = torch.zeros_like(states[:, 0])
        for c in reversed(range(grad.shape[1])):
            d_ends[:, c] = d_state
            d_state = carry_and_add(d_state, d_read[:, c], *of_chunk(c, decay, back))
        return (
            grad @ states.mT,
            value @ d_ends.mT,
            key @ d_ends,
            *carry_gradients(states, d_ends, decay, matrix),
        )
