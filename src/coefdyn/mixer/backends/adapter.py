"""The base class of adapters to kernels of other packages."""

import importlib
import importlib.util
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.design import Design
from coefdyn.mixer.stream import Projected, Stream

UNKNOWN = {"signed": "decays of either sign", "has_shear": "numbers added to scores"}
NARROWEST = 16  # smallest width of Triton's matrix products; narrower heads are padded


class Adapter:
    """Computes y with another package, for the designs without an `obstacle`.

    `module` is imported when the kernel is first needed, never before. `needs_cuda`: the kernel
    runs on CUDA devices only.
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

    def widest(self, design: Design) -> int | None:
        """The largest width of a head that it takes, or None if there is no limit."""
        return None

    def needs_trial(self, device: torch.device) -> bool:
        """Whether it must be tried on this device before it is used."""
        return True

    def functions(self, module: Any) -> Any:
        """The functions to call, from the imported module; any error means they are missing."""
        raise NotImplementedError

    def output(
        self, design: Design, given: Projected, stream: Stream, dtype: torch.dtype
    ) -> Float[Tensor, "b h t p"]:
        """Compute y. q, k and v go to the package in `dtype`, log decays in their own."""
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
        except Exception as error:  # a package can be broken in any way
            return f"it cannot be imported: {' '.join(str(error).split())}"
        return None

    def misfit(
        self, design: Design, width: int, device: torch.device, half: torch.dtype | None
    ) -> str | None:
        """Why it cannot compute this design with heads of this width, on `device`, with autocast
        to `half`; None if it can."""
        if self.needs_cuda and device.type != "cuda":
            return (
                f"it needs a CUDA device, but the model is on the {device.type} (use trainer=cuda)"
            )
        if self.needs_half(design) and half is None:
            return "it computes this design in bfloat16 only (use trainer.precision=bf16-mixed)"
        limit = self.widest(design)
        if limit is not None and width > limit:
            return f"it takes heads of at most {limit} channels, and these have {width}"
        return None

    def __call__(
        self, design: Design, given: Projected, half: torch.dtype | None
    ) -> Float[Tensor, "b h t p"]:
        y = self.output(design, given, design.prepare(given), half or given.q.dtype)
        return y.to(given.v.dtype)


def softmax_obstacle(design: Design) -> str | None:
    """Why the design is not softmax attention, or None if it is. A rotation has turned q and k."""
    evolution = design.evolution
    if not (design.readout.exponential and design.normalization.sums_to_one):
        return "it serves phi = exp with eta = row_sum alone"
    if evolution.has_decay or evolution.has_direction or evolution.has_shear:
        return "it serves A_t = I and rotations alone"
    return None


def linear_obstacle(design: Design) -> str | None:
    """Why no kernel for linear recurrences can compute the design, or None."""
    if design.readout.feature_map is None and design.readout.polynomial != (0.0, 1.0):
        return "it serves phi = identity, or a kernel readout such as kernel_relu, alone"
    for trait, name in UNKNOWN.items():
        if getattr(design.evolution, trait):
            return f"it has no {name}"
    if design.evolution.repeats > 1:
        return "it has no repeats"
    return design.recurrence_obstacle


def padded(x: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
    """Pad with zeros to an even width of at least `NARROWEST`. Zeros change no product."""
    width = x.shape[-1]
    return F.pad(x, (0, max(NARROWEST, width + width % 2) - width))
