"""What every adapter to a kernel is."""

import importlib
import importlib.util
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.design import Design, Projected, Stream

Sums = tuple[Float[Tensor, "b h t m"], Float[Tensor, "b h t"] | None]


class Kernel:
    """sum_j alpha_ij v_j by a package's own code, for the designs without an `obstacle`.

    `module` is imported when the kernel is first asked for, never before. `needs_cuda`: it runs on
    CUDA devices only. The kernel gets q, k and v in the dtype of autocast where that is on, log
    decays always in full precision.
    """

    name: str
    module: str
    package: str  # what pip installs it as
    needs_cuda = True

    def obstacle(self, design: Design) -> str | None:
        """Why it cannot compute this design, or None if it can."""
        raise NotImplementedError

    def needs_half(self, design: Design) -> bool:
        """Whether it computes this design in bfloat16 (or float16) only."""
        return False

    def functions(self, module: Any) -> Any:
        """What is called, out of the imported module; ImportError or AttributeError if missing."""
        raise NotImplementedError

    def sums(self, design: Design, given: Projected, stream: Stream) -> Sums:
        """The sums, and where they are in a unit per row, its logarithm."""
        raise NotImplementedError

    @cached_property
    def call(self) -> Any:
        """The package's functions, imported."""
        return self.functions(importlib.import_module(self.module))

    @cached_property
    def absence(self) -> str | None:
        """Why this machine cannot use it, or None if it can."""
        if importlib.util.find_spec(self.module.partition(".")[0]) is None:
            return f"it is not installed (pip install {self.package})"
        if self.needs_cuda and not torch.cuda.is_available():
            return "it needs a CUDA device, and there is none"
        try:
            _ = self.call
        except Exception as error:  # a package broken in any way is one that cannot be used
            return f"it cannot be imported: {' '.join(str(error).split())}"
        return None

    def misfit(self, design: Design, device: torch.device, half: torch.dtype | None) -> str | None:
        """Why it cannot compute this design from tensors on `device` with autocast to `half`."""
        if self.needs_cuda and device.type != "cuda":
            return (
                f"it needs a CUDA device, but the model is on the {device.type} (use trainer=cuda)"
            )
        if self.needs_half(design) and half is None:
            return "it computes this design in bfloat16 only (use trainer.precision=bf16-mixed)"
        return None

    def __call__(
        self, design: Design, given: Projected, half: torch.dtype | None
    ) -> Float[Tensor, "b h t p"]:
        why = self.misfit(design, given.x.device, half)
        if why is not None:
            raise ValueError(f"model.backend={self.name} cannot be used: {why}")
        stream = design.prepare(given)
        if half is not None:
            q, k, v = (x.to(half) for x in (stream.q, stream.k, stream.v))
            stream = replace(stream, q=q, k=k, v=v)
        total, unit = self.sums(design, given, stream)
        log_unit = stream.log_unit if unit is None else unit
        return design.normalize(given.x, total.to(given.v.dtype), log_unit)


def attention_obstacle(design: Design) -> str | None:
    """What stands in the way of every kernel of attention: they know A_t = I alone."""
    if design.evolution.has_decay or design.evolution.has_direction:
        return "it serves A_t = I alone"
    if design.uses_units:
        return "its b_j may overflow, and is kept as a logarithm"
    return None


def softmax_obstacle(design: Design) -> str | None:
    """Why the design is not softmax attention, or None if it is."""
    if not (design.readout.exponential and design.normalization.sums_to_one):
        return "it serves phi = exp with eta = row_sum alone"
    return attention_obstacle(design)


def with_row_sum(
    y: Float[Tensor, "b h t p"], total: Float[Tensor, "b h t"] | float
) -> Float[Tensor, "b h t m"]:
    """The value channel of ones, which is not worth a kernel's time, put back behind the others."""
    if isinstance(total, float):
        return torch.cat([y, torch.full_like(y[..., :1], total)], dim=-1)
    return torch.cat([y, total.unsqueeze(-1)], dim=-1)
