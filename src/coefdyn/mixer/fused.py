"""Layers around the sequence model: compiled loops on a CPU, torch's own operators elsewhere."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from coefdyn.mixer.compiled.kernels import fits, run, view
from coefdyn.mixer.forms.folding import member_by_member, over_members

PARTS = 16  # as in compiled/layers.py


class RMSNorm(nn.RMSNorm):
    """y = w x / sqrt(mean(x^2) + eps)."""

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        assert self.eps is not None
        if not fits(x, self.weight):
            return super().forward(x)
        return _Norm.apply(x, self.weight, self.eps)  # type: ignore[no-untyped-call]


def unit(x: Float[Tensor, "b h t n"], eps: float = 1e-6) -> Float[Tensor, "b h t n"]:
    """x / max(|x|, eps)."""
    if not fits(x):
        return F.normalize(x, dim=-1, eps=eps)
    return _Unit.apply(x, eps)  # type: ignore[no-untyped-call]


def scaled(x: Float[Tensor, "b h t n"], s: Float[Tensor, "#b #h #t"]) -> Float[Tensor, "b h t n"]:
    """s x, with one number s per row."""
    if not (fits(x, s) and s.requires_grad):
        return x * s.unsqueeze(-1)
    return _Scaled.apply(x, s.expand(x.shape[:3]))  # type: ignore[no-untyped-call]


def divided(x: Float[Tensor, "b h t n"], s: Float[Tensor, "#b #h #t"]) -> Float[Tensor, "b h t n"]:
    """x / s, with one number s per row."""
    if not (fits(x, s) and s.requires_grad):
        return x / s.unsqueeze(-1)
    return _Divided.apply(x, s.expand(x.shape[:3]))  # type: ignore[no-untyped-call]


def gated(a: Float[Tensor, "*b m"], b: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m"]:
    """SiLU(a) b."""
    if not fits(a, b):
        return F.silu(a) * b
    return _Gated.apply(a, b)  # type: ignore[no-untyped-call]


def gated_halves(x: Float[Tensor, "*b two_m"]) -> Float[Tensor, "*b m"]:
    """SiLU(a) b, where a and b are the halves of x."""
    if not fits(x):
        a, b = x.chunk(2, dim=-1)
        return F.silu(a) * b
    return _GatedHalves.apply(x)  # type: ignore[no-untyped-call]


def short_convolution(
    x: Float[Tensor, "b t c"], kernel: Float[Tensor, "c w"]
) -> Float[Tensor, "b t c"]:
    """SiLU(sum_s kernel_s x_{t-w+1+s}), each channel on its own; x is zero before its start."""
    width = kernel.shape[1]
    if not fits(x, kernel):
        extended = F.pad(x.mT, (width - 1, 0))
        return F.silu(F.conv1d(extended, kernel.unsqueeze(1), groups=kernel.shape[0]).mT)
    return _ShortConvolution.apply(x, kernel.mT.contiguous())  # type: ignore[no-untyped-call]


def running_units(
    log_b: Float[Tensor, "b h t"], log_a: Float[Tensor, "b h t"]
) -> tuple[Float[Tensor, "b h t"], Float[Tensor, "b h t"]]:
    """m_t = max(m_{t-1} + log a_t, log b_t), m_0 = log b_0, and m_{t-1} - m_t; compiled only."""
    return _Units.apply(log_b, log_a)  # type: ignore[no-untyped-call]


@over_members
class _Units(torch.autograd.Function):
    @staticmethod
    def forward(log_b: Tensor, log_a: Tensor) -> tuple[Tensor, Tensor]:
        unit, shift = (log_b.new_empty(log_b.shape, dtype=torch.float64) for _ in range(2))
        run("growth", log_b.dtype, len(log_b), log_b, log_a, unit, shift)
        return unit, shift

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Tensor) -> tuple[None, None]:
        return None, None


@member_by_member
class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = _packed(x)
        y, rows = torch.empty_like(x), _rows(x)
        run("norm", x.dtype, len(rows), rows, weight, eps, _rows(y))
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, ctx.eps = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        x, grad = _packed(x), _packed(grad)
        dx, dw = torch.empty_like(x), weight.new_zeros(PARTS, len(weight))
        rows = _rows(x), weight, ctx.eps, _rows(grad), _rows(dx), dw
        run("norm_back", x.dtype, PARTS, *rows)
        return dx, dw.sum(0), None


@member_by_member
class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, eps: float) -> Tensor:
        y = torch.empty_like(x)
        run("unit", x.dtype, len(x), x, eps, y)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.eps = inputs
        ctx.save_for_backward(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        run("unit_back", x.dtype, len(x), x, ctx.eps, grad, dx)
        return dx, None


@member_by_member
class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, s: Tensor) -> Tensor:
        y = torch.empty_like(x)
        run("scaled", x.dtype, len(x), x, s, y)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, s = ctx.saved_tensors
        dx, ds = torch.empty_like(x), s.new_empty(s.shape)
        run("scaled_back", x.dtype, len(x), x, s, grad, dx, ds)
        return dx, ds


@member_by_member
class _Divided(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, s: Tensor) -> Tensor:
        y = torch.empty_like(x)
        run("divided", x.dtype, len(x), x, s, y)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output, inputs[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        y, s = ctx.saved_tensors
        dx, ds = torch.empty_like(y), s.new_empty(s.shape)
        run("divided_back", y.dtype, len(y), y, s, grad, dx, ds)
        return dx, ds


@member_by_member
class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        a, b = _packed(a), _packed(b)
        y, rows = torch.empty_like(a), _rows(a)
        run("gated", a.dtype, len(rows), rows, _rows(b), 0, _rows(y))
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b, grad = (_packed(x) for x in (*ctx.saved_tensors, grad))
        da, db = torch.empty_like(a), torch.empty_like(b)
        rows = [_rows(x) for x in (grad, da, db)]
        run("gated_back", a.dtype, len(rows[0]), _rows(a), _rows(b), 0, *rows)
        return da, db


@member_by_member
class _GatedHalves(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        x, m = _packed(x), x.shape[-1] // 2
        y, rows = x.new_empty(*x.shape[:-1], m), _rows(x)
        run("gated", x.dtype, len(rows), rows, rows, m, _rows(y))
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, grad = _packed(*ctx.saved_tensors), _packed(grad)
        dx, rows = torch.empty_like(x), _rows(x)
        arrays = rows, rows, x.shape[-1] // 2, _rows(grad), _rows(dx), _rows(dx)
        run("gated_back", x.dtype, len(rows), *arrays)
        return dx


@member_by_member
class _ShortConvolution(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, kernel: Tensor) -> Tensor:
        x = _packed(x)
        y = torch.empty_like(x)
        run("conv", x.dtype, len(x), x, kernel, y)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, kernel, grad = (_packed(x) for x in (*ctx.saved_tensors, grad))
        dx, d_kernel = torch.empty_like(x), kernel.new_zeros(PARTS, *kernel.shape)
        run("conv_back", x.dtype, PARTS, x, kernel, grad, dx, d_kernel)
        return dx, d_kernel.sum(0)


def _packed(x: Tensor) -> Tensor:
    return x if x.is_contiguous() else x.contiguous()


def _rows(x: Tensor) -> np.ndarray:
    """The rows of x as a numpy view, which costs no call of a torch operator."""
    return view(x).reshape(-1, x.shape[-1])
