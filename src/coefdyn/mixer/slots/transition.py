"""A_t as data: what an evolution computes from the input, and every form consumes."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.compiled.kernels import fits
from coefdyn.mixer.fused import running_units, scaled

SMALLEST = 1e-300  # of |a_t|, where its logarithm only chooses a unit


@dataclass(frozen=True)
class Transition:
    """A_t = (I - u_t w_t^T) diag(a_t) R_t, and what A_t adds to scores.

    a_t: `log_decay` is log a_t for a_t > 0; `factor` is a_t itself where it may be zero or
    negative, |a_t| <= 1. Either is one number per head (m = 1) or one per channel (m = n). Only a
    `log_decay` per head may be above 0. Without both, a_t = 1.
    w_t, u_t: `direction` is w_t. u_t is `column`, or beta_t w_t with beta_t = `strength` and
    |w_t| = 1. Where `early`, w_t reads the key before it decays: A_t = diag(a_t) - u_t w_t^T.
    R_t: turns channels p and p + n/2 by `angle` p. Leading axes of size 1 are broadcast.
    `shear`: score_ij has the sum of shear_s over j < s <= i added. On the state (k, 0, 1), read by
    (q, 1, 0), it is an A_t with ones on its diagonal.
    `step_size`: Delta_t, if A_t has one, for scalings to share.
    `matrix`: an A_t of any other kind, written out. The other parts are then absent, and only
    `definition.py` can use it.
    Leading axes are batch and head, or both in one.
    """

    log_decay: Float[Tensor, "*b t m"] | None = None
    direction: Float[Tensor, "*b t n"] | None = None
    strength: Float[Tensor, "*b t"] | None = None
    step_size: Float[Tensor, "*b t"] | None = None
    matrix: Float[Tensor, "*b t n n"] | None = None
    factor: Float[Tensor, "*b t m"] | None = None
    column: Float[Tensor, "*b t n"] | None = None
    angle: Float[Tensor, "*#b t p"] | None = None
    shear: Float[Tensor, "*b t"] | None = None
    early: bool = False

    @property
    def is_identity(self) -> bool:
        return self.log_decay is None and self.factor is None and self.direction is None

    @property
    def per_channel(self) -> bool:
        decay = self.log_decay if self.factor is None else self.factor
        return decay is not None and decay.shape[-1] > 1

    @property
    def decay(self) -> Float[Tensor, "*b t m"] | None:
        """a_t itself."""
        return self.factor if self.log_decay is None else self.log_decay.exp()

    @property
    def erased(self) -> Float[Tensor, "*b t n"] | None:
        """u_t: along it is taken off what w_t reads."""
        if self.column is not None or self.direction is None or self.strength is None:
            return self.column
        return scaled(self.direction, self.strength)

    def matrices(self, like: Float[Tensor, "b h t n"]) -> Float[Tensor, "b h t m m"]:
        """A_t written out, for `definition.py`; `like` are the keys. With a shear, m = n + 2."""
        if self.matrix is not None:
            return self.matrix.to(like)
        n = like.shape[-1]
        identity = torch.eye(n, dtype=like.dtype, device=like.device).expand(*like.shape, n)
        A, decay, w, u = identity, self.decay, self.direction, self.erased
        if w is not None and u is not None and not self.early:
            A = A - u.unsqueeze(-1) * w.unsqueeze(-2)
        if decay is not None:
            A = A * decay.unsqueeze(-2)
        if self.angle is not None:
            A = A @ rotated(identity, self.angle.unsqueeze(-2)).mT
        if w is not None and u is not None and self.early:
            A = A - u.unsqueeze(-1) * w.unsqueeze(-2)
        if self.shear is None:
            return A
        return F.pad(A, (0, 2, 0, 2)) + F.pad(_shearing(self.shear), (n, 0, n, 0))

    def map(self, function: Callable[[Tensor], Tensor]) -> "Transition":
        """Apply `function` to every part that is present."""
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: x for name, x in parts.items() if isinstance(x, Tensor)}
        return Transition(**parts | {name: function(x) for name, x in tensors.items()})

    def turned(self, turn: Callable[[Tensor], Tensor]) -> "Transition":
        """The transition of turned keys, where decays do not tell turned channels apart."""
        w, u = self.direction, self.column
        return replace(
            self,
            direction=None if w is None else turn(w),
            column=None if u is None else turn(u),
        )

    def power(self, degree: int) -> "Transition":
        """The decay of degree-fold products of channels: h (x) h decays by a (x) a."""
        log_decay, factor = self.log_decay, self.factor
        if degree == 0:
            return Transition()
        if self.per_channel:
            log_decay = None if log_decay is None else _products(log_decay, degree, torch.add)
            factor = None if factor is None else _products(factor, degree, torch.mul)
            return Transition(log_decay=log_decay, factor=factor)
        return Transition(
            log_decay=None if log_decay is None else degree * log_decay,
            factor=None if factor is None else factor**degree,
        )

    def growth(
        self, log_scaling: Float[Tensor, "b h t"], previous: Float[Tensor, "b h 1"] | None = None
    ) -> tuple[Float[Tensor, "b h t"], Float[Tensor, "b h t"]]:
        """m_t = max(m_{t-1} + log |a_t|, log b_t), and m_{t-1} - m_t.

        m_t bounds log |h_{t,j}| for all j. It only chooses units and does not change the function
        computed, so it has no gradient. It is float64, because it can be large while its
        differences matter.
        """
        with torch.no_grad():
            if previous is None and self.log_decay is not None and fits(log_scaling):
                return running_units(log_scaling, self.log_decay.amax(-1))
            rate = torch.zeros_like(log_scaling, dtype=torch.float64)
            if self.log_decay is not None:
                rate = rate + self.log_decay.amax(-1)
            if self.factor is not None:
                rate = rate + self.factor.double().abs().amax(-1).clamp(min=SMALLEST).log()
            total = rate.cumsum(-1)
            peak = log_scaling - total
            if previous is not None:
                peak = torch.maximum(peak, previous.to(peak))
            unit = total + peak.cummax(-1).values
            first = unit[..., :1] - rate[..., :1] if previous is None else previous.to(unit)
            return unit, torch.cat([first, unit[..., :-1]], dim=-1) - unit

    def rescaled(self, shift: Float[Tensor, "b h t"]) -> "Transition":
        """The transition of e^(-m_t) h_t, which is e^(m_{t-1} - m_t) A_t."""
        rate = shift.unsqueeze(-1)
        column = self.column
        if self.early and self.erased is not None:
            column = self.erased * rate.exp()
        if self.factor is not None:
            return replace(self, factor=self.factor * rate.exp(), column=column)
        log_decay = rate if self.log_decay is None else self.log_decay + rate
        return replace(self, log_decay=log_decay, column=column)

    def spread(self, repeats: int) -> "Transition":
        """The transition over `repeats` steps for each of these: its first has a_t, R_t and the
        shear, the others leave keys as they are. Delta_t is the same at all."""
        if repeats == 1:
            return self

        def first(x: Tensor | None, rest: float) -> Tensor | None:
            if x is None:
                return None
            dim = x.ndim - 1  # steps lie before the channels
            others = x.new_full((), rest).expand(*x.shape[:dim], repeats - 1, x.shape[-1])
            return torch.cat([x.unsqueeze(dim), others], dim=dim).flatten(dim - 1, dim)

        shear, step_size = self.shear, self.step_size
        if shear is not None:
            shear = F.pad(shear.unsqueeze(-1), (0, repeats - 1)).flatten(-2)
        if step_size is not None:
            step_size = step_size.repeat_interleave(repeats, dim=-1)
        return replace(
            self,
            log_decay=first(self.log_decay, 0.0),
            factor=first(self.factor, 1.0),
            angle=first(self.angle, 0.0),
            shear=shear,
            step_size=step_size,
        )


def rotated(
    x: Float[Tensor, "*b t n"], angle: Float[Tensor, "*#b #t p"]
) -> Float[Tensor, "*b t n"]:
    """Turn channels p and p + n/2 by `angle` p."""
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    one, two = x.chunk(2, dim=-1)
    return torch.cat([cos * one - sin * two, sin * one + cos * two], dim=-1)


def _shearing(shear: Float[Tensor, "*b t"]) -> Float[Tensor, "*b t 2 2"]:
    one, zero = torch.ones_like(shear), torch.zeros_like(shear)
    return torch.stack([torch.stack([one, shear], -1), torch.stack([zero, one], -1)], -2)


def _products(
    x: Float[Tensor, "b h t m"], degree: int, join: Callable[[Tensor, Tensor], Tensor]
) -> Float[Tensor, "b h t r"]:
    """Of all tuples of `degree` channels, their numbers joined."""
    result = x
    for _ in range(degree - 1):
        outer = join(result.unsqueeze(-1), x.unsqueeze(-2))
        result = rearrange(outer, "b h t m n -> b h t (m n)")
    return result
