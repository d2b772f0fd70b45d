"""flash-attn: softmax attention in half precision."""

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.backends.adapter import Adapter, softmax_obstacle
from coefdyn.mixer.design import Design
from coefdyn.mixer.stream import Projected, Stream


class FlashAttn(Adapter):
    """Softmax attention, flash_attn.flash_attn_func."""

    name = "flash_attn"
    module = "flash_attn"
    package = "flash-attn"

    def obstacle(self, design: Design) -> str | None:
        return softmax_obstacle(design)

    def needs_half(self, design: Design) -> bool:
        return True

    def widest(self, design: Design) -> int | None:
        return 256

    def functions(self, module: Any) -> Any:
        return module.flash_attn_func

    def output(
        self, design: Design, given: Projected, stream: Stream, dtype: torch.dtype
    ) -> Float[Tensor, "b h t p"]:
        parts = (stream.q, stream.k, given.v)
        width = max(x.shape[-1] for x in parts)  # one for all; zeros change no score
        q, k, v = (
            rearrange(F.pad(x.to(dtype), (0, width - x.shape[-1])), "b h t n -> b t h n")
            for x in parts
        )
        y = rearrange(self.call(q, k, v, softmax_scale=1.0, causal=True), "b t h p -> b h t p")
        return y[..., : given.v.shape[-1]]
