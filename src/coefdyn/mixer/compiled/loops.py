"""A design by compiled loops: which of them, and what of its readout they take."""

from functools import partial

from jaxtyping import Float, Float64
from torch import Tensor

from coefdyn.mixer.compiled.form import Sums, pairs_form, scan_form
from coefdyn.mixer.compiled.kernels import fits
from coefdyn.mixer.compiled.known import agrees, features, obstacle
from coefdyn.mixer.forms.choice import prefers_scan
from coefdyn.mixer.forms.features import Term, commutes, linear_terms, weighted_sum
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.readout import Identity, Readout
from coefdyn.mixer.slots.transition import Transition


def can_serve(readout: Readout, evolution: Evolution, weight: Tensor) -> bool:
    """Whether loops can compute designs with these and such weights, here and now."""
    return fits(weight) and obstacle(readout, evolution) is None and agrees(readout)


def sums_by_loops(
    evolution: Evolution,
    readout: Readout,
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    v: Float[Tensor, "b h t p"],
    transition: Transition,
    sums: Sums,
    shift: bool,
    scale: float,
    added: Float64[Tensor, "b h t"] | None,
) -> tuple[Float[Tensor, "b h t m"], Float[Tensor, "b h t"] | None, Sums]:
    """sum_{j <= i} alpha_ij v_j, queries times `scale`: over time where a state is the smaller
    work, else over pairs; the logarithm of each row's unit where scores were shifted; and what
    became of the row sums."""
    if prefers_scan(readout, evolution, q.shape[2], q.shape[3], v.shape[3]):
        mixed = readout.homogeneous != 1 or added is not None
        if mixed and scale != 1:  # not all terms, or channels, have one power of it
            q, scale = q * scale, 1.0
        terms = _terms(readout, q, k, transition, added)
        if len(terms) > 1 and sums == Sums.DIVIDED:  # each term has a part of the sum only
            sums = Sums.BESIDE
        parts = [scan_form(term.q, term.k, v, term.transition, sums, scale) for term in terms]
        return weighted_sum(terms, parts), None, sums
    phi, q, k, transition = _paired(evolution, readout, q, k, transition)
    y, unit, _ = pairs_form(q, k, v, transition, phi, sums, shift, scale=scale, added=added)
    return y, unit, sums


def alpha_by_loops(
    evolution: Evolution,
    readout: Readout,
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    transition: Transition,
    shift: bool,
    added: Float64[Tensor, "b h t"] | None,
) -> tuple[Float[Tensor, "b h i j"], Float[Tensor, "b h i"] | None]:
    """The coefficients themselves, and units as above. They carry no gradient."""
    phi, q, k, transition = _paired(evolution, readout, q, k, transition)
    _, unit, alpha = pairs_form(
        q, k, q[..., :0], transition, phi, Sums.ALONE, shift, keep_alpha=True, added=added
    )
    assert alpha is not None
    return alpha, unit


def _paired(
    evolution: Evolution,
    readout: Readout,
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    transition: Transition,
) -> tuple[Readout, Tensor, Tensor, Transition]:
    """A kernel whose features commute with A_t is the identity on features."""
    if readout.feature_map is None or not commutes(readout, evolution):
        return readout, q, k, transition
    (term,) = _terms(readout, q, k, transition)
    return Identity(), term.q, term.k, term.transition


def _terms(
    readout: Readout,
    q: Float[Tensor, "b h t n"],
    k: Float[Tensor, "b h t n"],
    transition: Transition,
    added: Float64[Tensor, "b h t"] | None = None,
) -> list[Term]:
    psi = readout.feature_map
    compiled = None if psi is None else partial(features, psi)
    return linear_terms(readout, q, k, transition, compiled, added)
