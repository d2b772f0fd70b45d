"""flash-linear-attention: linear designs, with every structure of A_t."""

from types import SimpleNamespace
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.backends.adapter import Adapter, linear_obstacle, padded
from coefdyn.mixer.design import Design
from coefdyn.mixer.forms.features import linear_terms
from coefdyn.mixer.slots.scaling import Strength
from coefdyn.mixer.slots.transition import Transition
from coefdyn.mixer.stream import Projected, Stream

Parts = tuple[Float[Tensor, "b t h n"], Float[Tensor, "b t h n"], Float[Tensor, "b t h p"]]


class Fla(Adapter):
    """Linear attention, its decays per head and per channel, and Householders.

    The package has a kernel of its own for delta rules. Any other Householder is computed as a
    diagonal plus a matrix of rank one.
    """

    name = "fla"
    module = "fla.ops"
    package = "flash-linear-attention"

    def obstacle(self, design: Design) -> str | None:
        return linear_obstacle(design)

    def needs_half(self, design: Design) -> bool:
        return design.evolution.has_direction

    def widest(self, design: Design) -> int | None:
        return 256 if design.evolution.has_direction else None

    def functions(self, module: Any) -> Any:
        return SimpleNamespace(
            linear=module.chunk_linear_attn,
            decay=module.chunk_simple_gla,
            decays=module.chunk_gla,
            delta=module.chunk_delta_rule,
            gated_delta=module.chunk_gated_delta_rule,
            rank_one=module.chunk_dplr_delta_rule,
        )

    def output(
        self, design: Design, given: Projected, stream: Stream, dtype: torch.dtype
    ) -> Float[Tensor, "b h t p"]:
        (term,) = linear_terms(design.readout, stream.q, stream.k, stream.transition)
        transition, v = term.transition, stream.v
        q, k = (_time_first(x, dtype) for x in (term.q, term.k))
        if transition.direction is None:
            y = self._decayed((q, k, _time_first(v, dtype)), transition)
        elif _is_delta_rule(design, transition):
            assert isinstance(design.scaling, Strength)
            # The kernel writes beta w v^T, so the scale of b_t and the length of k_t go into v.
            length = (given.k * transition.direction).sum(-1, keepdim=True)
            v = design.scaling.scale * length * v
            w = _time_first(transition.direction, dtype)
            y = self._delta_rule((q, w, _time_first(v, dtype)), transition)
        else:
            y = self._rank_one((q, k, _time_first(v, dtype)), transition)
        total = rearrange(y, "b t h p -> b h t p")[..., : v.shape[-1]]
        return design.normalize(given.x, total.to(given.v.dtype), stream.log_unit)

    def _decayed(self, parts: Parts, transition: Transition) -> Float[Tensor, "b t h p"]:
        log_decay = transition.log_decay
        if log_decay is None:
            return self.call.linear(*parts, scale=1.0, normalize=False)[0]
        if transition.per_channel:
            return self.call.decays(*parts, _time_first(log_decay), scale=1.0)[0]
        return self.call.decay(*parts, g=_per_head(log_decay.squeeze(-1)), scale=1.0)[0]

    def _delta_rule(self, parts: Parts, transition: Transition) -> Float[Tensor, "b t h p"]:
        assert transition.strength is not None
        beta = _per_head(transition.strength).to(parts[0].dtype)
        if transition.log_decay is None:
            return self.call.delta(*parts, beta, scale=1.0)[0]
        g = _per_head(transition.log_decay.squeeze(-1))
        return self.call.gated_delta(*parts, g=g, beta=beta, scale=1.0)[0]

    def _rank_one(self, parts: Parts, transition: Transition) -> Float[Tensor, "b t h p"]:
        """A_t = D_t - u (D_t w)^T, or early D_t - u w^T: a diagonal plus column row^T."""
        w, u, log_decay = transition.direction, transition.erased, transition.log_decay
        assert w is not None
        assert u is not None
        g = torch.zeros_like(w) if log_decay is None else log_decay.expand_as(w)
        dtype = parts[0].dtype
        read = w if transition.early else g.exp() * w
        row, column = (_time_first(x, dtype) for x in (read, -u))
        return self.call.rank_one(*parts, row, column, _time_first(g), scale=1.0)[0]


def _is_delta_rule(design: Design, transition: Transition) -> bool:
    """Whether keys are written along w, with the strength beta of A_t."""
    return (
        isinstance(design.scaling, Strength)
        and not design.evolution.own_direction
        and not design.evolution.has_angle  # which has turned w, and not the key
        and not transition.per_channel
        and not design.uses_units
    )


def _time_first(
    x: Float[Tensor, "b h t n"], dtype: torch.dtype | None = None
) -> Float[Tensor, "b t h m"]:
    return rearrange(padded(x.to(dtype or x.dtype)), "b h t n -> b t h n").contiguous()


def _per_head(x: Float[Tensor, "b h t"]) -> Float[Tensor, "b t h"]:
    return rearrange(x, "b h t -> b t h").contiguous()
