"""Readouts as dot products of features, which makes a finite recurrent state possible."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Float64
from torch import Tensor

from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.transition import Transition


@dataclass(frozen=True)
class Term:
    """One summand weight * (q . h) of alpha. q and h are features of the original q and h."""

    weight: float
    q: Float[Tensor, "b h t m"]
    k: Float[Tensor, "b h t m"]
    transition: Transition


def linear_terms(
    readout: Readout,
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    transition: Transition,
    feature_map: Callable[[Tensor], Tensor] | None = None,
    added: Float64[Tensor, "b h t"] | None = None,
) -> list[Term]:
    """Write alpha as a sum of terms linear in features; `obstacle` must have returned None.

    s^p = (q (x) ... (x) q) . (h (x) ... (x) h), so degree p needs n^p features (Lemma 1), which
    decay p times as fast. The constant term has one feature that does not decay.
    `feature_map` is another way to compute the readout's own feature map. What is `added` to
    scores takes two more channels.
    """
    if added is not None:
        q, k, transition = _with_added(q, k, transition, added)
    if readout.feature_map is not None:
        psi = feature_map or readout.feature_map
        return [Term(1.0, psi(q), psi(k), transition)]
    assert readout.polynomial is not None
    return [
        Term(
            a, *(q, k, transition) if p == 1 else (_power(q, p), _power(k, p), transition.power(p))
        )
        for p, a in enumerate(readout.polynomial)
        if a != 0
    ]


def weighted_sum(terms: Sequence[Term], parts: Sequence[Tensor]) -> Tensor:
    """sum_i weight_i part_i."""
    total = None
    for term, part in zip(terms, parts, strict=True):
        part = part if term.weight == 1 else term.weight * part
        total = part if total is None else total + part
    assert total is not None
    return total


def feature_widths(readout: Readout, n: int) -> list[int]:
    """Width of each term's state: n for a kernel, n^p for degree p."""
    if readout.feature_map is not None:
        return [n]
    return [n**p for p, a in enumerate(readout.polynomial or ()) if a != 0]


def commutes(readout: Readout, evolution: Evolution) -> bool:
    """Whether psi(A h) = A psi(h): true for A = I, and for decays a > 0 if psi has degree 1."""
    assert readout.feature_map is not None
    if evolution.has_direction or evolution.has_angle or evolution.signed:
        return False
    return not evolution.has_decay or readout.feature_map.homogeneous == 1


def obstacle(readout: Readout, evolution: Evolution) -> str | None:
    """Why there is no linear or recurrent form, or None if there is one."""
    if evolution.dense:
        return "its A_t is given as a matrix, which only backend=definition takes"
    if readout.feature_map is not None:
        if commutes(readout, evolution):
            return None
        return (
            "its feature map does not commute with A_t: only a degree-1 map such as relu does, "
            "and only with positive decays"
        )
    if readout.polynomial_degree is None:
        return "its readout is not a polynomial, so no finite state exists (Lemma 1)"
    if readout.polynomial_degree > 1 and evolution.has_direction:
        return (
            "a linear form of a degree above 1 is implemented for decays only; with Householders "
            "one exists, with A_t acting on tensor powers"
        )
    return None


def _with_added(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    transition: Transition,
    added: Float64[Tensor, "b h t"],
) -> tuple[Float[Tensor, "b h t m"], Float[Tensor, "b h t m"], Transition]:
    """(q, 1, added_i) and (k, -added_j, 1), whose last two channels A_t leaves alone."""
    number = added.to(q.dtype).unsqueeze(-1)
    one = torch.ones_like(number)

    def padded(x: Tensor | None, value: float) -> Tensor | None:
        return None if x is None else F.pad(x.expand(*x.shape[:-1], n), (0, 2), value=value)

    n = q.shape[-1]
    return (
        torch.cat([q, one, number], dim=-1),
        torch.cat([k, -number, one], dim=-1),
        replace(
            transition,
            log_decay=padded(transition.log_decay, 0.0),
            factor=padded(transition.factor, 1.0),
            direction=padded(transition.direction, 0.0),
            column=padded(transition.column, 0.0),
        ),
    )


def _power(x: Float[Tensor, "b h t n"], degree: int) -> Float[Tensor, "b h t m"]:
    result = torch.ones_like(x[..., :1])
    for _ in range(degree):
        result = rearrange(result.unsqueeze(-1) * x.unsqueeze(-2), "b h t m n -> b h t (m n)")
    return result
