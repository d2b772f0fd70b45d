"""A design: one choice of (A_t, b_j, phi, eta_i), in every form that can compute it."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from coefdyn.mixer import definition
from coefdyn.mixer.compiled.form import Sums
from coefdyn.mixer.compiled.loops import alpha_by_loops, can_serve, sums_by_loops
from coefdyn.mixer.forms.features import commutes, linear_terms, obstacle, weighted_sum
from coefdyn.mixer.forms.linear import linear_form
from coefdyn.mixer.forms.noncommuting import noncommuting_coefficients
from coefdyn.mixer.forms.quadratic import quadratic_form
from coefdyn.mixer.forms.recurrent import recurrent_step
from coefdyn.mixer.forms.tiles import Inputs, coefficients
from coefdyn.mixer.fused import divided, scaled
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.normalization import Normalization, One, Rows
from coefdyn.mixer.slots.readout import Identity, Readout
from coefdyn.mixer.slots.scaling import Scaling
from coefdyn.mixer.slots.transition import Transition

OutputClass = Literal["convex", "conical", "affine", "linear"]


class MissingTraitError(ValueError):
    """A slot needs a trait that the chosen evolution lacks."""

    def __init__(self, need: str, trait: str) -> None:
        super().__init__(f"{need}, but the evolution has none; use one with {trait}")
        self.need, self.trait = need, trait


@dataclass(frozen=True)
class Projected:
    """The input x of a mixer and its projections. A_t, b_j and eta_i may depend on x.

    `direction` is the vector of a Householder A_t: k, or a projection of its own.
    """

    x: Float[Tensor, "b t d"]
    q: Float[Tensor, "b h t n"]
    k: Float[Tensor, "b h t n"]
    v: Float[Tensor, "b h t p"]
    direction: Float[Tensor, "b h t n"]


@dataclass(frozen=True)
class Stream:
    """Input of the forms: queries, scaled keys b_j k_j, values and A_t.

    Where keys could overflow, those of step t are divided by e^(m_t). `key_unit` is m_t;
    `log_unit` is the logarithm of the factor by which the coefficients of a row shrink.
    """

    q: Float[Tensor, "b h t n"]
    k: Float[Tensor, "b h t n"]
    v: Float[Tensor, "b h t p"]
    transition: Transition
    log_unit: Float[Tensor, "b h t"] | None = None
    key_unit: Float[Tensor, "b h t"] | None = None
    scale: float = 1.0  # a factor that the form must still apply to the queries


class Coefficients(NamedTuple):
    """alpha (zero for j > i), eta, and the rows whose eta was replaced as nearly zero."""

    alpha: Float[Tensor, "b h i j"]
    eta: Float[Tensor, "b h i"]
    guarded: Bool[Tensor, "b h i"]


@dataclass(frozen=True)
class DesignState:
    """Memory of the recurrent form. Its size does not depend on the position."""

    position: int
    sums: tuple[Float[Tensor, "b h _ p"], ...]
    key_unit: Float[Tensor, "b h 1"] | None


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
        if scaling.needs_step_size and not evolution.has_step_size:
            raise MissingTraitError("the scaling is the step size Delta of A_t", "has_step_size")
        if scaling.needs_strength and not evolution.has_direction:
            raise MissingTraitError("the scaling is the strength beta of A_t", "has_direction")
        self.evolution = evolution
        self.scaling = scaling
        self.readout = readout
        self.normalization = normalization
        # Rows that may overflow are stored in a unit of their own, if dividing by eta cancels it.
        self.uses_units = (
            readout.homogeneous is not None
            and normalization.accepts_unit
            and (scaling.log_space or evolution.may_grow)
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
        self,
        given: Projected,
        previous_unit: Float[Tensor, "b h 1"] | None = None,
        for_loops: bool = False,
    ) -> Stream:
        """Compute A_t and b_j k_j, and append a channel of ones to v if eta needs the row sum.
        With `for_loops`, append none, and pass on a constant b_j as `Stream.scale`."""
        q, k, v = given.q, given.k, given.v if for_loops else self._values(given.v)
        transition = self.evolution(given.x, given.direction)
        plain = for_loops and not self.uses_units and self.readout.feature_map is None
        if plain and self.scaling.constant is not None:
            return Stream(q, k, v, transition, scale=self.scaling.constant)
        scale = self.scaling(given.x, transition)
        if not self.uses_units:
            b = scale.exp() if self.scaling.log_space else scale
            return Stream(q, scaled(k, b), v, transition)
        log_b = (scale if self.scaling.log_space else torch.zeros_like(scale)).expand(k.shape[:3])
        unit, shift = transition.growth(log_b, previous_unit)
        b = (log_b - unit).exp().to(k.dtype)
        b = b if self.scaling.log_space else b * scale
        assert self.readout.homogeneous is not None
        return Stream(
            q,
            scaled(k, b),
            v,
            transition.rescaled(shift).map(lambda part: part.to(k.dtype)),
            log_unit=self.readout.homogeneous * unit,
            key_unit=unit,
        )

    def quadratic(self, given: Projected) -> Float[Tensor, "b h t p"]:
        stream = self.prepare(given)
        total, unit = self._quadratic_sum(stream, self.shifts_scores)
        return self.normalize(given.x, total, stream.log_unit if unit is None else unit)

    def linear(self, given: Projected) -> Float[Tensor, "b h t p"]:
        stream = self.prepare(given)
        terms = linear_terms(self.readout, stream.q, stream.k, stream.transition)
        sums = [linear_form(term.q, term.k, stream.v, term.transition) for term in terms]
        return self.normalize(given.x, weighted_sum(terms, sums), stream.log_unit)

    def compiled(self, given: Projected) -> Float[Tensor, "b h t p"]:
        """The equations as compiled loops, on a CPU."""
        stream = self.prepare(given, for_loops=True)
        total, unit, sums = sums_by_loops(
            self.evolution, self.readout, stream.q, stream.k, stream.v, stream.transition,
            self._sums, self.shifts_scores, stream.scale,
        )  # fmt: skip
        if sums == Sums.DIVIDED:
            return total
        return self.normalize(given.x, total, stream.log_unit if unit is None else unit)

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
        stream = self.prepare(given, state.key_unit if state else None)
        terms = linear_terms(self.readout, stream.q, stream.k, stream.transition)
        results = [
            recurrent_step(
                state.sums[i] if state else None, term.q, term.k, stream.v, term.transition
            )
            for i, term in enumerate(terms)
        ]
        total = weighted_sum(terms, [y for y, _ in results])
        position = state.position if state else 0
        y = self.normalize(given.x, total, stream.log_unit, position)
        return y, DesignState(position + 1, tuple(sum_ for _, sum_ in results), stream.key_unit)

    def definition(self, given: Projected) -> Float[Tensor, "b h t p"]:
        return self._defined(given)[0]

    def _defined(self, given: Projected) -> tuple[Tensor, Tensor, Tensor]:
        """y, alpha and eta by the loops of definition.py."""
        transition = self.evolution(given.x, given.direction)
        scale = self.scaling(given.x, transition).expand(given.k.shape[:3])

        def eta(total: Tensor, i: int) -> Tensor:
            rows = Rows(total.unsqueeze(-1), None, self.readout.nonnegative, start=i)
            eta_i = self.normalization(given.x[:, i : i + 1], rows)
            return eta_i.expand(*total.shape, 1).squeeze(-1)

        scale = scale.exp() if self.scaling.log_space else scale
        A, qkv = transition.matrices(like=given.k), (given.q, given.k, given.v)
        return definition.sequence_model(*qkv, A, scale, self.readout.measure, eta)

    def coefficients(self, given: Projected) -> Coefficients:
        """alpha and eta in float64. A row that would overflow is scaled down to e^600 together
        with its eta, so that their ratio stays right."""
        double = Projected(given.x, given.q.double(), given.k.double(), given.v, given.direction)
        if self.evolution.dense:
            _, alpha, eta = self._defined(double)
            return Coefficients(alpha, eta, eta.isinf())
        stream = self.prepare(double)
        k, transition = stream.k.double(), stream.transition.map(torch.Tensor.double)
        alpha, shift = self._alpha(stream.q, k, transition)
        unit = stream.log_unit if shift is None else shift
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
    ) -> tuple[Float[Tensor, "b h i j"], Float[Tensor, "b h i"] | None]:
        """alpha, and the logarithm of each row's unit if scores are shifted."""
        readout, shift = self.readout, self.shifts_scores
        if can_serve(readout, q):
            return alpha_by_loops(self.evolution, readout, q, k, transition, shift)
        if readout.feature_map is not None:
            if not commutes(readout, self.evolution):
                return noncommuting_coefficients(q, k, transition, readout.feature_map), None
            (term,) = linear_terms(readout, q, k, transition)
            q, k, transition, readout = term.q, term.k, term.transition, Identity()
        flat = transition.map(lambda part: part.flatten(0, 1))
        inputs = Inputs(
            q.flatten(0, 1), k.flatten(0, 1), flat.log_decay, flat.direction, flat.strength
        )
        alpha, unit = coefficients(inputs, readout, shift)
        shape = q.shape[:2]
        return alpha.unflatten(0, shape), None if unit is None else unit.unflatten(0, shape)

    def _quadratic_sum(
        self, stream: Stream, shift: bool
    ) -> tuple[Float[Tensor, "b h t p"], Float[Tensor, "b h t"] | None]:
        q, k, v, transition = stream.q, stream.k, stream.v, stream.transition
        if self.readout.feature_map is None:
            return quadratic_form(q, k, v, transition, self.readout, shift)
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
