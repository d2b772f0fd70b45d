"""A_t as data: what an evolution computes from the input, and every form consumes."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.compiled.kernels import fits
from coefdyn.mixer.fused import running_units


@dataclass(frozen=True)
class Transition:
    """A_t = (I - beta_t w_t w_t^T) diag(a_t) with a_t > 0 and |w_t| = 1.

    `log_decay` is log a_t: absent (a = 1), one number per head (m = 1), or one per channel
    (m = n). A decay per channel never exceeds 1; a decay per head may. `step_size` is Delta_t if
    A_t has one. Leading axes are batch and head, or both in one. `matrix` is an A_t of any other
    kind, written out; the other parts are then absent, and only `definition.py` can use it.
    """

    log_decay: Float[Tensor, "*b t m"] | None = None
    direction: Float[Tensor, "*b t n"] | None = None
    strength: Float[Tensor, "*b t"] | None = None
    step_size: Float[Tensor, "*b t"] | None = None
    matrix: Float[Tensor, "*b t n n"] | None = None

    @property
    def is_identity(self) -> bool:
        return self.log_decay is None and self.direction is None

    @property
    def per_channel(self) -> bool:
        return self.log_decay is not None and self.log_decay.shape[-1] > 1

    def matrices(self, like: Float[Tensor, "b h t n"]) -> Float[Tensor, "b h t n n"]:
        """A_t written out as n x n matrices, for `definition.py`; `like` are the keys."""
        if self.matrix is not None:
            return self.matrix.to(like)
        n = like.shape[-1]
        A = torch.eye(n, dtype=like.dtype, device=like.device).expand(*like.shape, n)
        w = self.direction
        if w is not None and self.strength is not None:
            A = A - self.strength[..., None, None] * w.unsqueeze(-1) * w.unsqueeze(-2)
        return A if self.log_decay is None else A * self.log_decay.exp().unsqueeze(-2)

    def map(self, function: Callable[[Tensor], Tensor]) -> "Transition":
        """Apply `function` to every part that is present."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return Transition(**{name: x if x is None else function(x) for name, x in parts.items()})

    def power(self, degree: int) -> "Transition":
        """The decay of degree-fold products of channels: h (x) h decays by a (x) a."""
        if degree == 0 or self.log_decay is None:
            return Transition()
        if not self.per_channel:
            return Transition(log_decay=degree * self.log_decay)
        log_decay = self.log_decay
        for _ in range(degree - 1):
            outer = log_decay.unsqueeze(-1) + self.log_decay.unsqueeze(-2)
            log_decay = rearrange(outer, "b h t m n -> b h t (m n)")
        return Transition(log_decay=log_decay)

    def growth(
        self, log_scaling: Float[Tensor, "b h t"], previous: Float[Tensor, "b h 1"] | None = None
    ) -> tuple[Float[Tensor, "b h t"], Float[Tensor, "b h t"]]:
        """m_t = max(m_{t-1} + log a_t, log b_t), and m_{t-1} - m_t.

        m_t bounds log h_{t,j} for all j. It only chooses units and does not change the function
        computed, so it has no gradient. It is float64, because it can be large while its
        differences matter.
        """
        with torch.no_grad():
            if previous is None and self.log_decay is not None and fits(log_scaling):
                return running_units(log_scaling, self.log_decay.amax(-1))
            rate = torch.zeros_like(log_scaling, dtype=torch.float64)
            if self.log_decay is not None:
                rate = rate + self.log_decay.amax(-1)
            total = rate.cumsum(-1)
            peak = log_scaling - total
            if previous is not None:
                peak = torch.maximum(peak, previous.to(peak))
            unit = total + peak.cummax(-1).values
            first = unit[..., :1] - rate[..., :1] if previous is None else previous.to(unit)
            return unit, torch.cat([first, unit[..., :-1]], dim=-1) - unit

    def rescaled(self, shift: Float[Tensor, "b h t"]) -> "Transition":
        """The transition of e^(-m_t) h_t: log a_t + m_{t-1} - m_t."""
        log_decay = shift.unsqueeze(-1)
        if self.log_decay is not None:
            log_decay = self.log_decay + log_decay
        return replace(self, log_decay=log_decay)
