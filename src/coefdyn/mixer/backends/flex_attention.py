"""FlexAttention: every phi >= 0 where A_t = I or rotates, as softmax of log phi."""

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.backends.adapter import Adapter, attention_obstacle, padded
from coefdyn.mixer.design import Design
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.stream import Projected, Stream


class FlexAttention(Adapter):
    """torch.nn.attention.flex_attention with score_mod = log phi.

    It returns y divided by the row's sum, and the logarithm of that sum. Any eta can be computed
    from the two. Where phi is 0 the smallest normal number is used, too small to change a row.
    """

    name = "flex_attention"
    module = "torch.nn.attention.flex_attention"
    package = "torch"

    def __init__(self) -> None:
        self._log_phi: dict[Hashable, Callable[..., Tensor]] = {}

    def obstacle(self, design: Design) -> str | None:
        if not design.readout.nonnegative or design.readout.feature_map is not None:
            return "it serves readouts phi(s) >= 0 of a score alone"
        return attention_obstacle(design)

    def functions(self, module: Any) -> Any:
        # Without compilation, it would store the whole matrix of scores.
        return SimpleNamespace(
            attend=torch.compile(module.flex_attention),
            mask=module.create_block_mask,
            wanted=module.AuxRequest(lse=True),
        )

    def output(
        self, design: Design, given: Projected, stream: Stream, dtype: torch.dtype
    ) -> Float[Tensor, "b h t p"]:
        length, device = stream.q.shape[2], stream.q.device
        y, aux = self.call.attend(
            *(padded(x.to(dtype)).contiguous() for x in (stream.q, stream.k, given.v)),
            score_mod=None if design.readout.exponential else self._score_mod(design.readout),
            block_mask=_causal(self.call.mask, length, device),
            scale=1.0,
            return_aux=self.call.wanted,
        )
        y, log_sum = y[..., : given.v.shape[-1]].to(given.v.dtype), aux.lse
        if design.shifts_scores:  # y may stay divided by the row's sum
            ones = torch.ones_like(y[..., :1])
            return design.normalize(given.x, torch.cat([y, ones], dim=-1), log_sum)
        row_sum = log_sum.exp().to(y.dtype).unsqueeze(-1)
        total = y * row_sum
        if design.normalization.uses_row_sum:
            total = torch.cat([total, row_sum], dim=-1)
        return design.normalize(given.x, total, None)

    def _score_mod(self, readout: Readout) -> Callable[..., Tensor]:
        """The same function for all layers: every new one would be compiled again."""
        kind = (type(readout), readout.polynomial)
        return self._log_phi.setdefault(kind, partial(log_phi, readout))


def log_phi(
    readout: Readout,
    score: Float[Tensor, ""],
    _batch: Tensor,
    _head: Tensor,
    _query: Tensor,
    _key: Tensor,
) -> Float[Tensor, ""]:
    return readout(score).clamp(min=torch.finfo(torch.float32).tiny).log()


@lru_cache(maxsize=8)
def _causal(create_mask: Any, length: int, device: torch.device) -> Any:
    return create_mask(
        lambda _batch, _head, query, key: query >= key, None, None, length, length, device=device
    )
