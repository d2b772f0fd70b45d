"""Which backends can compute a design, and which of the kernels pay."""

import torch

from coefdyn.mixer.backends import ADAPTERS
from coefdyn.mixer.compiled.known import obstacle as compiled_obstacle
from coefdyn.mixer.design import Design
from coefdyn.mixer.forms.choice import FORMS

# The kernels that backend=auto tries, in this order.
AUTO_ADAPTERS = ("sdpa", "flex_attention", "fla")
# Width of a head from which sdpa beats the compiled loops on a CPU. At width 8 it takes 1.1 to 4
# times as long, from 16 to 64 mostly 0.5 to 0.9 of their time (lengths from 32 to 1024).
WIDE = 16


def check_backend(name: str, design: Design) -> None:
    """Raise ValueError, one sentence, if the backend cannot compute the design or is not here."""
    choices = ("auto", *FORMS, *ADAPTERS)
    if name not in choices:
        raise ValueError(f"model.backend={name} is not known; choose from {', '.join(choices)}")
    if design.evolution.dense and name not in ("auto", "definition"):
        raise ValueError(
            f"model.backend={name} cannot serve this design: its A_t is given as a matrix; "
            "use auto or definition"
        )
    obstacle = None
    if name == "linear":
        obstacle = design.recurrence_obstacle
    elif name == "compiled":
        obstacle = compiled_obstacle(design.readout, design.evolution)
    elif name in ADAPTERS:
        obstacle = ADAPTERS[name].obstacle(design)
    if obstacle is not None:
        raise ValueError(
            f"model.backend={name} cannot serve this design: {obstacle}; use auto or quadratic"
        )
    if name in ADAPTERS and ADAPTERS[name].absence is not None:
        raise ValueError(
            f"model.backend={name} cannot be used on this machine: {ADAPTERS[name].absence}; "
            "use auto"
        )


def candidates(
    design: Design, widths: tuple[int, int], device: torch.device, half: torch.dtype | None
) -> list[str]:
    """The kernels that auto may take, best first. A package is imported only if it may be.

    `widths`: of a head's keys and values.
    """
    return [
        name
        for name in AUTO_ADAPTERS
        if ADAPTERS[name].obstacle(design) is None
        and ADAPTERS[name].misfit(design, max(widths), device, half) is None
        and _pays(name, design, widths[0], device, half)
        and ADAPTERS[name].absence is None
    ]


def _pays(
    name: str, design: Design, width: int, device: torch.device, half: torch.dtype | None
) -> bool:
    """Whether a kernel may be faster than our forms, and as exact as the precision asked for.

    fla rounds to TF32 or less even in float32, and row sums to `half`.
    """
    if device.type == "cpu":
        return half is None and width >= WIDE
    return name != "fla" or (half is not None and not design.normalization.uses_row_sum)
