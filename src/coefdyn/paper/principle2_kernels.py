"""Principles 2.1 and 2.2: kernels against readouts of a score, and how many zeros a row has."""

from collections.abc import Callable
from itertools import product

import pandas as pd
from matplotlib.figure import Figure

from coefdyn.paper.looks import KERNELS, NEAR_ZERO, READOUTS, readout_look
from coefdyn.paper.points import chance_of
from coefdyn.plot.style import PAGE, accuracy_axis, legend_below, paper_style, task_name
from coefdyn.results.claim import (
    POINT,
    Claim,
    Judgement,
    NotEnoughRunsError,
    Tables,
    judged,
    points_of,
    value_of,
)
from coefdyn.results.experiment import Experiment, Records

READOUT, KERNEL, ZEROS = "principle2_readout", "principle2_1_kernel", "principle2_2_zeros"
INDEX = f"{ZEROS}_index"
INDEX_COLUMNS = ["scale", "task", "readout", "layer", "head", "index", "zeros", "limit", "run_id"]
TASKS = ("fuzzy_recall", "selective_copying")


def draw_kernels(tables: Tables) -> Figure:
    points, scores = tables[KERNEL], tables[READOUT]
    with paper_style():
        figure = Figure(figsize=(PAGE * 0.75, 2.7), layout="constrained")
        for axes, task in zip(figure.subplots(1, 2), TASKS, strict=True):
            rows = points[points["task"] == task]
            for row in rows.to_dict("records"):
                label, colour = readout_look(row["readout"])
                axes.plot(row["near_zero"], row["accuracy"], "s", color=colour, label=label)
            for name in ("exp", "identity"):
                line = scores[(scores["task"] == task) & (scores["readout"] == name)]
                label, colour = READOUTS[name]
                for level in line["accuracy"]:
                    axes.axhline(level, color=colour, linestyle=":", label=label)
            axes.set(title=task_name(task), xlabel=NEAR_ZERO)
            accuracy_axis(axes, chance_of(rows))
        legend_below(figure, columns=6)
    return figure


def draw_zeros(tables: Tables) -> Figure:
    table = tables[INDEX]
    with paper_style():
        figure = Figure(figsize=(PAGE * 0.75, 2.5), layout="constrained")
        for axes, task in zip(figure.subplots(1, 2, sharey=True), TASKS, strict=True):
            rows = table[table["task"] == task]
            for name, line in rows.groupby("readout", sort=False):
                label, colour = readout_look(str(name))
                axes.plot(line["index"], line["zeros"], color=colour, label=label)
            if len(rows):
                limit = rows["limit"].iloc[0]
                axes.axhline(limit, color="0.3", linestyle="--", linewidth=0.9)
                axes.annotate(f"$n/H - 1 = {limit}$", (0.02, limit), va="bottom", fontsize=7,
                              xycoords=("axes fraction", "data"))  # fmt: skip
                axes.set_ylim(-0.3, 1.2 * max(limit, table["zeros"].max()) + 0.3)
            axes.set(title=task_name(task), xlabel="time index $i$")
        figure.axes[0].set_ylabel(r"number of $|\alpha_{ij}| \leq 10^{-6}$")
        legend_below(figure, columns=2)
    return figure


def zeros_per_index(points: pd.DataFrame, records: Records) -> pd.DataFrame:
    """Zeros at each step of the head of layer 1 that has most, in the best run of each point."""
    rows = []
    for point in points.to_dict("records"):
        record = records[point["run_id"]]
        if record is None or record.coefficients is None:
            continue
        heads = record.coefficients["per_head"]["zeros_per_index"][0]
        head = max(range(len(heads)), key=lambda h: sum(heads[h]))
        shared = {name: point[name] for name in ("scale", "task", "readout", "run_id")}
        shared |= {"layer": 1, "head": head + 1, "limit": point["zero_limit"]}
        rows += [shared | {"index": i, "zeros": z} for i, z in enumerate(heads[head], 1)]
    return pd.DataFrame(rows, columns=INDEX_COLUMNS)


def _smaller(column: str) -> Callable[[Tables], Judgement]:
    def check(tables: Tables) -> Judgement:
        pairs = []
        for task, kernel in product(TASKS, KERNELS):
            score = kernel.removeprefix("kernel_")
            ours = value_of(tables, KERNEL, column, task=task, readout=kernel)
            pairs.append((ours, value_of(tables, READOUT, column, task=task, readout=score)))
        margin = POINT if column == "accuracy" else 0.0
        lower = sum(kernel < score - margin for kernel, score in pairs)
        higher = sum(kernel > score + margin for kernel, score in pairs)
        statistic = f"lower in {lower} of {len(pairs)} pairs, higher in {higher}"
        return judged(higher == 0 and lower > len(pairs) / 2, statistic)

    return check


def _exceed_identity(tables: Tables) -> Judgement:
    larger = []
    for task, name in product(TASKS, ("elu_plus_one", "softplus", "exp")):
        kernel = value_of(tables, KERNEL, "near_zero", task=task, readout=f"kernel_{name}")
        identity = value_of(tables, READOUT, "near_zero", task=task, readout="identity")
        larger.append(kernel > identity)
    return judged(all(larger), f"larger in {sum(larger)} of {len(larger)} pairs")


def _with_zeros(tables: Tables) -> pd.DataFrame:
    points = points_of(tables, ZEROS)
    for task, name in product(TASKS, ("kernel_softplus", "kernel_exp")):
        points_of(tables, ZEROS, task=task, readout=name)
    if points["mean_zeros"].isna().any():
        raise NotEnoughRunsError(f"{ZEROS} has points whose runs all diverged")
    return points


def _zero_limit(tables: Tables) -> Judgement:
    points = _with_zeros(tables)
    most, limit = points["mean_zeros"].max(), points["zero_limit"].min()
    single = int(points["most_zeros"].max())
    statistic = (
        f"at most {most:.2f} zeros (mean over sequences), {single} in one sequence; limit {limit}"
    )
    return judged((points["mean_zeros"] <= points["zero_limit"]).all(), statistic)


def _longer_has_more_zeros(tables: Tables) -> Judgement:
    points = _with_zeros(tables)
    lengths = points.groupby("task")["seq_len"].first().sort_values()
    if len(lengths) < 2 or lengths.iloc[0] == lengths.iloc[-1]:
        raise NotEnoughRunsError(f"both tasks have length {lengths.iloc[0]} at this scale")
    mean = points.groupby("task")["mean_zeros"].mean()
    short, long = mean[lengths.index[0]], mean[lengths.index[-1]]
    return judged(
        long > short, f"{long:.2f} at length {lengths.iloc[-1]}, {short:.2f} at {lengths.iloc[0]}"
    )


EXPERIMENTS = (
    Experiment(
        KERNEL,
        caption="Principle 2.1. Accuracy of kernels psi(q) . psi(h) against the fraction of "
        "coefficients near zero. Dotted: accuracy of softmax attention (exp) and of the identity "
        "readout, from principle2_readout.",
        draw=draw_kernels,
        needs=(READOUT,),
        claims=(
            Claim(
                "P2.1 kernels, near zero",
                "A kernel has a smaller near-zero fraction than the readout of the same function.",
                "one of the 8 pairs (4 functions, 2 tasks) the other way round, or half of them "
                "equal",
                (KERNEL, READOUT),
                _smaller("near_zero"),
            ),
            Claim(
                "P2.1 kernels, accuracy",
                "A kernel has a lower accuracy than the readout of the same function.",
                "a pair of the 8 in which the kernel is more than a point better, or half of them "
                "equal",
                (KERNEL, READOUT),
                _smaller("accuracy"),
            ),
            Claim(
                "P2.1 kernels and identity",
                "The kernels of elu + 1, softplus and exp have larger near-zero fractions than "
                "identity.",
                "one of the 6 pairs the other way round",
                (KERNEL, READOUT),
                _exceed_identity,
            ),
        ),
    ),
    Experiment(
        ZEROS,
        caption="Principle 2.2. Number of raw coefficients of size at most 1e-6 at each step, mean "
        "over 64 sequences, for the head of layer 1 that has most; dashed: the limit n/H - 1. The "
        "same runs as principle2_1_kernel.",
        draw=draw_zeros,
        needs=(INDEX,),
        more={INDEX: zeros_per_index},
        claims=(
            Claim(
                "P2.2 limit",
                "The number of zeros in a row, a mean over sequences, never exceeds n/H - 1 in any "
                "layer and head.",
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
        ),
    ),
)
