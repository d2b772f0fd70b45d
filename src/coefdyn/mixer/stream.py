"""What the forms compute with: the projections of a mixer, in the frame that A_t turns.

Turns and shears of A_t need no form of their own. With P_t = R_t ... R_1, the keys P_t^T h_t know
only the decays and reflections of A_t, if q_t, k_t, u_t and w_t are turned back by P_t^T too. The
sum of shears up to i, less that up to j, is added to score_ij.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from coefdyn.mixer.slots.transition import Transition, rotated


@dataclass(frozen=True)
class Projected:
    """The input x of a mixer and its projections. A_t, b_j and eta_i may depend on x.

    `direction` is the vector of a Householder A_t: k, or a projection of its own. Where A_t
    repeats, a step t of x has r steps of k, v and direction: s = r t.
    """

    x: Float[Tensor, "b t d"]
    q: Float[Tensor, "b h t n"]
    k: Float[Tensor, "b h s n"]
    v: Float[Tensor, "b h s p"]
    direction: Float[Tensor, "b h s n"]


@dataclass(frozen=True)
class Frame:
    """How far turns and shears have run. Sums of many steps, so float64."""

    turned: Float64[Tensor, "#b #h t p"] | None = None
    added: Float64[Tensor, "b h t"] | None = None

    @property
    def last(self) -> "Frame":
        return Frame(
            None if self.turned is None else self.turned[..., -1:, :],
            None if self.added is None else self.added[..., -1:],
        )


@dataclass(frozen=True)
class Stream:
    """Input of the forms: queries, scaled keys b_j k_j, values and A_t without turns and shears.

    Where keys could overflow, those of step t are divided by e^(m_t). `key_unit` is m_t;
    `log_unit` is the logarithm of the factor by which the coefficients of a row shrink; a token
    has one row, also where A_t repeats.
    """

    q: Float[Tensor, "b h t n"]
    k: Float[Tensor, "b h t n"]
    v: Float[Tensor, "b h t p"]
    transition: Transition
    frame: Frame = Frame()
    log_unit: Float[Tensor, "b h i"] | None = None
    key_unit: Float[Tensor, "b h t"] | None = None
    scale: float = 1.0  # a factor that the form must still apply to the queries

    @property
    def added(self) -> Float64[Tensor, "b h t"] | None:
        """What differs between two steps by what is added to their score."""
        return self.frame.added


class Coefficients(NamedTuple):
    """alpha (zero for j > i), eta, and the rows whose eta was replaced as nearly zero. Where A_t
    repeats, a step j has several columns."""

    alpha: Float[Tensor, "b h i j"]
    eta: Float[Tensor, "b h i"]
    guarded: Bool[Tensor, "b h i"]


@dataclass(frozen=True)
class DesignState:
    """Memory of the recurrent form. Its size does not depend on the position."""

    position: int
    sums: tuple[Float[Tensor, "b h _ p"], ...]
    key_unit: Float[Tensor, "b h 1"] | None
    frame: Frame


def in_frame(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    transition: Transition,
    previous: Frame,
    turns: bool,
) -> tuple[Tensor, Tensor, Transition, Frame]:
    """q, k and A_t in the frame of `transition`; without `turns`, A_t keeps its rotation."""
    turned = added = None
    if transition.shear is not None:
        added = transition.shear.double().cumsum(-1)
        added = added if previous.added is None else added + previous.added
        transition = replace(transition, shear=None)
    if transition.angle is not None and turns:
        turned = transition.angle.double().cumsum(-2)
        turned = turned if previous.turned is None else turned + previous.turned
        back = partial(rotated, angle=-turned)
        transition = replace(transition, angle=None)
        q, k, transition = back(q), back(k), transition.turned(back)
    return q, k, transition, Frame(turned, added)


def at_last_of(x: Float[Tensor, "b h t n"], repeats: int) -> Float[Tensor, "b h s n"]:
    """x at the last of the `repeats` steps that each of its own becomes, zeros before it."""
    if repeats == 1:
        return x
    return F.pad(x.unsqueeze(3), (0, 0, repeats - 1, 0)).flatten(2, 3)


def last_of(x: Tensor, repeats: int, dim: int = 2) -> Tensor:
    """Of the `repeats` steps of each token, the last."""
    if repeats == 1:
        return x
    return x.unflatten(dim, (-1, repeats)).select(dim + 1, -1)


def for_each(b: Float[Tensor, "#b #h #t"], steps: int, repeats: int) -> Float[Tensor, "#b #h #s"]:
    """A number per token as one for each of its `repeats` steps."""
    if repeats == 1 or b.shape[-1] in (1, steps):
        return b
    return b.repeat_interleave(repeats, dim=-1)


def with_impulses(
    q: Float[Tensor, "b h t n"], k: Float[Tensor, "b h t n"]
) -> tuple[Float[Tensor, "b h t m"], Float[Tensor, "b h t m"]]:
    """(q, 1, 0) and (k, 0, 1): the state on which a shear is an A_t."""
    one, zero = torch.ones_like(q[..., :1]), torch.zeros_like(q[..., :1])
    return torch.cat([q, one, zero], dim=-1), torch.cat([k, zero, one], dim=-1)
