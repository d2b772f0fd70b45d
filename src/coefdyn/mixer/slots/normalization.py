"""eta_i: what the coefficients of a row are divided by."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

# A nonnegative row counts as all zero if its sum is below this many times the smallest normal
# number of its dtype (1e-32 in float32). Gradients divide by the sum and could overflow there.
ZERO_ROW = 2.0**20


@dataclass(frozen=True)
class Rows:
    """What eta may use of the rows of alpha.

    The true sum of a row is `total * e^log_unit`: designs whose coefficients may overflow store
    each row in a unit of its own. eta is expected in the same unit.
    """

    total: Float[Tensor, "b h t"] | None
    log_unit: Float[Tensor, "b h t"] | None
    nonnegative: bool
    start: int  # number of steps before the first row

    def in_unit(self, value: float, like: Tensor) -> Tensor:
        """Express the number `value` in each row's unit, clipped where it would overflow."""
        if self.log_unit is None:
            return torch.full_like(like, value)
        largest = torch.finfo(like.dtype).max * 1e-6
        return (value * torch.exp(-self.log_unit)).clamp(max=largest).to(like.dtype)

    def is_zero(self) -> Bool[Tensor, "b h t"]:
        """Which rows of a nonnegative readout count as all zero."""
        assert self.total is not None
        return self.total < ZERO_ROW * torch.finfo(self.total.dtype).tiny


class Normalization(nn.Module):
    """eta_i from the input x_i and the rows of alpha.

    eta must be positive wherever alpha >= 0. Traits:
    `is_one`: eta = 1;
    `uses_row_sum`: eta depends on sum_j alpha_ij;
    `scale_invariant`: alpha/eta does not change when a row of alpha is scaled;
    `accepts_unit`: eta can be computed in a row's own unit;
    `sums_to_one`: each row of alpha/eta sums to 1, unless it is guarded.
    """

    is_one = False
    uses_row_sum = False
    scale_invariant = False
    accepts_unit = False
    sums_to_one = False

    def forward(self, x: Float[Tensor, "b t d"], rows: Rows) -> Float[Tensor, "#b #h #t"]:
        raise NotImplementedError

    def guarded(self, rows: Rows) -> Bool[Tensor, "b h t"] | None:
        """Rows whose eta is replaced because the formula's is (nearly) zero; None if never."""
        return None


class One(Normalization):
    """eta_i = 1."""

    is_one = True

    def forward(self, x: Float[Tensor, "b t d"], rows: Rows) -> Float[Tensor, "#b #h #t"]:
        return x.new_ones(1, 1, 1)


class RowSum(Normalization):
    """eta_i = sum_j alpha_ij.

    Rule for a sum s near zero: with a nonnegative readout, s = 0 gives y = 0 and no gradient; with
    a signed one, eta = sign(s) max(|s|, eps). With `added` > 0, a nonnegative readout has eta_i =
    sum_j alpha_ij + added instead, which needs no rule.
    """

    neutral: ClassVar = {"added": 0.0}

    uses_row_sum = True
    scale_invariant = True
    accepts_unit = True
    sums_to_one = True

    def __init__(self, eps: float = 1e-6, added: float = 0.0) -> None:
        super().__init__()
        if not eps > 0:
            raise ValueError(f"normalization=row_sum needs eps > 0, not eps={eps}")
        if not added >= 0:
            raise ValueError(f"normalization=row_sum needs added >= 0, not added={added}")
        self.eps, self.added = eps, added
        if added:
            self.scale_invariant = self.sums_to_one = False

    def forward(self, x: Float[Tensor, "b t d"], rows: Rows) -> Float[Tensor, "#b #h #t"]:
        total = rows.total
        assert total is not None, "the mixer checks uses_row_sum"
        if rows.nonnegative and self.added:
            return total + rows.in_unit(self.added, total)
        if rows.nonnegative:
            # An infinite eta makes the row's weights, and all gradients through it, zero.
            return total.masked_fill(rows.is_zero(), math.inf)
        floor = rows.in_unit(self.eps, total)
        return torch.where(total.abs() < floor, torch.where(total < 0, -floor, floor), total)

    def guarded(self, rows: Rows) -> Bool[Tensor, "b h t"] | None:
        assert rows.total is not None
        if rows.nonnegative:
            return None if self.added else rows.is_zero()
        return rows.total.abs() < rows.in_unit(self.eps, rows.total)


class Power(Normalization):
    """eta_i = c^i, i = 1, 2, ..."""

    def __init__(self, c: float) -> None:
        super().__init__()
        if not 0 < c < math.inf:
            raise ValueError(f"normalization=power needs a finite c > 0, not c={c}")
        self.log_c = math.log(c)

    def forward(self, x: Float[Tensor, "b t d"], rows: Rows) -> Float[Tensor, "#b #h #t"]:
        steps = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=torch.float64) + rows.start
        return torch.exp(self.log_c * steps).to(x.dtype).view(1, 1, -1)


class ExpLinear(Normalization):
    """eta_i = exp(W_eta x_i), one per head. Normalized attention, Sieber et al. 2024."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.log_eta = nn.Linear(d_model, n_heads, bias=False)

    def forward(self, x: Float[Tensor, "b t d"], rows: Rows) -> Float[Tensor, "#b #h #t"]:
        return rearrange(self.log_eta(x).exp(), "b t h -> b h t")


class Mlstm(Normalization):
    """eta_i = max(|sum_j alpha_ij|, 1)/o_i, o_i = sigmoid(W_o x_i + bias), one per head."""

    uses_row_sum = True
    accepts_unit = True

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.output_gate = nn.Linear(d_model, n_heads)

    def forward(self, x: Float[Tensor, "b t d"], rows: Rows) -> Float[Tensor, "#b #h #t"]:
        total = rows.total
        assert total is not None, "the mixer checks uses_row_sum"
        gate = rearrange(self.output_gate(x).sigmoid(), "b t h -> b h t")
        return torch.maximum(total.abs(), rows.in_unit(1.0, total)) / gate
