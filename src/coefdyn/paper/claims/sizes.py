"""Principles 5 and 6: the size of q . h, and eta."""

from collections.abc import Callable
from itertools import product

import pandas as pd

from coefdyn.principles.invariance import same_function
from coefdyn.results.claim import (
    ABOVE_CHANCE,
    POINT,
    SOLVED,
    Claim,
    Finding,
    NotEnoughRunsError,
    Tables,
    judged,
    points_of,
    value_of,
)

SEEDS = 3
SCALED, UNSCALED = ("inverse_sqrt", "gate_inverse_sqrt"), ("one", "gate")
FAMILIES = ("softmax_attention", "relu_attention", "mamba2", "householder")
WIKITEXT = "principle5_wikitext"
ALL = "all_principles_lm"
SMALL_GAP, PAR = 0.1, 0.02  # of perplexities
GOOD = 0.5  # an accuracy that is good, if not perfect
SPREAD = 1.2  # times the other, to be larger


def _spreads(tables: Tables, stem: str, families: tuple[str, ...] = FAMILIES) -> pd.DataFrame:
    """Largest minus smallest accuracy over seeds, for each family, b_j and head dimension."""
    points = points_of(tables, stem)
    sizes = sorted(points["n_state"].unique())
    points = points[points["model"].isin(families)]
    groups = points.groupby(["model", "scaling", "n_state"])["accuracy"]
    wanted = list(product(families, (*SCALED, *UNSCALED), sizes))
    counts = groups.count()
    lacking = sum(counts.get(key, 0) < SEEDS for key in wanted)
    if lacking or len(sizes) < 2:
        raise NotEnoughRunsError(
            f"{lacking} of {len(wanted)} points of {stem} have fewer than {SEEDS} seeds"
            + "; one head dimension" * (len(sizes) < 2)
        )
    return (groups.max() - groups.min()).rename("spread").reset_index()


def _unscaled_spreads_more(stem: str, family: str) -> Callable[[Tables], Finding]:
    def check(tables: Tables) -> Finding:
        rows = _spreads(tables, stem, (family,))
        scaled, unscaled = (
            float(rows[rows["scaling"].isin(names)]["spread"].mean())
            for names in (SCALED, UNSCALED)
        )
        said = f"mean spread {unscaled:.3f} without 1/sqrt(n), {scaled:.3f} with"
        norm = "none" if stem == "principle5_no_post_norm" else "all"
        designs = [
            [f"experiment={stem}", f"model={family}", f"model/scaling={name}",
             f"model.block.post_norm={norm}"]
            for name in ("one", "inverse_sqrt")
        ]  # fmt: skip
        same, words = same_function(*designs)
        if same:
            return Finding("invariant by construction", f"{words}; {said}")
        return judged(unscaled > max(SPREAD * scaled, scaled + POINT), said)

    return check


def _exp_spreads_most(stem: str) -> Callable[[Tables], Finding]:
    def check(tables: Tables) -> Finding:
        spread = _spreads(tables, stem)
        rows = spread[spread["scaling"].isin(UNSCALED)]
        mean = rows.groupby("model")["spread"].mean().sort_values(ascending=False)
        said = ", ".join(f"{name} {value:.3f}" for name, value in mean.items())
        first, second = mean.iloc[0], mean.iloc[1]
        larger = first > max(SPREAD * second, second + POINT)
        return judged(mean.index[0] == "softmax_attention" and larger, said)

    return check


def _no_trend(stem: str) -> Callable[[Tables], Finding]:
    def check(tables: Tables) -> Finding:
        spread = _spreads(tables, stem)
        rows = spread[spread["scaling"].isin(UNSCALED)].sort_values("n_state")
        steps = [group["spread"].diff().iloc[1:] for _, group in rows.groupby(["model", "scaling"])]
        rises, falls = (sum((way * step > 0).all() for step in steps) for way in (1, -1))
        said = f"from size to size it rises in {rises} and falls in {falls} of {len(steps)} rows"
        return judged(max(rises, falls) < len(steps), said)

    return check


def _eta(tables: Tables, stem: str, normalization: str, readout: str) -> float:
    wanted = {"normalization": normalization, "readout": readout}
    return value_of(tables, stem, "accuracy", **wanted)


def _sum_solves(stem: str) -> Callable[[Tables], Finding]:
    def check(tables: Tables) -> Finding:
        found = [_eta(tables, stem, "row_sum", phi) for phi in ("exp", "softplus", "relu")]
        said = f"accuracies {', '.join(f'{value:.2f}' for value in found)} for exp, softplus, relu"
        return judged(min(found) >= SOLVED, said)

    return check


def _exp_fails(stem: str) -> Callable[[Tables], Finding]:
    def check(tables: Tables) -> Finding:
        chance = float(points_of(tables, stem)["chance"].iloc[0])
        found = [_eta(tables, stem, name, "exp") for name in ("one", "power")]
        said = f"{found[0]:.2f} with eta = 1, {found[1]:.2f} with c^i; chance {chance:.2f}"
        return judged(max(found) <= chance + 2 * ABOVE_CHANCE, said)

    return check


def _power_helps(stem: str) -> Callable[[Tables], Finding]:
    def check(tables: Tables) -> Finding:
        pairs = list(product(("one", "power"), ("softplus", "relu")))
        found = {pair: _eta(tables, stem, *pair) for pair in pairs}
        ones, powers = (
            [found[(name, phi)] for phi in ("softplus", "relu")] for name in ("one", "power")
        )
        said = f"eta = 1: {ones[0]:.2f}, {ones[1]:.2f}; c^i: {powers[0]:.2f}, {powers[1]:.2f}"
        designs = [
            [f"experiment={stem}", f"model/normalization={name}", "model/readout=softplus"]
            for name in ("one", "power")
        ]
        same, words = same_function(*designs)
        if same:
            return Finding("invariant by construction", f"{words}; {said} (softplus, relu)")
        chance = float(points_of(tables, stem)["chance"].iloc[0])
        good = min(ones) > max(GOOD, chance + ABOVE_CHANCE)
        holds = good and max(ones) < SOLVED <= min(powers)
        return judged(holds, said + " (softplus, relu)")

    return check


def _perplexity(tables: Tables, model: str) -> float:
    return value_of(tables, WIKITEXT, "test/perplexity", model=model)


def _language_gap(tables: Tables) -> Finding:
    gaps = {
        family: _perplexity(tables, one) / _perplexity(tables, scaled) - 1
        for family, one, scaled in (
            ("Mamba-2", "mamba2_unscaled", "mamba2_inverse_sqrt"),
            ("softmax attention", "softmax_attention_unscaled", "softmax_attention"),
        )
    }
    said = ", ".join(f"{family} {gap:+.1%}" for family, gap in gaps.items())
    return judged(
        all(0 < gap < SMALL_GAP for gap in gaps.values()), f"b = 1 against 1/sqrt(n): {said}"
    )


def _language_par(tables: Tables) -> Finding:
    gap = _perplexity(tables, "mamba2_inverse_sqrt") / _perplexity(tables, "mamba2") - 1
    return judged(abs(gap) < PAR, f"1/sqrt(n) against Delta: {gap:+.1%}")


def _each_principle_counts(tables: Tables) -> Finding:
    """P1 is about cost, not about quality."""
    names = {f"P{n}": f"all_but_p{n}" for n in range(1, 7)}
    whole = value_of(tables, ALL, "test/perplexity", model="all_principles")
    worse: dict[str, float | None] = {}
    for principle, model in names.items():
        points = points_of(tables, ALL, model=model)
        diverged = points["diverged"].sum() == points["runs"].sum()
        found = None if diverged else value_of(tables, ALL, "test/perplexity", model=model)
        worse[principle] = None if found is None else found / whole - 1
    said = ", ".join(
        f"{name} {'diverged' if gap is None else f'{gap:+.1%}'}" for name, gap in worse.items()
    )
    holds = all(gap is None or gap > PAR for name, gap in worse.items() if name != "P1")
    return judged(holds, f"perplexity against {whole:.0f} with none broken: {said}")


def _claims_of(five: str, six: str, words: str) -> tuple[Claim, ...]:
    return (
        *(
            Claim(
                f"P5 spread, {family.replace('_', ' ')}{words}",
                f"For {family.replace('_', ' ')}, accuracies of three seeds lie further apart "
                "without 1/sqrt(n) in b_j.",
                f"a mean spread for b in {{1, z}} of at most {SPREAD} times that for b/sqrt(n), or "
                "less than a point above it",
                (five,),
                _unscaled_spreads_more(five, family),
            )
            for family in FAMILIES
        ),
        Claim(
            f"P5 exp spreads most{words}",
            "Without 1/sqrt(n), the spread is largest for phi = exp.",
            f"another family whose mean spread for b in {{1, z}}, times {SPREAD} or plus a point, "
            "is as large",
            (five,),
            _exp_spreads_most(five),
        ),
        Claim(
            f"P5 head dimension{words}",
            "Without 1/sqrt(n), the spread has no consistent trend with the head dimension.",
            "a spread that rises from each size to the next in all 8 rows, or falls in all",
            (five,),
            _no_trend(five),
        ),
        Claim(
            f"P6 sum{words}",
            "With a growing A, eta = sum solves noisy recall for every readout.",
            f"one of the three accuracies below {SOLVED}",
            (six,),
            _sum_solves(six),
        ),
        Claim(
            f"P6 exp fails{words}",
            "With a growing A, exp fails with eta = 1 and with eta = c^i.",
            f"an accuracy more than {2 * ABOVE_CHANCE} above chance",
            (six,),
            _exp_fails(six),
        ),
        Claim(
            f"P6 power{words}",
            "Softplus and relu are good but not perfect with eta = 1, and perfect with eta = c^i.",
            f"one of them below {GOOD} or at {SOLVED} with eta = 1, or below {SOLVED} with c^i",
            (six,),
            _power_helps(six),
        ),
    )


CLAIMS = (
    Claim(
        "P5 language, gap",
        "On WikiText, b = 1 has a slightly larger perplexity than b = 1/sqrt(n).",
        f"a gap below 0 or above {SMALL_GAP:.0%}, for Mamba-2 or softmax attention",
        (WIKITEXT,),
        _language_gap,
    ),
    Claim(
        "P5 language, Delta",
        "On WikiText, Mamba-2 with b = 1/sqrt(n) is on par with b = Delta.",
        f"perplexities more than {PAR:.0%} apart",
        (WIKITEXT,),
        _language_par,
    ),
    Claim(
        "All principles, language",
        "On WikiText, a design that breaks one of P2 to P6 has a larger perplexity than one that "
        "breaks none. (Ours, not the paper's.)",
        f"one that is less than {PAR:.0%} worse",
        (ALL,),
        _each_principle_counts,
    ),
    *_claims_of("principle5_scaling", "principle6_normalization", ""),
    *_claims_of("principle5_no_post_norm", "principle6_no_post_norm", " (no post-norm)"),
)
