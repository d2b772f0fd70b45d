"""mamba-ssm: the scan of Mamba-2."""

from typing import Any

from einops import rearrange

from coefdyn.mixer.backends.kernel import Kernel, Sums
from coefdyn.mixer.design import Design, Projected, Stream
from coefdyn.mixer.evolution import Mamba2Decay
from coefdyn.mixer.features import linear_terms

CHUNK = 256  # steps, as in the package's own Mamba-2


class MambaSsm(Kernel):
    """A_t = exp(-Delta_t A) with one A per head: mamba_chunk_scan_combined."""

    name = "mamba_ssm"
    module = "mamba_ssm.ops.triton.ssd_combined"
    package = "mamba-ssm"

    def obstacle(self, design: Design) -> str | None:
        evolution = design.evolution
        if not isinstance(evolution, Mamba2Decay) or evolution.log_rate.shape[1] > 1:
            return "it serves A_t = exp(-Delta_t A) with one A per head alone"
        if design.uses_units:
            return "its coefficients may overflow, and are kept in units of their row"
        if design.readout.feature_map is None and design.readout.polynomial != (0.0, 1.0):
            return "it serves phi = identity, or a kernel, alone"
        return design.recurrence_obstacle

    def functions(self, module: Any) -> Any:
        return module.mamba_chunk_scan_combined

    def sums(self, design: Design, given: Projected, stream: Stream) -> Sums:
        assert isinstance(design.evolution, Mamba2Decay)
        assert stream.transition.step_size is not None
        (term,) = linear_terms(design.readout, stream.q, stream.k, stream.transition)
        step = rearrange(stream.transition.step_size, "b h t -> b t h")
        q, k, v = (rearrange(x, "b h t n -> b t h n") for x in (term.q, term.k, stream.v))
        # The kernel writes Delta_t k_t; what b_t writes is in the keys already.
        k = (k / step.unsqueeze(-1)).to(k.dtype)
        rate = design.evolution.log_rate.exp().squeeze(1)
        y = self.call(v, step, -rate, k, q, chunk_size=CHUNK)
        return rearrange(y, "b t h p -> b h t p"), None
