"""flash-linear-attention: linear designs with every A_t there is here."""

from types import SimpleNamespace
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from coefdyn.mixer.backends.kernel import Kernel, Sums
from coefdyn.mixer.design import Design, Projected, Stream
from coefdyn.mixer.features import Term, linear_terms
from coefdyn.mixer.scaling import Strength
from coefdyn.mixer.transition import Transition


class Fla(Kernel):
    """Linear attention, its decays per head and per channel, and Householders.

    A delta rule is what the package has a kernel of its own for; any other Householder is a
    diagonal plus a matrix of rank one.
    """

    name = "fla"
    module = "fla.ops"
    package = "flash-linear-attention"

    def obstacle(self, design: Design) -> str | None:
        if design.readout.feature_map is None and design.readout.polynomial != (0.0, 1.0):
            return "it serves phi = identity, or a kernel, alone"
        return design.recurrence_obstacle

    def needs_half(self, design: Design) -> bool:
        return design.evolution.has_direction

    def functions(self, module: Any) -> Any:
        return SimpleNamespace(
            linear=module.chunk_linear_attn,
            decay=module.chunk_simple_gla,
            decays=module.chunk_gla,
            delta=module.chunk_delta_rule,
            gated_delta=module.chunk_gated_delta_rule,
            rank_one=module.chunk_dplr_delta_rule,
        )

    def sums(self, design: Design, given: Projected, stream: Stream) -> Sums:
        (term,) = linear_terms(design.readout, stream.q, stream.k, stream.transition)
        transition = term.transition
        if transition.direction is None:
            y = self._decayed(term, stream.v)
        elif (
            isinstance(design.scaling, Strength)
            and not design.evolution.own_direction
            and not transition.per_channel
            and not design.uses_units
        ):
            # What is written is beta w (c v), the length of k_t being in c.
            length = (given.k * transition.direction).sum(-1, keepdim=True)
            v = (design.scaling.scale * length * stream.v).to(stream.v.dtype)
            y = self._delta_rule(term.q, transition, v)
        else:
            y = self._rank_one(term, transition, stream.v)
        return rearrange(y, "b t h p -> b h t p"), None

    def _decayed(self, term: Term, v: Float[Tensor, "b h t p"]) -> Float[Tensor, "b t h p"]:
        q, k, v = (_time_first(x) for x in (term.q, term.k, v))
        if term.transition.log_decay is None:
            return self.call.linear(q, k, v, scale=1.0, normalize=False)[0]
        g = _time_first(term.transition.log_decay)
        if term.transition.per_channel:
            return self.call.decays(q, k, v, g, scale=1.0)[0]
        return self.call.decay(q, k, v, g=g.squeeze(-1), scale=1.0)[0]

    def _delta_rule(
        self, q: Float[Tensor, "b h t n"], transition: Transition, v: Float[Tensor, "b h t p"]
    ) -> Float[Tensor, "b t h p"]:
        assert transition.direction is not None
        assert transition.strength is not None
        q, w, v = (_time_first(x) for x in (q, transition.direction.to(q.dtype), v))
        beta = rearrange(transition.strength, "b h t -> b t h").to(q.dtype)
        if transition.log_decay is None:
            return self.call.delta(q, w, v, beta, scale=1.0)[0]
        g = _time_first(transition.log_decay).squeeze(-1)
        return self.call.gated_delta(q, w, v, g=g, beta=beta, scale=1.0)[0]

    def _rank_one(
        self, term: Term, transition: Transition, v: Float[Tensor, "b h t p"]
    ) -> Float[Tensor, "b t h p"]:
        """A_t = D_t - beta w (D_t w)^T."""
        w, beta, log_decay = transition.direction, transition.strength, transition.log_decay
        assert w is not None
        assert beta is not None
        g = torch.zeros_like(w) if log_decay is None else log_decay.expand_as(w)
        seen, written = g.exp() * w, -beta.unsqueeze(-1) * w
        q, k, v, a, b = (
            _time_first(x.to(term.q.dtype)) for x in (term.q, term.k, v, seen, written)
        )
        return self.call.rank_one(q, k, v, a, b, _time_first(g), scale=1.0)[0]


def _time_first(x: Float[Tensor, "b h t n"]) -> Float[Tensor, "b t h n"]:
    return rearrange(x, "b h t n -> b t h n").contiguous()
