"""Which readouts the compiled loops know, and these on their own."""

import logging
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from coefdyn.mixer.compiled.kernels import DTYPES, absence, fits, run, view
from coefdyn.mixer.forms.folding import over_members
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.readout import Readout

log = logging.getLogger(__name__)

# How far a compiled readout and its derivative may lie from torch's, in float32.
AGREES = 1e-5


def obstacle(readout: Readout, evolution: Evolution | None = None) -> str | None:
    """Why the loops cannot compute them, or None if they can; without compiling anything."""
    named = readout.feature_map or readout
    if absence() is None and named.compiled is None:
        return f"there is no compiled loop for the readout {type(named).__name__}"
    if readout.feature_map is not None and evolution is not None and evolution.has_angle:
        return "the loops turn queries and keys, and its readout takes features of turned keys"
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
    """phi(s) and its derivative by the loop, in float32, against torch in double precision."""
    with torch.inference_mode(False), torch.enable_grad():
        s = torch.linspace(-12, 12, 193).view(-1, 1, 1, 1)
        exact = s.double().requires_grad_()
        alpha = readout(exact)
        (slope,) = torch.autograd.grad(alpha.sum(), exact, materialize_grads=True)
        ours = Features.apply(s, readout)  # type: ignore[no-untyped-call]
    away = s.abs() > 0.01  # a kink at zero has two derivatives
    return all(
        torch.allclose(x[away].double(), y[away], rtol=AGREES, atol=AGREES)
        for x, y in zip(ours, (alpha, slope), strict=True)
    )


def features(psi: Readout, x: Float[Tensor, "b h t n"]) -> Float[Tensor, "b h t n"]:
    """psi(x), where the loops know psi; else as torch computes it."""
    if not fits(x) or obstacle(psi) is not None or not agrees(psi):
        return psi(x)
    y, _ = Features.apply(x, psi)  # type: ignore[no-untyped-call]
    return y


@over_members
class Features(torch.autograd.Function):
    """psi(x) and psi'(x), channels of all heads side by side."""

    @staticmethod
    def forward(x: Float[Tensor, "b h t n"], psi: Readout) -> tuple[Tensor, Tensor]:
        packed = x.transpose(1, 2).contiguous()
        y, slope = torch.empty_like(packed), torch.empty_like(packed)
        wide = x.shape[1] * x.shape[3]
        rows = [view(part).reshape(-1, wide) for part in (packed, y, slope)]
        code, _, polynomial = codes(psi, x)
        run("features", x.dtype, len(rows[0]), rows[0], code, polynomial, *rows[1:])
        return y.transpose(1, 2), slope.transpose(1, 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return grad * slope, None


def codes(readout: Readout, like: Tensor) -> tuple[int, int, Any]:
    """phi, psi and the coefficients of a polynomial, as the kernel takes them."""
    from coefdyn.mixer.compiled import readouts

    psi = readout.feature_map
    named = readout if psi is None else psi
    assert named.compiled is not None
    code = readouts.CODES[named.compiled]
    polynomial = np.array(named.polynomial or (0.0, 1.0), DTYPES[like.dtype])
    return (
        (code, readouts.NONE, polynomial) if psi is None else (readouts.IDENTITY, code, polynomial)
    )
