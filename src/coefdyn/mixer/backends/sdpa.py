"""torch's own attention."""

from typing import Any

from coefdyn.mixer.backends.kernel import Kernel, Sums, softmax_obstacle, with_row_sum
from coefdyn.mixer.design import Design, Projected, Stream


class Sdpa(Kernel):
    """Softmax attention, torch.nn.functional.scaled_dot_product_attention."""

    name = "sdpa"
    module = "torch"
    package = "torch"
    needs_cuda = False

    def obstacle(self, design: Design) -> str | None:
        return softmax_obstacle(design)

    def functions(self, module: Any) -> Any:
        return module.nn.functional.scaled_dot_product_attention

    def sums(self, design: Design, given: Projected, stream: Stream) -> Sums:
        # b_j is in the keys. What comes back is divided by the row's sum already.
        y = self.call(stream.q, stream.k, stream.v[..., :-1], is_causal=True, scale=1.0)
        return with_row_sum(y, 1.0), None
