"""One line per principle: whether a design keeps it, by which number, and what to change."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Literal

from torch import nn

from coefdyn.config.compose import Config
from coefdyn.config.pattern import designs_of
from coefdyn.mixer.design import Design
from coefdyn.mixer.forms.features import feature_widths
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.principles.measure import (
    LENGTHS,
    Trend,
    coefficient_growth,
    kernel_zeros,
    mixer_of,
    positional_difference,
    scales_channels_apart,
    score_variance,
    spectrum,
)

Verdict = Literal["pass", "warn", "break"]
EPS = 1e-3  # |phi| up to this is near zero
FLAT = 0.25  # exponents up to this count as constant
BOUNDED = 10.0  # variances up to this count as of order 1
GROWTH = 10.0  # factors above this, from the shortest to the longest sequence, count as growth
DIFFERENT = 1e-9  # coefficients of equal tokens that differ by more show position


@dataclass(frozen=True)
class Line:
    """The verdict on one principle: the number behind it, the reason, and what to change."""

    principle: str
    verdict: Verdict
    number: str
    reason: str
    change: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class Report:
    """The verdicts on a design. `facts` are neither good nor bad."""

    lines: tuple[Line, ...]
    facts: dict[str, str]

    @property
    def broken(self) -> list[Line]:
        return [line for line in self.lines if line.verdict == "break"]

    def __str__(self) -> str:
        lines = [f"{x.principle:<20} {x.verdict:<6} {x.number}: {x.reason}" for x in self.lines]
        return "\n".join([*lines, *(f"{name}: {fact}" for name, fact in self.facts.items())])


def check(config: Config) -> Report:
    """Measure the design of `config` on random input, and judge it by each principle. Of a hybrid,
    each of its designs."""
    designs = designs_of(config)
    if len(designs) == 1:
        return _checked(next(iter(designs.values())))
    reports = {name: _checked(design) for name, design in designs.items()}
    lines = tuple(
        replace(line, principle=f"{name}: {line.principle}")
        for name, report in reports.items()
        for line in report.lines
    )
    facts = {f"{name}: {fact}": x for name, r in reports.items() for fact, x in r.facts.items()}
    return Report(lines, facts)


def _checked(config: Config) -> Report:
    model = config.settings.model
    head = model.n_state // model.n_heads
    mixer = mixer_of(config, head)
    design = mixer.design
    eigenvalues = spectrum(config, head)
    sizes = eigenvalues.abs()
    facts = {
        "output class": design.output_class + _zero_rows(design),
        "eigenvalues of A_t": f"|lambda| from {sizes.min():.3g} to {sizes.max():.3g}, "
        f"real part from {eigenvalues.real.min():.3g}",
        "the norm hides": _hidden(config, design),
    }
    lines = (
        _implementation(design, head, model.d_value // model.n_heads),
        _selectivity(design),
        _kernel(design, mixer),
        _zero_limit(design, head),
        _position(config, design, head),
        _transformations(design, scales_channels_apart(config)),
        _variance(score_variance(config), head),
        _stability(design, coefficient_growth(config, head)),
    )
    return Report(lines, facts)


def _linear(design: Design) -> bool:
    """Whether phi is linear in features of q and h: the identity, or a kernel."""
    return design.readout.feature_map is not None or design.readout.polynomial_degree == 1


def _implementation(design: Design, head: int, value: int) -> Line:
    if design.recurrence_obstacle is not None:
        exists = design.readout.polynomial_degree is not None
        words = "not implemented" if exists else "no finite recurrent form"
        return Line("P1 recurrent form", "warn", "state: not implemented" if exists else
                    "state: none", f"{words}, O(L^2) time: {design.recurrence_obstacle}",
                    "a polynomial readout, or a kernel that commutes with A_t")  # fmt: skip
    channels = head + 2 * design.evolution.has_shear
    size = sum(feature_widths(design.readout, channels)) * value
    return Line("P1 recurrent form", "pass", f"state: {size} per head", "O(L) time, by recurrence")


def _gated(design: Design) -> bool:
    """Whether A_t or b_j can drive a key to zero, depending on the input."""
    turns = design.evolution.has_direction  # along k_t or z_t, which depend on the input
    return turns or _learns(design.evolution) or _learns(design.scaling)


def _learns(slot: nn.Module) -> bool:
    return any(True for _ in slot.parameters())


def _selectivity(design: Design) -> Line:
    name = "P2 near-zero set"
    if design.readout.feature_map is not None:
        return Line(name, "pass", "see P2.1", "a kernel is no function of the score")
    intervals = design.readout.near_zero_set(EPS)
    length = sum(end - start for start, end in intervals)
    near_zero = ", ".join(f"[{start:.4g}, {end:.4g}]" for start, end in intervals)
    if math.isinf(length):
        return Line(name, "pass", near_zero, f"a half-line of scores gives |phi| <= {EPS:g}")
    reason = f"|phi| <= {EPS:g} on {length:.3g} of the line: scores are rarely near zero"
    if _gated(design):
        return Line(name, "warn", near_zero, f"{reason}; A_t or b_j must suppress keys instead",
                    "exp, softplus or relu, if a quadratic form will do")  # fmt: skip
    return Line(name, "break", near_zero, f"{reason}, and neither A_t nor b_j depends on the input",
                "exp, softplus or relu; or a gated A_t or b_j")  # fmt: skip


def _kernel(design: Design, mixer: SequenceMixer) -> Line:
    if design.readout.feature_map is None:
        return Line("P2.1 kernel", "pass", "no kernel", "phi acts on the score itself")
    zeros = kernel_zeros(mixer)
    if zeros.exact == zeros.measured == 0:
        return Line("P2.1 kernel", "warn", "zero set: empty",
                    "psi > 0, so psi(q) . psi(h) is never zero: selectivity is fragile",
                    "a readout of the score")  # fmt: skip
    number = f"zero set: {zeros.exact:.2g} of random pairs (measured {zeros.measured:.2g})"
    return Line("P2.1 kernel", "warn", number,
                "psi can vanish, so the zero set has a measure, against Corollary 2.1; but it "
                "shrinks as a power of n: selectivity is fragile",
                "a readout of the score")  # fmt: skip


def _zero_at_zero_only(design: Design) -> bool:
    """Whether phi is near zero only around s = 0, as tanh is: only orthogonal keys give that."""
    intervals = design.readout.near_zero_set(EPS)
    return len(intervals) == 1 and -1 < intervals[0][0] < 0 < intervals[0][1] < 1


def _zero_limit(design: Design, head: int) -> Line:
    if not _linear(design) and not _zero_at_zero_only(design):
        return Line("P2.2 zeros per row", "pass", "no limit", "phi is not linear")
    return Line("P2.2 zeros per row", "warn", f"of independent keys at most {head - 1}",
                "a query is orthogonal to n/H - 1 independent keys at most; dependent ones, as of "
                "a decaying A_t, may be more",
                "a larger n, fewer heads, or a nonlinear readout")  # fmt: skip


def _position(config: Config, design: Design, head: int) -> Line:
    name, choices = "P3 position", config.choices
    difference = positional_difference(config, head)
    number = f"equal tokens differ by {difference:.2g}"
    if _operations(design.evolution, False) and difference > DIFFERENT:
        return Line(name, "pass", number, "A_t is not I: coefficients know their distance")
    if choices["model/position"] != "none":
        reason = f"A_t = I has no position, position={choices['model/position']} gives it"
        return Line(name, "pass", number, reason)
    if choices["model/preprocess"] != "none":
        return Line(name, "warn", number,
                    "A_t = I has no position; the convolution lets a key depend on its "
                    "neighbours, a way to position that the principle leaves out",
                    "positions, or A_t other than I")  # fmt: skip
    return Line(name, "break", number, "A_t = I and no positions: order is invisible",
                "model/position=learned, or another A_t such as evolution=constant")  # fmt: skip


def _transformations(design: Design, apart: bool) -> Line:
    """`apart`: whether A_t scales channels by different factors."""
    name, evolution = "P4 transformations", design.evolution
    number = ", ".join(_operations(evolution, apart)) or "none"
    if not _linear(design):
        return Line(name, "pass", number, "a nonlinear readout does not depend on them")
    if evolution.has_direction:
        reason = "keys can be turned; unit vectors keep the eigenvalue 1 - beta in [-1, 1]"
        if evolution.two_sided:
            reason = "keys can be turned; what is read is taken off along another vector"
        return Line(name, "pass", number, reason)
    if evolution.has_angle:
        return Line(name, "pass", number, "keys can be turned, pair by pair of channels")
    if apart:
        return Line(name, "pass", number, "keys can be weighted by channel")
    return Line(name, "warn", number, "a linear readout needs A_t to change keys",
                "a diagonal A_t, or a Householder")  # fmt: skip


def _operations(evolution: Evolution, apart: bool) -> list[str]:
    """What A_t may do to a key; `apart`: whether it scales channels by different factors."""
    reflects, decays = evolution.has_direction, evolution.has_decay
    times = f" {evolution.repeats} times a step" * (evolution.repeats > 1)
    along = "reading along one vector and erasing along another" if evolution.two_sided else (
        f"scaling and reflection along unit vectors{times}"
    )  # fmt: skip
    scaling = "decay" if reflects else (
        "scaling of each channel" if apart else "scaling of all channels alike"
    )  # fmt: skip
    parts = {
        along: reflects,
        scaling: decays,
        "change of sign": evolution.signed,
        "rotation of pairs of channels": evolution.has_angle,
        "shear, added to scores": evolution.has_shear,
    }
    return [name for name, present in parts.items() if present]


def _variance(trend: Trend, head: int) -> Line:
    level = trend.at(head)
    name = "P5 score variance"
    if math.isnan(level):
        return Line(name, "break", "nan", "scores are not numbers", "another b_j")
    number = f"{level:.3g} at n/H = {head}, exponent {trend.exponent:.2f}"
    if trend.exponent < -FLAT and level <= BOUNDED:
        return Line(name, "pass", number, "falls with n: q and k are unit vectors, or b_j is small")
    if trend.exponent <= FLAT and level <= BOUNDED:
        return Line(name, "pass", number, "O(1) in the head dimension")
    if level <= 1:
        reach = int(head * level ** (-1 / trend.exponent)) if trend.exponent > FLAT else 0
        until = f", up to n/H = {reach}" * bool(reach)
        return Line(name, "pass", number, f"grows with n, but stays below 1 by its level{until}")
    return Line(name, "break", number, "Var(q . h) grows with n, or is far from 1",
                "1/sqrt(n) in b_j: model/scaling=inverse_sqrt or gate_inverse_sqrt")  # fmt: skip


def _stability(design: Design, trend: Trend) -> Line:
    name = "P6 growth"
    first, last = trend.values[0], trend.values[-1]
    factor = math.inf if math.isinf(last) else last / max(first, 1e-300)
    number = f"|alpha/eta| {factor:.3g} times, L {LENGTHS[0]} to {LENGTHS[-1]}"
    follows = design.normalization.scale_invariant or design.normalization.accepts_unit
    if math.isnan(factor):
        return Line(name, "break", number, "coefficients are not numbers", "another A_t or eta")
    grows = "A_t may exceed 1" if design.evolution.may_grow else "A_t does not grow"
    if factor > GROWTH:
        return Line(name, "break", number, f"{grows}, and eta does not keep up",
                    "model/normalization=row_sum, or an A_t within the unit circle")  # fmt: skip
    if factor < 1 / GROWTH and not design.evolution.may_grow and not follows:
        return Line(name, "warn", number, "eta outgrows the coefficients, which vanish",
                    "model/normalization=one or row_sum")  # fmt: skip
    if design.evolution.may_grow and not follows and _learns(design.evolution):
        return Line(name, "warn", number, f"{grows} once it is trained, and eta does not follow",
                    "model/normalization=row_sum or mlstm")  # fmt: skip
    return Line(name, "pass", number, f"{grows}" + ", and eta follows the coefficients" * follows)


def _zero_rows(design: Design) -> str:
    """A remark for relu and the like: eta = row sum leaves a row of zeros at zero."""
    zero = design.readout.nonnegative and design.readout.feature_map is None
    zero = zero and any(math.isinf(s) and e > 0 for s, e in design.readout.near_zero_set(1e-12))
    return " (or zero)" * (zero and design.normalization.sums_to_one)


def _hidden(config: Config, design: Design) -> str:
    """The factors that can change without a change of the block's output."""
    norm = config.settings.model.block.get("post_norm", "none") != "none"
    by_sum = design.normalization.scale_invariant
    hidden = []
    by_norm = norm and not design.normalization.uses_row_sum
    factor = design.readout.homogeneous is not None and not design.evolution.has_shear
    if factor and (by_sum or by_norm):
        hidden.append("a constant factor in b_j")
    if by_norm:
        hidden.append("a factor of eta_i that all heads share, such as c^i")
    return "; ".join(hidden) or "nothing"
