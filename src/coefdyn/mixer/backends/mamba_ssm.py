"""mamba-ssm: the scan of Mamba-2."""

from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.backends.adapter import Adapter, linear_obstacle, padded
from coefdyn.mixer.design import Design
from coefdyn.mixer.forms.features import linear_terms
from coefdyn.mixer.slots.evolution import Mamba2Decay
from coefdyn.mixer.slots.scaling import StepSize
from coefdyn.mixer.stream import Projected, Stream

CHUNK = 256  # steps, as in the package's own Mamba-2


class MambaSsm(Adapter):
    """A_t = exp(-Delta_t A) with one A per head: mamba_chunk_scan_combined."""

    name = "mamba_ssm"
    module = "mamba_ssm.ops.triton.ssd_combined"
    package = "mamba-ssm"

    def obstacle(self, design: Design) -> str | None:
        evolution = design.evolution
        if not isinstance(evolution, Mamba2Decay) or evolution.log_rate.shape[1] > 1:
            return "it serves A_t = exp(-Delta_t A) with one A per head alone"
        if design.uses_units:
            return "the design's coefficients may overflow, and are kept in units of their row"
        return linear_obstacle(design)

    def functions(self, module: Any) -> Any:
        return module.mamba_chunk_scan_combined

    def output(
        self, design: Design, given: Projected, stream: Stream, dtype: torch.dtype
    ) -> Float[Tensor, "b h t p"]:
        assert isinstance(design.evolution, Mamba2Decay)
        step = stream.transition.step_size
        assert step is not None
        # The kernel writes Delta_t k_t, where the design writes b_t k_t.
        if isinstance(design.scaling, StepSize):
            keys = given.k
        else:
            keys = stream.k / step.clamp(min=torch.finfo(step.dtype).tiny).unsqueeze(-1)
        (term,) = linear_terms(design.readout, stream.q, keys, stream.transition)
        q, k, v = (
            rearrange(padded(x.to(dtype)), "b h t n -> b t h n") for x in (term.q, term.k, stream.v)
        )
        rate = design.evolution.log_rate.exp().squeeze(1)
        y = self.call(v, rearrange(step, "b h t -> b t h"), -rate, k, q, chunk_size=CHUNK)
        total = rearrange(y, "b t h p -> b h t p")[..., : stream.v.shape[-1]]
        return design.normalize(given.x, total.to(given.v.dtype), stream.log_unit)
