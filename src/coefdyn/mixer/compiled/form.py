"""The compiled kernels as operations of torch, with their gradients."""

import logging
import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.compiled.kernels import absence, follow_threads, kernel
from coefdyn.mixer.forms.folding import over_members
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.transition import Transition

log = logging.getLogger(__name__)

# How far a compiled readout and its derivative may lie from torch's, in float32.
AGREES = 1e-5
# Numbers that a backward pass holds at once of the states it computes again: they stay in cache.
SEGMENT_NUMBERS = 2**17


def obstacle(readout: Readout) -> str | None:
    """Why the loops cannot compute it, or None if they can; without compiling anything."""
    named = readout.feature_map or readout
    if absence() is None and named.compiled is None:
        return f"there is no compiled loop for the readout {type(named).__name__}"
    return absence()


def agrees(readout: Readout) -> bool:
    """Whether the loop that a readout names computes it: the two are edited in different places,
    and a subclass inherits the name."""
    named = readout.feature_map or readout
    key = (type(named), named.polynomial)
    if key not in _AGREED:
        _AGREED[key] = _computes_the_same(named)
        if not _AGREED[key]:
            log.warning("the compiled loop %s is not %s", named.compiled, type(named).__name__)
    return _AGREED[key]


_AGREED: dict[Any, bool] = {}


def _computes_the_same(readout: Readout) -> bool:
    """As sequences of one step: alpha = phi(s) by the kernel, and its derivative, against torch in
    double precision."""
    with torch.inference_mode(False), torch.enable_grad():
        s = torch.linspace(-12, 12, 193).view(-1, 1, 1, 1).requires_grad_()
        exact = s.detach().double().requires_grad_()
        one = torch.ones_like(s)
        loop, _ = pairs_form(s, one, one, Transition(), readout, row_sum=False, shift=False)
        alpha = readout(exact)
        ours = (loop, *torch.autograd.grad(loop, s, one))
        theirs = (alpha, *torch.autograd.grad(alpha, exact, one.double(), materialize_grads=True))
    away = (s.abs() > 0.01).flatten()  # a kink at zero has two derivatives
    return all(
        torch.allclose(x.flatten()[away].double(), y.flatten()[away], rtol=AGREES, atol=AGREES)
        for x, y in zip(ours, theirs, strict=True)
    )


def scan_form(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"],
    transition: Transition,
    row_sum: bool,
) -> Float[Tensor, "b h t m"]:
    """sum_{j <= i} (q_i . h_ij) v_j, and with `row_sum` sum_j q_i . h_ij behind it."""
    return Scan.apply(q, k, v, *_parts(transition), row_sum)  # type: ignore[no-untyped-call]


def pairs_form(
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"],
    transition: Transition,
    readout: Readout,
    row_sum: bool,
    shift: bool,
) -> tuple[Float[Tensor, "b h t m"], Float[Tensor, "b h t"] | None]:
    """sum_{j <= i} phi(q_i . h_ij) v_j, or with a feature map psi of `readout`
    sum_{j <= i} (psi(q_i) . psi(h_ij)) v_j; `row_sum` as above. With `shift`, each row's largest
    score is taken off before phi, and returned."""
    psi = readout.feature_map
    q = q if psi is None else psi(q)
    total, unit = Pairs.apply(  # type: ignore[no-untyped-call]
        q, k, v, *_parts(transition), readout, row_sum, shift
    )
    return total, unit if shift else None


def _parts(transition: Transition) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """a, w and u of A_t = (I - u w^T) diag(a)."""
    log_decay, w, beta = transition.log_decay, transition.direction, transition.strength
    u = None if w is None or beta is None else beta.unsqueeze(-1) * w
    return None if log_decay is None else log_decay.exp(), w, u


def _segment(length: int, numbers_per_step: int) -> int:
    """Steps whose states are held at once: what fits the cache, and no less than makes the number
    of segments, whose starts are held too, as large as that."""
    return min(length, max(SEGMENT_NUMBERS // numbers_per_step, math.isqrt(length), 1))


@over_members
class Scan(torch.autograd.Function):
    """compiled/scan.py."""

    @staticmethod
    def forward(
        q: Float[Tensor, "b h t n"],
        k: Float[Tensor, "b h t n"],
        v: Float[Tensor, "b h t p"],
        a: Float[Tensor, "b h t m"] | None,
        w: Float[Tensor, "b h t n"] | None,
        u: Float[Tensor, "b h t n"] | None,
        row_sum: bool,
    ) -> Float[Tensor, "b h t r"]:
        y = _empty(q, v.shape[-1] + row_sum)
        follow_threads()
        kernel("scan", "forward", q.dtype)(*_arrays(q, k, v, a, w, u), row_sum, y.numpy())
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.row_sum = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        q, _, v = tensors[:3]
        segment = _segment(q.shape[2], q.shape[-1] * (v.shape[-1] + 1))
        gradients = _like(tensors)
        follow_threads()
        kernel("scan", "backward", q.dtype)(
            *_arrays(*tensors), ctx.row_sum, segment, *_arrays(grad, *gradients)
        )
        return *_present(tensors, gradients), None


@over_members
class Pairs(torch.autograd.Function):
    """compiled/pairs.py."""

    @staticmethod
    def forward(
        q: Float[Tensor, "b h t n"],
        k: Float[Tensor, "b h t n"],
        v: Float[Tensor, "b h t p"],
        a: Float[Tensor, "b h t m"] | None,
        w: Float[Tensor, "b h t n"] | None,
        u: Float[Tensor, "b h t n"] | None,
        readout: Readout,
        row_sum: bool,
        shift: bool,
    ) -> tuple[Float[Tensor, "b h t r"], Float[Tensor, "b h s"]]:
        y = _empty(q, v.shape[-1] + row_sum)
        unit = q.new_empty(*q.shape[:2], q.shape[2] if shift else 0)
        follow_threads()
        kernel("pairs", "forward", q.dtype)(
            *_arrays(q, k, v, a, w, u, None), *_codes(readout, q), row_sum, shift,
            *_arrays(y), unit.numpy(),
        )  # fmt: skip
        return y, unit

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.readout, ctx.row_sum, ctx.shift = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, unit = ctx.saved_tensors
        q = tensors[0]
        segment = _segment(q.shape[2], q.shape[-1] * q.shape[2])
        gradients = _like(tensors)
        follow_threads()
        kernel("pairs", "backward", q.dtype)(
            *_arrays(*tensors, None), *_codes(ctx.readout, q), ctx.row_sum, ctx.shift, unit.numpy(),
            segment, *_arrays(grad, *gradients, None),
        )  # fmt: skip
        return *_present(tensors, gradients), None, None, None


def _codes(readout: Readout, like: Tensor) -> tuple[int, int, Any]:
    """phi, psi and the coefficients of a polynomial, as the kernel takes them."""
    from coefdyn.mixer.compiled import pairs

    psi = readout.feature_map
    named = readout if psi is None else psi
    assert named.compiled is not None
    code = pairs.CODES[named.compiled]
    polynomial = like.new_tensor(named.polynomial or (0.0, 1.0)).numpy()
    return (code, pairs.NONE, polynomial) if psi is None else (pairs.IDENTITY, code, polynomial)


def _empty(like: Float[Tensor, "b h t n"], width: int) -> Float[Tensor, "b h t w"]:
    """With the channels of all heads side by side in memory, as the layers around have them."""
    batch, heads, length, _ = like.shape
    return like.new_empty(batch, length, heads, width).transpose(1, 2)


def _like(tensors: Sequence[Tensor | None]) -> list[Tensor]:
    first = tensors[0]
    assert first is not None
    return [_empty(first, 0 if x is None else x.shape[-1]) for x in tensors]


def _present(
    tensors: Sequence[Tensor | None], gradients: list[Tensor]
) -> tuple[Tensor | None, ...]:
    return tuple(None if x is None else d for x, d in zip(tensors, gradients, strict=True))


def _arrays(*tensors: Tensor | None) -> list[Any]:
    """As numpy sees them; what is absent has no channels."""
    first = tensors[0]
    assert first is not None
    shape = first.shape[:3]
    absent = first.new_empty(*shape, 0)
    return [(absent if x is None else x.detach()).numpy() for x in tensors]
