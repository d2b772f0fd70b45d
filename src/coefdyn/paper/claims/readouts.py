"""Principles 1 and 2: forms, readouts and kernels."""

import math
from collections.abc import Callable, Iterator
from itertools import product

import pandas as pd

from coefdyn.paper.readouts import near_zero_set
from coefdyn.plot.style import task_name
from coefdyn.results.claim import (
    POINT,
    RHO,
    Claim,
    Finding,
    NotEnoughRunsError,
    Tables,
    judged,
    one_point,
    points_of,
    value_of,
)
from coefdyn.results.statistics import rank_correlation, slope

SCORES = ("exp", "softplus", "relu", "identity", "sigmoid", "elu_plus_one")
KERNELS = ("exp", "softplus", "relu", "elu_plus_one")
P1, READOUT, KERNEL, ZEROS = (
    "principle1_throughput",
    "principle2_readout",
    "principle2_1_kernel",
    "principle2_2_zeros",
)
BOTH = ("fuzzy_recall", "selective_copying")


def _slopes(tables: Tables) -> Finding:
    if P1 not in tables:
        raise NotEnoughRunsError(f"no table of {P1}")
    table, said, holds = tables[P1], [], True
    for form, low, high in (("linear", 0.75, 1.25), ("quadratic", 1.6, 2.4)):
        rows = table[table["form"] == form]
        if len(rows) < 4:
            raise NotEnoughRunsError(f"{len(rows)} lengths of the {form} form")
        fit = slope(list(rows["length"]), list(rows["milliseconds"]))
        said.append(f"{form} {fit.slope:.2f} (95 % {fit.low:.2f} to {fit.high:.2f})")
        holds = holds and low <= fit.slope <= high
    return judged(holds, "slope: " + ", ".join(said))


def set_rank(name: str) -> float:
    """Larger for a larger near-zero set: a half-line by its end, an interval below all of them.

    Ends are rounded to 0.01: exp, softplus, sigmoid and elu + 1 end at -6.907 to -6.908.
    """
    start, end = near_zero_set(name, 1e-3)[0]
    return round(end, 2) if math.isinf(start) else -math.inf


def _over_readouts(task: str, x: str, y: str) -> Callable[[Tables], Finding]:
    def check(tables: Tables) -> Finding:
        values = []
        for name in SCORES:
            point = one_point(tables, READOUT, task=task, readout=name)
            ours = {"set": max(set_rank(name), -1e9), **point}
            if not (math.isnan(ours[x]) or math.isnan(ours[y])):
                values.append((ours[x], round(ours[y] / POINT) if y == "accuracy" else ours[y]))
        if len(values) < 4:
            raise NotEnoughRunsError(f"{len(values)} of {len(SCORES)} readouts have a {x}")
        found = rank_correlation(*zip(*values, strict=True))
        if math.isnan(found.rho) and len({pair[0] for pair in values}) == 1:
            raise NotEnoughRunsError(f"all readouts have the same {x}")
        words = str(found) if found.rho == found.rho else f"all readouts have the same {y}"
        return judged(found.rho >= RHO, words)

    return check


def _readout_claims() -> Iterator[Claim]:
    relations = (
        ("set", "near_zero", "a larger near-zero set of phi gives a larger near-zero fraction"),
        ("near_zero", "accuracy", "a larger near-zero fraction gives a higher accuracy"),
        (
            "ratio",
            "accuracy",
            "a larger ratio of coefficients near 1 to near 0 gives a higher accuracy",
        ),
    )
    for task, (x, y, words) in product((*BOTH, "memorization"), relations):
        yield Claim(
            f"P2 {task_name(task)}, {x} to {y}".replace("_", " "),
            f"On {task_name(task)}, {words}.",
            f"a rank correlation below {RHO} over the readouts that have both, four at least",
            (READOUT,),
            _over_readouts(task, x, y),
        )


def _kernels(column: str) -> Callable[[Tables], Finding]:
    def check(tables: Tables) -> Finding:
        pairs = []
        for task, name in product(BOTH, KERNELS):
            kernel = value_of(tables, KERNEL, column, task=task, readout=f"kernel_{name}")
            score = value_of(tables, READOUT, column, task=task, readout=name)
            pairs.append((kernel, score))
        margin = POINT if column == "accuracy" else 0.0
        lower = sum(kernel < score - margin for kernel, score in pairs)
        higher = sum(kernel > score + margin for kernel, score in pairs)
        said = f"lower in {lower} of {len(pairs)} pairs, higher in {higher}"
        return judged(higher == 0 and lower > len(pairs) / 2, said)

    return check


def _kernels_exceed_identity(tables: Tables) -> Finding:
    held = []
    for task, name in product(BOTH, ("elu_plus_one", "softplus", "exp")):
        kernel = value_of(tables, KERNEL, "near_zero", task=task, readout=f"kernel_{name}")
        held.append(kernel > value_of(tables, READOUT, "near_zero", task=task, readout="identity"))
    return judged(all(held), f"larger in {sum(held)} of {len(held)} pairs")


def _with_zeros(tables: Tables) -> pd.DataFrame:
    points = points_of(tables, ZEROS)
    for task, name in product(BOTH, ("kernel_softplus", "kernel_exp")):
        points_of(tables, ZEROS, task=task, readout=name)
    if points["mean_zeros"].isna().any():
        raise NotEnoughRunsError(f"{ZEROS} has points whose runs all diverged")
    return points


def _zero_limit(tables: Tables) -> Finding:
    points = _with_zeros(tables)
    most, limit = points["mean_zeros"].max(), points["zero_limit"].min()
    single = int(points["most_zeros"].max())
    statistic = (
        f"at most {most:.2f} zeros (mean over sequences), {single} in one sequence; limit {limit}"
    )
    return judged(bool((points["mean_zeros"] <= points["zero_limit"]).all()), statistic)


def _longer_has_more_zeros(tables: Tables) -> Finding:
    points = _with_zeros(tables)
    lengths = points.groupby("task")["seq_len"].first().sort_values()
    if len(lengths) < 2 or lengths.iloc[0] == lengths.iloc[-1]:
        raise NotEnoughRunsError(f"both tasks have length {lengths.iloc[0]} at this scale")
    mean = points.groupby("task")["mean_zeros"].mean()
    short, long = mean[lengths.index[0]], mean[lengths.index[-1]]
    return judged(
        long > short, f"{long:.2f} at length {lengths.iloc[-1]}, {short:.2f} at {lengths.iloc[0]}"
    )


CLAIMS = (
    Claim(
        "P1 slopes",
        "Time grows as L for the linear form and as L^2 for the quadratic form.",
        "a fitted slope outside [0.75, 1.25] or [1.6, 2.4]",
        (P1,),
        _slopes,
    ),
    *_readout_claims(),
    Claim(
        "P2.1 kernels, near zero",
        "A kernel has a smaller near-zero fraction than the readout of the same function.",
        "one of the 8 pairs (4 functions, 2 tasks) the other way round, or half of them equal",
        (KERNEL, READOUT),
        _kernels("near_zero"),
    ),
    Claim(
        "P2.1 kernels, accuracy",
        "A kernel has a lower accuracy than the readout of the same function.",
        "a pair of the 8 in which the kernel is more than a point better, or half of them equal",
        (KERNEL, READOUT),
        _kernels("accuracy"),
    ),
    Claim(
        "P2.1 kernels and identity",
        "The kernels of elu + 1, softplus and exp have larger near-zero fractions than identity.",
        "one of the 6 pairs the other way round",
        (KERNEL, READOUT),
        _kernels_exceed_identity,
    ),
    Claim(
        "P2.2 limit",
        "The number of zeros in a row, a mean over sequences, never exceeds n/H - 1 in any layer "
        "and head.",
        "a step of a head with more zeros, in the mean over sequences",
        (ZEROS,),
        _zero_limit,
    ),
    Claim(
        "P2.2 length",
        "The longer task has more zeros.",
        "fewer zeros on the longer task",
        (ZEROS,),
        _longer_has_more_zeros,
    ),
)
