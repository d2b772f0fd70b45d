"""Layers around the sequence model: compiled loops on a CPU, torch's own operators elsewhere."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.mixer.compiled.kernels import fits, run
from coefdyn.mixer.forms.folding import member_by_member

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


def gated(a: Float[Tensor, "*b m"], b: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m"]:
    """SiLU(a) b."""
    if not fits(a, b):
        return F.silu(a) * b
    return _Gated.apply(a, b)  # type: ignore[no-untyped-call]


def gated_halves(x: Float[Tensor, "*b two_m"]) -> Float[Tensor, "*b m"]:
    """SiLU(a) b, a and b being the halves of x."""
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


@member_by_member
class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        rows, y = _rows(x), torch.empty_like(x)
        run("layers", "norm_forward", x.dtype, len(rows), rows, weight, eps, _rows(y))
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, ctx.eps = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        x, grad = x.contiguous(), grad.contiguous()
        dx, dw = torch.empty_like(x), weight.new_zeros(PARTS, len(weight))
        run(
            "layers", "norm_backward", x.dtype, PARTS,
            _rows(x), weight, ctx.eps, _rows(grad), _rows(dx), dw,
        )  # fmt: skip
        return dx, dw.sum(0), None


@member_by_member
class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, eps: float) -> Tensor:
        y = torch.empty_like(x)
        run("layers", "unit_forward", x.dtype, len(x), x, eps, y)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.eps = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        run("layers", "unit_backward", x.dtype, len(x), x, ctx.eps, grad, dx)
        return dx, None


@member_by_member
class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        a, b = a.contiguous(), b.contiguous()
        rows, y = _rows(a), torch.empty_like(a)
        run("layers", "gated_forward", a.dtype, len(rows), rows, _rows(b), 0, _rows(y))
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b, grad = (x.contiguous() for x in (*ctx.saved_tensors, grad))
        da, db = torch.empty_like(a), torch.empty_like(b)
        rows = [_rows(x) for x in (grad, da, db)]
        run("layers", "gated_backward", a.dtype, len(rows[0]), _rows(a), _rows(b), 0, *rows)
        return da, db


@member_by_member
class _GatedHalves(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        rows, m = _rows(x.contiguous()), x.shape[-1] // 2
        y = x.new_empty(*x.shape[:-1], m)
        run("layers", "gated_forward", x.dtype, len(rows), rows, rows, m, _rows(y))
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        x = x.contiguous()
        dx, rows = torch.empty_like(x), _rows(x)
        halves = (_rows(dx), _rows(dx))
        run(
            "layers", "gated_backward", x.dtype, len(rows),
            rows, rows, x.shape[-1] // 2, _rows(grad.contiguous()), *halves,
        )  # fmt: skip
        return dx


@member_by_member
class _ShortConvolution(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, kernel: Tensor) -> Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        run("layers", "conv_forward", x.dtype, len(x), x, kernel, y)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, kernel, grad = (x.contiguous() for x in (*ctx.saved_tensors, grad))
        dx, d_kernel = torch.empty_like(x), kernel.new_zeros(PARTS, *kernel.shape)
        run("layers", "conv_backward", x.dtype, PARTS, x, kernel, grad, dx, d_kernel)
        return dx, d_kernel.sum(0)


def _rows(x: Tensor) -> Tensor:
    return x.view(-1, x.shape[-1])
