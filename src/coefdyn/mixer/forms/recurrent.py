"""The recurrent form: one step at a time, with memory that does not grow."""

from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.slots.transition import Transition


def recurrent_step(
    state: Float[Tensor, "b h n p"] | None,
    q: Float[Tensor, "b h 1 n"],
    k: Float[Tensor, "b h 1 n"],
    v: Float[Tensor, "b h 1 p"],
    transition: Transition,
) -> tuple[Float[Tensor, "b h 1 p"], Float[Tensor, "b h n p"]]:
    """q_t^T M_t and M_t = A_t M_{t-1} + b_t k_t v_t^T; k is the scaled key b_t k_t."""
    written = k.mT * v
    if state is None:
        return q @ written, written
    w, u, decay, before = transition.direction, transition.erased, transition.decay, state
    if decay is not None:
        state = state * decay.mT
    if w is not None and u is not None:
        state = state - u.mT * (w @ (before if transition.early else state))
    state = state + written
    return q @ state, state
