"""torch's own attention."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.backends.adapter import Adapter, softmax_obstacle
from coefdyn.mixer.design import Design
from coefdyn.mixer.stream import Projected, Stream


class Sdpa(Adapter):
    """Softmax attention, torch.nn.functional.scaled_dot_product_attention."""

    name = "sdpa"
    module = "torch"
    package = "torch"
    needs_cuda = False

    def obstacle(self, design: Design) -> str | None:
        return softmax_obstacle(design)

    def needs_trial(self, device: torch.device) -> bool:
        return device.type == "cuda"

    def functions(self, module: Any) -> Any:
        return module.nn.functional.scaled_dot_product_attention

    def output(
        self, design: Design, given: Projected, stream: Stream, dtype: torch.dtype
    ) -> Float[Tensor, "b h t p"]:
        parts = [x.to(dtype) for x in (stream.q, stream.k, given.v)]
        if stream.q.is_cuda:  # its kernels load several numbers at a time
            parts = [x.contiguous() for x in parts]
        return self.call(*parts, is_causal=True, scale=1.0)  # b_j is in the keys
