"""The compiled kernels as operations of torch, with their gradients."""

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.autograd.function import once_differentiable

from coefdyn.mixer.compiled.kernels import DTYPES, run
from coefdyn.mixer.compiled.known import codes, features
from coefdyn.mixer.forms.folding import over_members
from coefdyn.mixer.slots.normalization import ZERO_ROW
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.transition import Transition

# Numbers that a backward pass holds at once of the states it computes again: they stay in cache.
SEGMENT_NUMBERS = 2**17
TILE = 8  # steps: `ROWS` of compiled/rows.py


class Sums(IntEnum):
    """What becomes of each row's sum of alpha."""

    ALONE = 0  # nothing: it is not asked for
    BESIDE = 1  # it is one more channel of y
    DIVIDED = 2  # y is divided by it; a row that sums to (nearly) 0 gives 0


class Paired(NamedTuple):
    """Sums over pairs; each row's largest score, where it was taken off; alpha, if asked for."""

    y: Float[Tensor, "b h t m"]
    unit: Float[Tensor, "b h t"] | None
    alpha: Float[Tensor, "b h t t"] | None


def scan_form(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"],
    transition: Transition,
    sums: Sums,
    scale: float = 1.0,
) -> Float[Tensor, "b h t m"]:
    """sum_{j <= i} scale (q_i . h_ij) v_j."""
    y, _ = Scan.apply(  # type: ignore[no-untyped-call]
        q, k, v, *_parts(transition), transition.early, sums, scale
    )
    return y


def pairs_form(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"],
    transition: Transition,
    readout: Readout,
    sums: Sums,
    shift: bool,
    keep_alpha: bool = False,
    scale: float = 1.0,
    added: Float64[Tensor, "b h t"] | None = None,
) -> Paired:
    """sum_{j <= i} phi(scale q_i . h_ij + added_i - added_j) v_j, or with a feature map psi of
    `readout` sum_{j <= i} (psi(q_i) . psi(h_ij)) v_j. With `shift`, each row's largest score is
    taken off before phi, and returned. Coefficients carry no gradient."""
    psi = readout.feature_map
    q = q if psi is None else features(psi, q)
    y, unit, _, alpha = Pairs.apply(  # type: ignore[no-untyped-call]
        q, k, v, *_parts(transition), _rounded(added, q.dtype), transition.early, readout, sums,
        shift, keep_alpha, scale,
    )  # fmt: skip
    return Paired(y, unit if shift else None, alpha if keep_alpha else None)


def _parts(transition: Transition) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """a, w and u of A_t = (I - u w^T) diag(a)."""
    return transition.decay, transition.direction, transition.erased


def _rounded(
    added: Float64[Tensor, "b h t"] | None, dtype: torch.dtype
) -> Float[Tensor, "b h t 2"] | None:
    """What is added to scores, and what of it is lost by rounding. It is a long sum, of which
    differences matter."""
    if added is None:
        return None
    main = added.to(dtype)
    return torch.stack([main, (added - main).detach().to(dtype)], dim=-1)


def _segment(length: int, numbers_per_step: int) -> int:
    """Steps whose states are held at once: what fits the cache, and no less than makes the number
    of segments, whose starts are held too, as large as that. Whole tiles."""
    steps = min(length, max(SEGMENT_NUMBERS // numbers_per_step, math.isqrt(length), 1))
    return -(-steps // TILE) * TILE


def _least(like: Tensor) -> float:
    return ZERO_ROW * torch.finfo(like.dtype).tiny


@over_members
class Scan(torch.autograd.Function):
    """compiled/scan.py: y, and each row's sum where y is divided by it."""

    @staticmethod
    def forward(
        q: Float[Tensor, "b h t n"],
        k: Float[Tensor, "b h t n"],
        v: Float[Tensor, "b h t p"],
        a: Float[Tensor, "b h t m"] | None,
        w: Float[Tensor, "b h t n"] | None,
        u: Float[Tensor, "b h t n"] | None,
        early: bool,
        sums: Sums,
        scale: float,
    ) -> tuple[Float[Tensor, "b h t r"], Float[Tensor, "b h s"]]:
        y = _empty(q, v.shape[-1] + (sums == Sums.BESIDE))
        total = q.new_empty(*q.shape[:2], q.shape[2] if sums == Sums.DIVIDED else 0)
        run(
            "scan", q.dtype, q.shape[0] * q.shape[1],
            *_present(q, k, v, a, w, u), early, int(sums), _least(q), scale, y, total,
        )  # fmt: skip
        return y, total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.early, ctx.sums, ctx.scale = inputs
        y, total = output
        ctx.mark_non_differentiable(total)
        ctx.save_for_backward(*tensors, y if ctx.sums == Sums.DIVIDED else None, total)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, y, total = ctx.saved_tensors
        q, _, v = tensors[:3]
        segment = _segment(q.shape[2], q.shape[-1] * (v.shape[-1] + 1))
        gradients = _like(tensors)
        run(
            "scan_back", q.dtype, q.shape[0] * q.shape[1],
            *_present(*tensors), ctx.early, int(ctx.sums), _least(q), ctx.scale, total,
            grad if y is None else y, segment, grad, *_present(*gradients),
        )  # fmt: skip
        return *gradients, None, None, None


@over_members
class Pairs(torch.autograd.Function):
    """compiled/pairs.py: y, units of rows, their sums where y is divided by them, alpha."""

    @staticmethod
    def forward(
        q: Float[Tensor, "b h t n"],
        k: Float[Tensor, "b h t n"],
        v: Float[Tensor, "b h t p"],
        a: Float[Tensor, "b h t m"] | None,
        w: Float[Tensor, "b h t n"] | None,
        u: Float[Tensor, "b h t n"] | None,
        g: Float[Tensor, "b h t 2"] | None,
        early: bool,
        readout: Readout,
        sums: Sums,
        shift: bool,
        keep_alpha: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        length = q.shape[2]
        y = _empty(q, v.shape[-1] + (sums == Sums.BESIDE))
        unit, total = (
            q.new_empty(*q.shape[:2], length if wanted else 0)
            for wanted in (shift, sums == Sums.DIVIDED)
        )
        alpha = q.new_empty(*q.shape[:3], length if keep_alpha else 0)
        run(
            "pairs", q.dtype, q.shape[0] * q.shape[1],
            *_present(q, k, v, a, w, u, g), early, *codes(readout, q), int(sums), _least(q), shift,
            scale, y, unit, total, alpha,
        )  # fmt: skip
        return y, unit, total, alpha

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.early, ctx.readout, ctx.sums, ctx.shift, _, ctx.scale = inputs
        y, *others = output
        ctx.mark_non_differentiable(*others)
        ctx.save_for_backward(*tensors, y if ctx.sums == Sums.DIVIDED else None, *others[:2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, y, unit, total = ctx.saved_tensors
        q = tensors[0]
        segment = _segment(q.shape[2], q.shape[-1] * q.shape[2])
        gradients = _like(tensors)
        run(
            "pairs_back", q.dtype, q.shape[0] * q.shape[1],
            *_present(*tensors), ctx.early, *codes(ctx.readout, q), int(ctx.sums), _least(q),
            ctx.shift, ctx.scale, unit, total, grad if y is None else y, segment, grad,
            *_present(*gradients),
        )  # fmt: skip
        return *gradients, None, None, None, None, None, None


def _empty(like: Float[Tensor, "b h t n"], width: int) -> Float[Tensor, "b h t w"]:
    """With the channels of all heads side by side in memory, as the layers around have them."""
    batch, heads, length, _ = like.shape
    return like.new_empty(batch, length, heads, width).transpose(1, 2)


def _like(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [None if x is None else _empty(x, x.shape[-1]) for x in tensors]


def _present(*tensors: Tensor | None) -> list[Tensor | np.ndarray]:
    """What is absent has no channels."""
    first = tensors[0]
    assert first is not None
    absent = np.empty((*first.shape[:3], 0), DTYPES[first.dtype])
    return [absent if x is None else x for x in tensors]
