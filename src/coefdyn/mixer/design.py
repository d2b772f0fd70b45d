"""A design: one choice of (A_t, b_j, phi, eta_i), in every form that can compute it."""

from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from coefdyn.mixer import definition
from coefdyn.mixer.compiled.form import Sums
from coefdyn.mixer.compiled.loops import alpha_by_loops, can_serve, sums_by_loops
from coefdyn.mixer.forms.features import Term, commutes, linear_terms, obstacle, weighted_sum
from coefdyn.mixer.forms.linear import linear_form
from coefdyn.mixer.forms.noncommuting import noncommuting_coefficients
from coefdyn.mixer.forms.quadratic import quadratic_form
from coefdyn.mixer.forms.recurrent import recurrent_step
from coefdyn.mixer.forms.tiles import coefficients, inputs_of
from coefdyn.mixer.fused import divided, scaled
from coefdyn.mixer.slots.admission import check_slots
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.normalization import Normalization, One, Rows
from coefdyn.mixer.slots.readout import Identity, Readout
from coefdyn.mixer.slots.scaling import Scaling
from coefdyn.mixer.slots.transition import Transition
from coefdyn.mixer.stream import (
    Coefficients,
    DesignState,
    Frame,
    Projected,
    Stream,
    at_last_of,
    for_each,
    in_frame,
    last_of,
    with_impulses,
)

OutputClass = Literal["convex", "conical", "affine", "linear"]


class Design(nn.Module):
    """y_i = sum_{j <= i} (alpha_ij / eta_i) v_j,  alpha_ij = phi(q_i^T A_i ... A_{j+1} b_j k_j)."""

    def __init__(
        self,
        evolution: Evolution,
        scaling: Scaling,
        readout: Readout,
        normalization: Normalization,
    ) -> None:
        super().__init__()
        check_slots(evolution, scaling, readout)
        self.evolution = evolution
        self.scaling = scaling
        self.readout = readout
        self.normalization = normalization
        # Rows that may overflow are stored in a unit of their own, if dividing by eta cancels it.
        self.uses_units = (
            readout.homogeneous is not None
            and normalization.accepts_unit
            and (scaling.log_space or evolution.may_grow)
            and not evolution.has_shear  # which has no unit
        )
        self.shifts_scores = readout.exponential and normalization.accepts_unit

    @property
    def output_class(self) -> OutputClass:
        """The kind of combination of values that y_i is (Table 2), unless its alpha are all 0."""
        if self.readout.nonnegative:
            return "convex" if self.normalization.sums_to_one else "conical"
        return "affine" if self.normalization.sums_to_one else "linear"

    @property
    def recurrence_obstacle(self) -> str | None:
        """Why the design has no linear and no recurrent form, or None if it has."""
        return obstacle(self.readout, self.evolution)

    def prepare(
        self, given: Projected, state: DesignState | None = None, for_loops: bool = False
    ) -> Stream:
        """Compute A_t and b_j k_j, and append a channel of ones to v if eta needs the row sum.
        With `for_loops`, append none, and pass on a constant b_j as `Stream.scale`."""
        repeats, turns = self.evolution.repeats, self.readout.feature_map is None
        v = given.v if for_loops else self._values(given.v)
        transition = self.evolution(given.x, given.direction)
        q, k, framed, frame = in_frame(
            at_last_of(given.q, repeats), given.k, transition, state.frame if state else Frame(),
            turns,
        )  # fmt: skip
        plain = for_loops and not self.uses_units and self.readout.feature_map is None
        if plain and self.scaling.constant is not None:
            return Stream(q, k, v, framed, frame, scale=self.scaling.constant)
        scale = for_each(self.scaling(given.x, transition), k.shape[2], repeats)
        if not self.uses_units:
            b = scale.exp() if self.scaling.log_space else scale
            return Stream(q, scaled(k, b), v, framed, frame)
        log_b = (scale if self.scaling.log_space else torch.zeros_like(scale)).expand(k.shape[:3])
        unit, shift = framed.growth(log_b, state.key_unit if state else None)
        b = (log_b - unit).exp().to(k.dtype)
        b = b if self.scaling.log_space else b * scale
        assert self.readout.homogeneous is not None
        return Stream(
            q,
            scaled(k, b),
            v,
            framed.rescaled(shift).map(lambda part: part.to(k.dtype)),
            frame,
            log_unit=last_of(self.readout.homogeneous * unit, repeats),
            key_unit=unit,
        )

    def quadratic(self, given: Projected) -> Float[Tensor, "b h t p"]:
        stream = self.prepare(given)
        total, unit = self._quadratic_sum(stream, self.shifts_scores)
        return self._finish(given.x, total, unit, stream)

    def linear(self, given: Projected) -> Float[Tensor, "b h t p"]:
        return self.prefill(given)[0]

    def prefill(self, given: Projected) -> tuple[Float[Tensor, "b h t p"], DesignState]:
        """The linear form, and the state from which the recurrent form goes on."""
        stream = self.prepare(given)
        terms = self._terms(stream)
        parts = [linear_form(term.q, term.k, stream.v, term.transition) for term in terms]
        y = self._finish(given.x, weighted_sum(terms, [part for part, _ in parts]), None, stream)
        states = tuple(state for _, state in parts)
        return y, self._state(given.x.shape[1], states, stream)

    def compiled(self, given: Projected) -> Float[Tensor, "b h t p"]:
        """The equations as compiled loops, on a CPU."""
        stream = self.prepare(given, for_loops=True)
        total, unit, sums = sums_by_loops(
            self.evolution, self.readout, stream.q, stream.k, stream.v, stream.transition,
            self._sums, self.shifts_scores, stream.scale, stream.added,
        )  # fmt: skip
        if sums == Sums.DIVIDED:
            return last_of(total, self.evolution.repeats)
        return self._finish(given.x, total, unit, stream)

    @property
    def _sums(self) -> Sums:
        """What the compiled loops do with the sum of a row. Dividing by it cancels the unit."""
        if self.normalization.sums_to_one and self.readout.nonnegative:
            return Sums.DIVIDED
        return Sums.BESIDE if self.normalization.uses_row_sum else Sums.ALONE

    def step(
        self, given: Projected, state: DesignState | None
    ) -> tuple[Float[Tensor, "b h 1 p"], DesignState]:
        """The recurrent form: one step."""
        stream = self.prepare(given, state)
        terms, repeats = self._terms(stream), self.evolution.repeats
        sums: list[Tensor | None] = list(state.sums) if state else [None] * len(terms)
        outputs = []
        for i, term in enumerate(terms):
            for r in range(repeats):
                here = partial(torch.narrow, dim=2, start=r, length=1)
                q, k, v = (here(x) for x in (term.q, term.k, stream.v))
                y, sums[i] = recurrent_step(sums[i], q, k, v, term.transition.map(here))
            outputs.append(y)
        position = state.position if state else 0
        total = weighted_sum(terms, outputs)
        y = self.normalize(given.x, total, stream.log_unit, position)
        return y, self._state(position + 1, tuple(x for x in sums if x is not None), stream)

    def _state(self, position: int, sums: tuple[Tensor, ...], stream: Stream) -> DesignState:
        unit = stream.key_unit
        last_unit = None if unit is None else unit[..., -1:]
        return DesignState(position, sums, last_unit, stream.frame.last)

    def _terms(self, stream: Stream) -> list[Term]:
        return linear_terms(self.readout, stream.q, stream.k, stream.transition, added=stream.added)

    def _finish(
        self,
        x: Float[Tensor, "b t d"],
        total: Float[Tensor, "b h s m"],
        unit: Float[Tensor, "b h s"] | None,
        stream: Stream,
    ) -> Float[Tensor, "b h t p"]:
        """Of the steps that a token becomes only the last is read; divide by its eta."""
        repeats = self.evolution.repeats
        unit = stream.log_unit if unit is None else last_of(unit, repeats)
        return self.normalize(x, last_of(total, repeats), unit)

    def definition(self, given: Projected) -> Float[Tensor, "b h t p"]:
        return self._defined(given)[0]

    def _defined(self, given: Projected) -> tuple[Tensor, Tensor, Tensor]:
        """y, alpha and eta by the loops of definition.py."""
        repeats = self.evolution.repeats
        transition = self.evolution(given.x, given.direction)
        b = for_each(self.scaling(given.x, transition), given.k.shape[2], repeats)
        b = (b.exp() if self.scaling.log_space else b).expand(given.k.shape[:3])
        q, k, A = at_last_of(given.q, repeats), given.k, transition.matrices(like=given.k)
        if transition.shear is not None:
            q, k = with_impulses(q, b.unsqueeze(-1) * k)
            b = torch.ones_like(b)

        def eta(total: Tensor, step: int) -> Tensor:
            i = step // repeats
            rows = Rows(total.unsqueeze(-1), None, self.readout.nonnegative, start=i)
            eta_i = self.normalization(given.x[:, i : i + 1], rows)
            return eta_i.expand(*total.shape, 1).squeeze(-1)

        found = definition.sequence_model(q, k, given.v, A, b, self.readout.measure, eta)
        y, alpha, eta_i = (last_of(x, repeats) for x in found)
        return y, alpha, eta_i

    def coefficients(self, given: Projected) -> Coefficients:
        """alpha and eta in float64. A row that would overflow is scaled down to e^600 together
        with its eta, so that their ratio stays right."""
        double = replace(given, q=given.q.double(), k=given.k.double())
        if self.evolution.dense:
            _, alpha, eta = self._defined(double)
            return Coefficients(alpha, eta, eta.isinf())
        stream, repeats = self.prepare(double), self.evolution.repeats
        k, transition = stream.k.double(), stream.transition.map(torch.Tensor.double)
        alpha, shift = self._alpha(stream.q, k, transition, stream.added)
        alpha = last_of(alpha, repeats)
        unit = stream.log_unit if shift is None else last_of(shift, repeats)
        rows = Rows(alpha.sum(-1), unit, self.readout.nonnegative, start=0)
        eta = self.normalization(given.x, rows).double().expand(alpha.shape[:3])
        # The model's own precision decides which rows are guarded.
        guarded = self.normalization.guarded(replace(rows, total=alpha.sum(-1).to(given.q.dtype)))
        if guarded is None:
            guarded = torch.zeros_like(eta, dtype=torch.bool)
        elif self.readout.nonnegative:
            eta = eta.masked_fill(guarded, torch.inf)
        if unit is not None:
            scale = unit.clamp(-600, 600).exp()
            alpha, eta = alpha.mul_(scale.unsqueeze(-1)), eta * scale
        return Coefficients(alpha, eta, guarded)

    def scores(self, given: Projected) -> Float[Tensor, "b h i j"]:
        """The scores q_i . h_ij in float64, zero for j > i. They may overflow where A_t grows."""
        return Design(self.evolution, self.scaling, Identity(), One()).coefficients(given).alpha

    def _alpha(
        self,
        q: Float[Tensor, "b h t n"],
        k: Float[Tensor, "b h t n"],
        transition: Transition,
        added: Float64[Tensor, "b h t"] | None,
    ) -> tuple[Float[Tensor, "b h i j"], Float[Tensor, "b h i"] | None]:
        """alpha, and the logarithm of each row's unit if scores are shifted."""
        readout, shift = self.readout, self.shifts_scores
        if can_serve(readout, self.evolution, q):
            return alpha_by_loops(self.evolution, readout, q, k, transition, shift, added)
        if readout.feature_map is not None:
            if not commutes(readout, self.evolution):
                return noncommuting_coefficients(q, k, transition, readout.feature_map), None
            (term,) = linear_terms(readout, q, k, transition)
            q, k, transition, readout = term.q, term.k, term.transition, Identity()
        sums = None if added is None else added.flatten(0, 1)
        alpha, unit = coefficients(inputs_of(q, k, transition), readout, shift, sums)
        shape = q.shape[:2]
        return alpha.unflatten(0, shape), None if unit is None else unit.unflatten(0, shape)

    def _quadratic_sum(
        self, stream: Stream, shift: bool
    ) -> tuple[Float[Tensor, "b h t p"], Float[Tensor, "b h t"] | None]:
        q, k, v, transition = stream.q, stream.k, stream.v, stream.transition
        if self.readout.feature_map is None:
            return quadratic_form(q, k, v, transition, self.readout, shift, stream.added)
        if not commutes(self.readout, self.evolution):
            alpha = noncommuting_coefficients(q, k, transition, self.readout.feature_map)
            return alpha @ v, None
        (term,) = linear_terms(self.readout, q, k, transition)
        return quadratic_form(term.q, term.k, v, term.transition, Identity(), shift)

    def _values(self, v: Float[Tensor, "b h t p"]) -> Float[Tensor, "b h t m"]:
        """Append a channel of ones if eta needs the row sum: its output is that sum."""
        summed = self.normalization.uses_row_sum
        return torch.cat([v, torch.ones_like(v[..., :1])], dim=-1) if summed else v

    def normalize(
        self,
        x: Float[Tensor, "b t d"],
        total: Float[Tensor, "b h t m"],
        log_unit: Float[Tensor, "b h t"] | None,
        start: int = 0,
    ) -> Float[Tensor, "b h t p"]:
        """Divide each row of sums by its eta. `start` is the number of steps before the first."""
        if self.normalization.is_one:
            return total
        summed = self.normalization.uses_row_sum
        total, row_sum = (total[..., :-1], total[..., -1]) if summed else (total, None)
        rows = Rows(row_sum, log_unit, self.readout.nonnegative, start)
        return divided(total, self.normalization(x, rows))
