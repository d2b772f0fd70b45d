"""Whether a kernel computes what the quadratic form computes, on this machine."""

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from coefdyn.mixer.backends.adapter import Adapter
from coefdyn.mixer.design import Design
from coefdyn.mixer.stream import Projected

log = logging.getLogger(__name__)

STEPS = 128
ERROR = 0.05  # allowed, relative to the size of y and of the gradient: bfloat16 has 8 bits


def agrees(
    adapter: Adapter,
    design: Design,
    projected: Callable[[Tensor], Projected],
    like: Tensor,
    half: torch.dtype | None,
) -> bool:
    """Whether output and gradient are those of the quadratic form on random x. `like` is a weight
    of shape (channels, d_model) on the device in question."""
    generator = torch.Generator().manual_seed(0)  # leaves the run's random numbers alone
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast(like.device.type, enabled=False),
        ):
            x = torch.randn(1, STEPS, like.shape[-1], generator=generator).to(like).requires_grad_()
            expected = design.quadratic(projected(x))
            weight = torch.randn(*expected.shape, generator=generator).to(like)
            output = adapter(design, projected(x), half)
            pairs = [(output, expected)]
            pairs += zip(
                *(torch.autograd.grad(y, x, weight) for y in (output, expected)), strict=True
            )
        errors = [((a - b).norm() / b.norm()).item() for a, b in pairs]
    except Exception as error:  # whatever it is, auto goes on without the kernel
        message = " ".join(str(error).split())[:200]
        log.warning("backend=auto: %s is not used because it fails here: %s", adapter.name, message)
        return False
    if all(error <= ERROR for error in errors):  # and none is NaN
        return True
    log.warning("backend=auto: %s is not used because it is off by %s here", adapter.name, errors)
    return False
