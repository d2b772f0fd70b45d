"""The decayed dot product: the one primitive under every structure of A_t.

D(x, y)_ij = sum_r x_ir y_jr a_{j+1,r} ... a_{i,r} for j <= i. A decay within chunks of steps knows
D, and the products from a chunk's start and to its end.
"""

from collections.abc import Sequence
from copy import copy
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

from coefdyn.mixer.forms.folding import over_members
from coefdyn.mixer.forms.sizes import sizes_on


class Decay:
    """The a_t of chunks; here a_t = 1. What is None is 1."""

    from_start: Float[Tensor, "*b s m"] | None = None  # a_1 ... a_t
    to_end: Float[Tensor, "*b s m"] | None = None  # a_{t+1} ... a_s

    def dot(
        self, x: Float[Tensor, "*b s n"], y: Float[Tensor, "*b s n"]
    ) -> Float[Tensor, "*b s s"]:
        return decayed_dot(x, y, None)

    def dots(
        self, xs: Sequence[Float[Tensor, "*b s n"]], ys: Sequence[Float[Tensor, "*b s n"]]
    ) -> list[Float[Tensor, "*b s s"]]:
        """`dot` of every x with every y, at once: x_0 y_0, x_0 y_1, ..., x_1 y_0, ..."""
        x, y = (torch.stack(side, -3) for side in zip(*product(xs, ys), strict=True))
        return list(self.for_each(x.shape[-3]).dot(x, y).unbind(-3))

    def for_each(self, count: int) -> "Decay":
        """The same a_t for `count` dot products, which have an axis before their steps."""
        return self


class LogDecay(Decay):
    """a_t > 0, by sums of logarithms from each chunk's start.

    The sums are float64: a long sum would cost float32 its last digits.
    """

    def __init__(self, log_decay: Float[Tensor, "*b s m"], dtype: torch.dtype) -> None:
        self.c = log_decay.double().cumsum(-2)
        self.from_start = torch.exp(self.c.to(dtype))
        self.to_end = torch.exp((self.c[..., -1:, :] - self.c).to(dtype))

    def for_each(self, count: int) -> Decay:
        several = copy(self)
        several.c = _repeated(self.c, -3, count)
        return several

    def dot(
        self, x: Float[Tensor, "*b s n"], y: Float[Tensor, "*b s n"]
    ) -> Float[Tensor, "*b s s"]:
        return decayed_dot(x, y, self.c)


class FactorDecay(Decay):
    """a_t of any sign, by products: a logarithm has no derivative at a_t = 0."""

    def __init__(self, factor: Float[Tensor, "*b s m"]) -> None:
        steps = torch.arange(factor.shape[-2], device=factor.device)
        later = (steps.unsqueeze(-1) > steps).unsqueeze(-1)
        # [t, j]: a_t where t > j, else 1; their products over t count from step j + 1.
        self.between = torch.where(later, factor.unsqueeze(-2), 1.0).cumprod(-3)
        self.from_start = factor.cumprod(-2)
        self.to_end = self.between[..., -1, :, :]

    def for_each(self, count: int) -> Decay:
        several = copy(self)
        several.between = _repeated(self.between, -4, count)
        return several

    def dot(
        self, x: Float[Tensor, "*b s n"], y: Float[Tensor, "*b s n"]
    ) -> Float[Tensor, "*b s s"]:
        if self.between.shape[-1] == 1:
            return ((x @ y.mT) * self.between.squeeze(-1)).tril()
        return (x.unsqueeze(-2) * y.unsqueeze(-3) * self.between).sum(-1).tril()


def _repeated(x: Tensor, dim: int, count: int) -> Tensor:
    x = x.unsqueeze(dim)
    return x.expand(*x.shape[:dim], count, *x.shape[dim + 1 :])


def following(x: Float[Tensor, "*b s n"]) -> Float[Tensor, "*b s n"]:
    """x_{i+1} at step i. What reads at step i + 1 before the decay reads what is there after the
    decay of step i: `a_step_later` puts its dot products in their place."""
    return F.pad(x[..., 1:, :], (0, 0, 0, 1))


def a_step_later(dot: Float[Tensor, "*b s s"]) -> Float[Tensor, "*b s s"]:
    return F.pad(dot[..., :-1, :], (0, 0, 1, 0))


def decayed_dot(
    x: Float[Tensor, "*b s n"], y: Float[Tensor, "*b s n"], c: Float64[Tensor, "*b s m"] | None
) -> Float[Tensor, "*b s s"]:
    """D_ij = sum_r x_ir y_jr exp(c_ir - c_jr) for j <= i, and 0 above the diagonal.

    c is the running sum of log a_t: absent, per head (m = 1) or per channel (m = n). It is float64
    whatever x and y are: differences of a float32 sum would lose the last digits.
    """
    if c is None:
        return (x @ y.mT).tril()
    if c.shape[-1] == 1:
        product, _ = HeadDecayedDot.apply(x, y, c)  # type: ignore[no-untyped-call]
        return product
    size = x.shape[-2]
    if size <= sizes_on(x.device).direct:
        difference = (c.unsqueeze(-2) - c.unsqueeze(-3)).to(x.dtype)
        decay = torch.exp(difference + _hide_above(x).unsqueeze(-1))
        return (x.unsqueeze(-2) * y.unsqueeze(-3) * decay).sum(-1)
    return _split(x, y, c, size // 2)


@over_members
class HeadDecayedDot(torch.autograd.Function):
    """D and exp(c_i - c_j) where c is one number per head."""

    @staticmethod
    def forward(
        x: Float[Tensor, "*b s n"], y: Float[Tensor, "*b s n"], c: Float64[Tensor, "*b s 1"]
    ) -> tuple[Float[Tensor, "*b s s"], Float[Tensor, "*b s s"]]:
        # The digits of c beyond the precision of x go into x and y: cheaper than float64.
        main, rest = _parts(c, x.dtype)
        decay = torch.exp(main - main.mT + _hide_above(x))
        return ((x * rest) @ (y * rest.reciprocal()).mT) * decay, decay

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, c, decay = ctx.saved_tensors
        _, rest = _parts(c, x.dtype)
        grad = grad * decay
        diagonal = grad.diagonal(dim1=-2, dim2=-1).clone().unsqueeze(-1)
        grad.diagonal(dim1=-2, dim2=-1).zero_()
        undo = rest.reciprocal()
        d_x = (grad @ (y * undo)) * rest
        d_y = (grad.mT @ (x * rest)) * undo
        # D depends on c_i as on the length of x_i, and on c_j as on one over the length of y_j.
        # The diagonal does not depend on c, and would cancel here in all but the last digits.
        d_c = (x * d_x - y * d_y).sum(-1, keepdim=True).to(c.dtype)
        return d_x + diagonal * y, d_y + diagonal * x, d_c


def _parts(
    c: Float64[Tensor, "*b s 1"], dtype: torch.dtype
) -> tuple[Float[Tensor, "*b s 1"], Float[Tensor, "*b s 1"]]:
    """u and r with e^c = e^u r: u is c rounded to `dtype`, r the factor near 1 that this loses."""
    main = c.to(dtype)
    return main, torch.exp(c - main).to(dtype)


def _split(
    x: Float[Tensor, "*b s n"], y: Float[Tensor, "*b s n"], c: Float64[Tensor, "*b s n"], half: int
) -> Float[Tensor, "*b s s"]:
    """Two triangles and the square between them, whose decay is split at the middle step.

    Decays only shrink, so both exponents of the square are <= 0.
    """
    (x0, x1), (y0, y1), (c0, c1) = ((z[..., :half, :], z[..., half:, :]) for z in (x, y, c))
    middle = c0[..., -1:, :]
    square = (x1 * torch.exp((c1 - middle).to(x.dtype))) @ (
        y0 * torch.exp((middle - c0).to(y.dtype))
    ).mT
    first = decayed_dot(x0, y0, c0)
    above = square.new_zeros(1).expand(*first.shape[:-1], x1.shape[-2])
    return torch.cat(
        [
            torch.cat([first, above], dim=-1),
            torch.cat([square, decayed_dot(x1, y1, c1)], dim=-1),
        ],
        dim=-2,
    )


def _hide_above(x: Float[Tensor, "*b s n"]) -> Float[Tensor, "s s"]:
    """-inf above the diagonal, to add before exp. The exponents there may overflow, and a mask
    after exp would leave NaN in the gradient."""
    size = x.shape[-2]
    return x.new_full((size, size), -torch.inf).triu(1)
