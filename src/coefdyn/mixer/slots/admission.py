"""Check that the forms can compute an evolution from outside this package.

The forms trust a `Transition`: with a wrong one they would train another function, silently.
"""

import torch
from torch import Tensor

from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.transition import Transition

STEPS = 3
DENSE = (
    "an A_t other than (I - beta w w^T) diag(a) with a > 0 can be given as a matrix: set dense = "
    "True and return Transition(matrix=...) of (batch, head, time, n, n), which is slow but exact"
)
PARTS = {"log_decay": "has_decay", "direction": "has_direction", "step_size": "has_step_size",
         "matrix": "dense"}  # fmt: skip


def check_evolution(evolution: Evolution, d_model: int, n_heads: int, width: int) -> None:
    """Call an evolution of a plugin once, on random input; ValueError if its A_t is unfit."""
    if type(evolution).__module__.startswith("coefdyn."):
        return
    name = type(evolution).__name__
    transition = _tried(evolution, d_model, n_heads, width)
    if type(transition) is not Transition:
        raise ValueError(
            f"the evolution {name} returns a {type(transition).__name__}, which the forms do not "
            f"know; {DENSE}"
        )
    for part, trait in PARTS.items():
        if (getattr(transition, part) is not None) != bool(getattr(evolution, trait)):
            raise ValueError(
                f"the evolution {name} returns "
                f"{'a' if getattr(transition, part) is not None else 'no'} {part}, but its {trait} "
                f"is {getattr(evolution, trait)}; they must agree"
            )
    _check_decay(transition.log_decay, evolution, name)
    shape = (1, n_heads, STEPS, width, width)
    if transition.matrix is not None and transition.matrix.shape != shape:
        raise ValueError(
            f"the evolution {name} returns a matrix of shape {tuple(transition.matrix.shape)}; for "
            f"{n_heads} heads of width {width} and {STEPS} steps it must be {shape}"
        )


@torch.no_grad()
def _tried(evolution: Evolution, d_model: int, n_heads: int, width: int) -> object:
    generator = torch.Generator().manual_seed(0)  # leaves the run's random numbers alone
    like = next(evolution.parameters(), torch.empty(0))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(like)

    x, k = normal(1, STEPS, d_model), normal(1, n_heads, STEPS, width)
    return evolution(x, torch.nn.functional.normalize(k, dim=-1))


def _check_decay(log_decay: Tensor | None, evolution: Evolution, name: str) -> None:
    if log_decay is None:
        return
    if not torch.isfinite(log_decay).all():
        raise ValueError(
            f"the evolution {name} returns a log_decay that is not finite: a decay must be above "
            f"0; {DENSE}"
        )
    if not evolution.may_grow and bool((log_decay > 0).any()):
        raise ValueError(
            f"the evolution {name} returns a log_decay above 0, so that A_t grows; set may_grow = "
            "True (with one number per head), or keep it at 0 or below"
        )
