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
    if transition.log_decay is not None:
        state = state * transition.log_decay.exp().mT
    if transition.direction is not None and transition.strength is not None:
        w = transition.direction
        state = state - transition.strength.unsqueeze(-1) * w.mT * (w @ state)
    state = state + written
    return q @ state, state
