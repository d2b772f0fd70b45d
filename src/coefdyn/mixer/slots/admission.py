"""Check that slots can be one design, and that the forms can compute an evolution from outside.

The forms trust a `Transition`: with a wrong one they would train another function, silently.
"""

import torch
from torch import Tensor

from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.scaling import Scaling
from coefdyn.mixer.slots.transition import Transition

STEPS = 3
DENSE = (
    "an A_t other than (I - u w^T) diag(a) R can be given as a matrix: set dense = "
    "True and return Transition(matrix=...) of (batch, head, time, n, n), which is slow but exact"
)
PARTS = {"direction": "has_direction", "strength": "has_strength", "step_size": "has_step_size",
         "angle": "has_angle", "shear": "has_shear", "factor": "signed", "column": "two_sided",
         "matrix": "dense"}  # fmt: skip


class UnfitSlotsError(ValueError):
    """Slots that cannot be one design."""


class MissingTraitError(UnfitSlotsError):
    """A slot needs a trait that the chosen evolution lacks."""

    def __init__(self, need: str, trait: str) -> None:
        super().__init__(f"{need}, but the evolution has none; use one with {trait}")
        self.need, self.trait = need, trait


def check_slots(evolution: Evolution, scaling: Scaling, readout: Readout) -> None:
    if scaling.needs_step_size and not evolution.has_step_size:
        raise MissingTraitError("the scaling is the step size Delta of A_t", "has_step_size")
    if scaling.needs_strength and not evolution.has_strength:
        raise MissingTraitError("the scaling is the strength beta of A_t", "has_strength")
    if readout.feature_map is not None and evolution.has_shear:
        raise UnfitSlotsError(
            "this evolution adds a number to the score, and a kernel readout has no score; choose "
            "a readout of the score such as exp, or an evolution without shear such as rotary"
        )


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
    decays = transition.log_decay is not None or transition.factor is not None
    if decays != evolution.has_decay:
        raise ValueError(
            f"the evolution {name} returns {'a' if decays else 'no'} log_decay, but its has_decay "
            f"is {evolution.has_decay}; they must agree"
        )
    for part, trait in PARTS.items():
        if (getattr(transition, part) is not None) != bool(getattr(evolution, trait)):
            raise ValueError(
                f"the evolution {name} returns "
                f"{'a' if getattr(transition, part) is not None else 'no'} {part}, but its {trait} "
                f"is {getattr(evolution, trait)}; they must agree"
            )
    _check_decay(transition, evolution, name)
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


def _check_decay(transition: Transition, evolution: Evolution, name: str) -> None:
    log_decay, factor = transition.log_decay, transition.factor
    if factor is not None and not bool((factor.abs() <= 1).all()):
        raise ValueError(
            f"the evolution {name} returns a factor beyond 1 in size, and A_t must not grow; keep "
            "it from -1 to 1"
        )
    if log_decay is None:
        return
    if not torch.isfinite(log_decay).all():
        raise ValueError(
            f"the evolution {name} returns a log_decay that is not finite: a decay must be above "
            f"0; return factor, with signed = True, where it may be 0 or less; {DENSE}"
        )
    if not evolution.may_grow and bool((log_decay > 0).any()):
        raise ValueError(
            f"the evolution {name} returns a log_decay above 0, so that A_t grows; set may_grow = "
            "True (with one number per head), or keep it at 0 or below"
        )
