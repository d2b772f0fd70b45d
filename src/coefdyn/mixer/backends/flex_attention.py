"""FlexAttention: every phi that is bounded below, where A_t decays by head, turns or shears."""

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from coefdyn.mixer.backends.adapter import Adapter, padded
from coefdyn.mixer.design import Design
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.stream import Projected, Stream

# Above this a decay from a later step, which the mask hides, would be infinite. Its gradient, zero
# times infinity, would not be hidden.
LARGEST_EXPONENT = 60.0

ScoreMod = Callable[..., Tensor]


class FlexAttention(Adapter):
    """torch.nn.attention.flex_attention with score_mod = log(phi - bound), bound <= phi.

    It returns z, the mean of values with the weights phi - bound, and the logarithm of the sum of
    these weights. So sum_j phi v_j = z sum + bound times the sum of the v_j. The row sum of a
    signed phi would be a difference that may lose all its digits. Where phi = bound, the smallest
    normal number is used, too small to change a row.
    """

    name = "flex_attention"
    module = "torch.nn.attention.flex_attention"
    package = "torch"

    def __init__(self) -> None:
        self._log_phi: dict[Hashable, ScoreMod] = {}

    def obstacle(self, design: Design) -> str | None:
        evolution, readout = design.evolution, design.readout
        if readout.feature_map is not None or _bound(readout) is None:
            return "it serves readouts of a score that are bounded below alone"
        if _bound(readout) and design.normalization.uses_row_sum:
            return "it serves signed readouts alone whose coefficients are not summed for eta"
        if evolution.has_direction or evolution.per_channel or evolution.signed:
            return "it serves rotations, shears and positive decays per head alone"
        if design.uses_units:
            return "the design's coefficients may overflow, and are kept in units of their row"
        return None

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
        mean, aux = self.call.attend(
            *(padded(x.to(dtype)).contiguous() for x in (stream.q, stream.k, given.v)),
            score_mod=self._score_mod(design.readout, stream),
            block_mask=_causal(self.call.mask, length, device),
            scale=1.0,
            return_aux=self.call.wanted,
        )
        mean, log_sum = mean[..., : given.v.shape[-1]].to(given.v.dtype), aux.lse
        if design.shifts_scores:  # the mean may stay divided by the row's sum
            ones = torch.ones_like(mean[..., :1])
            return design.normalize(given.x, torch.cat([mean, ones], dim=-1), log_sum)
        row_sum = log_sum.exp().to(mean.dtype).unsqueeze(-1)
        total, bound = mean * row_sum, _bound(design.readout)
        if bound:
            total = total + bound * given.v.cumsum(2)
        if design.normalization.uses_row_sum:
            total = torch.cat([total, row_sum], dim=-1)
        return design.normalize(given.x, total, None)

    def _score_mod(self, readout: Readout, stream: Stream) -> ScoreMod | None:
        last = None if readout.exponential else self._log(readout, stream.q.device)
        log_decay = stream.transition.log_decay
        if log_decay is None and stream.added is None:
            return last
        decay = None if log_decay is None else log_decay.squeeze(-1).double().cumsum(-1)
        return evolved(_in_two(decay), _in_two(stream.added), last)

    def _log(self, readout: Readout, device: torch.device) -> ScoreMod:
        """The same function for all layers: every new one would be compiled again."""
        kind = (type(readout), readout.polynomial, device)
        if kind not in self._log_phi:
            # A number would be compiled as a symbol once a second readout has another one.
            bound = torch.tensor(_bound(readout), dtype=torch.float32, device=device)
            self._log_phi[kind] = partial(log_phi, readout, bound if bound else None)
        return self._log_phi[kind]


def _bound(readout: Readout) -> float | None:
    return 0.0 if readout.nonnegative else readout.lower_bound


def log_phi(
    readout: Readout,
    bound: Float[Tensor, ""] | None,
    score: Float[Tensor, ""],
    _batch: Tensor,
    _head: Tensor,
    _query: Tensor,
    _key: Tensor,
) -> Float[Tensor, ""]:
    alpha = readout(score)
    above = alpha if bound is None else alpha - bound
    return above.clamp(min=torch.finfo(torch.float32).tiny).log()


Sums = tuple[Float[Tensor, "b h t"], Float[Tensor, "b h t"]] | None


def _in_two(total: Float64[Tensor, "b h t"] | None) -> Sums:
    """A sum over many steps as two float32 numbers: kernels compute in float32, which would lose
    the last digits of its differences."""
    if total is None:
        return None
    main = total.float()
    return main.contiguous(), (total.detach() - main.detach()).float().contiguous()


def evolved(decay: Sums, added: Sums, phi: ScoreMod | None) -> ScoreMod:
    """score_ij becomes exp(c_i - c_j) score_ij + added_i - added_j before phi."""

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if decay is not None:
            main, rest = decay
            exponent = (main[b, h, i] - main[b, h, j]) + (rest[b, h, i] - rest[b, h, j])
            score = score * exponent.clamp(max=LARGEST_EXPONENT).exp()
        if added is not None:
            main, rest = added
            score = score + ((main[b, h, i] - main[b, h, j]) + (rest[b, h, i] - rest[b, h, j]))
        return score if phi is None else phi(score, b, h, i, j)

    return score_mod


@lru_cache(maxsize=8)
def _causal(create_mask: Any, length: int, device: torch.device) -> Any:
    return create_mask(
        lambda _batch, _head, query, key: query >= key, None, None, length, length, device=device
    )
