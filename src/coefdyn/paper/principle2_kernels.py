"""Principles 2.1 and 2.2: kernels against readouts of a score, and the number of zeros in a row."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise, product

import pandas as pd
from matplotlib.figure import Figure

from coefdyn.paper.looks import KERNELS, NEAR_ZERO, readout_look
from coefdyn.paper.points import chance_of, seeds_of
from coefdyn.plot.style import PAGE, accuracy_axis, legend_below, paper_style, show_seeds, task_name
from coefdyn.results.claim import (
    Claim,
    Effect,
    NotEnoughRunsError,
    Region,
    Tables,
    effect_of,
)
from coefdyn.results.effects import contrast, rates_inside, solved_by, values_of
from coefdyn.results.experiment import Experiment, Records
from coefdyn.results.variance import reach_of, weighted_sum

READOUT, KERNEL, ZEROS = "principle2_readout", "principle2_1_kernel", "principle2_2_zeros"
LENGTH = "principle2_2_length"
INDEX = f"{ZEROS}_index"
INDEX_COLUMNS = ["scale", "task", "readout", "layer", "head", "index", "zeros", "limit", "run_id"]
TASKS = ("fuzzy_recall", "selective_copying")


def draw_kernels(tables: Tables) -> Figure:
    points, scores = tables[KERNEL], tables[READOUT]
    with paper_style():
        figure = Figure(figsize=(PAGE * 0.75, 2.7), layout="constrained")
        for axes, task in zip(figure.subplots(1, 2), TASKS, strict=True):
            rows = points[points["task"] == task]
            references = scores[
                (scores["task"] == task) & scores["readout"].isin(["exp", "identity"])
            ]
            for stem, selected, marker in ((KERNEL, rows, "s"), (READOUT, references, "*")):
                for row in selected.to_dict("records"):
                    label, colour = readout_look(row["readout"])
                    x, y = (seeds_of(tables, stem, row, c) for c in ("near_zero", "accuracy"))
                    if len(x) == len(y):
                        show_seeds(axes, x, y, (reach_of(x), reach_of(y)), colour)
                    axes.plot(row["near_zero"], row["accuracy"], marker, color=colour, label=label)
                    if stem == READOUT:
                        axes.axhline(row["accuracy"], color=colour, linestyle=":", linewidth=0.8)
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


def draw_lengths(tables: Tables) -> Figure:
    points = tables[LENGTH]
    with paper_style():
        figure = Figure(figsize=(PAGE * 0.5, 2.5), layout="constrained")
        axes = figure.subplots()
        lengths = sorted(points["seq_len"].unique())
        most = 0.0
        for place, (name, line) in enumerate(points.groupby("readout", sort=False)):
            label, colour = readout_look(str(name))
            line = line.sort_values("seq_len")
            shift = 0.05 * (2 * place - 1)  # side by side, since both may be zero
            axes.plot([lengths.index(x) + shift for x in line["seq_len"]], line["mean_zeros"],
                      "_-", color=colour, label=label)  # fmt: skip
            for row in line.to_dict("records"):
                seeds = seeds_of(tables, LENGTH, row, "mean_zeros")
                most = max(most, float(row["mean_zeros"] or 0), *seeds)
                show_seeds(axes, lengths.index(row["seq_len"]) + shift, seeds, (0.0, 0.0), colour)
        axes.set_xticks(range(len(lengths)), [str(length) for length in lengths])
        axes.set(xlabel="sequence length", ylabel=r"number of $|\alpha_{ij}| \leq 10^{-6}$")
        axes.set_ylim(-0.3, max(1.0, 1.2 * most))
        legend_below(figure, columns=2)
    return figure


def zeros_per_index(points: pd.DataFrame, records: Records) -> pd.DataFrame:
    """Zeros at each step, in the best run of each point, of the head of layer 1 with the most."""
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


PLACE = "Principle 2, Corollaries 2.1 and 2.2"


def _where(task: str, readout: str) -> dict[str, object]:
    return {"task": task, "readout": readout}


def _differences(task: str, column: str, least: float) -> Callable[[Tables], list[Effect]]:
    """Readouts minus kernels of the same function, averaged over the functions."""

    def effects(tables: Tables) -> list[Effect]:
        share = 1 / len(KERNELS)
        terms = [(share, READOUT, column, _where(task, k.removeprefix("kernel_"))) for k in KERNELS]
        terms += [(-share, KERNEL, column, _where(task, kernel)) for kernel in KERNELS]
        name = f"{column.replace('_', ' ')}: readout - kernel"
        return [contrast(tables, name, terms, Region(least))]

    return effects


def _above_identity(task: str) -> Callable[[Tables], list[Effect]]:
    def effects(tables: Tables) -> list[Effect]:
        differences = []
        for name in ("elu_plus_one", "softplus", "exp"):
            terms = [(1.0, KERNEL, "near_zero", _where(task, f"kernel_{name}")),
                     (-1.0, READOUT, "near_zero", _where(task, "identity"))]  # fmt: skip
            words = f"near zero: kernel {name.replace('_', ' ')} - identity"
            differences.append(contrast(tables, words, terms, Region(0.005)))
        return differences

    return effects


def _kernel_claims() -> Iterator[Claim]:
    for task in TASKS:
        name, points = task_name(task), tuple(_where(task, kernel) for kernel in KERNELS)
        learned = (solved_by(READOUT, _where(task, "exp")), rates_inside(KERNEL, points))
        needs = (KERNEL, READOUT)
        readouts = (*(kernel.removeprefix("kernel_") for kernel in KERNELS), "identity")
        reads = (*points, *(_where(task, name) for name in readouts))  # both sides of differences
        yield Claim(
            f"P2.1 {name}, near zero",
            f"On {name}, a kernel has fewer coefficients near zero than the readout of the same "
            "function.",
            PLACE, needs, _differences(task, "near_zero", 0.05), learned, reads=reads,
            other_reading=_differences(task, "near_zero_raw", 0.05),
        )  # fmt: skip
        yield Claim(
            f"P2.1 {name}, accuracy",
            f"On {name}, a kernel has a lower accuracy than the readout of the same function.",
            PLACE, needs, _differences(task, "accuracy", 0.02), learned, reads=reads,
        )  # fmt: skip
        yield Claim(
            f"P2.1 {name}, identity",
            f"On {name}, kernels of elu + 1, softplus and exp have more coefficients near zero "
            "than the identity.",
            PLACE, needs, _above_identity(task), learned, reads=reads,
        )  # fmt: skip


def _points(tables: Tables, stem: str) -> pd.DataFrame:
    if stem not in tables:
        raise NotEnoughRunsError(f"no table of {stem}")
    return tables[stem]


def _below_limit(tables: Tables) -> list[Effect]:
    """The largest mean number of zeros at every point, against its limit."""
    effects = []
    for point in _points(tables, ZEROS).to_dict("records"):
        where = {name: point[name] for name in ("task", "readout", "seq_len")}
        values = values_of(tables, ZEROS, "mean_zeros", where)
        design = f"{point['readout'].replace('_', ' ')}, {task_name(point['task'])}"
        name = f"{design}, length {point['seq_len']}: zeros"
        total = weighted_sum([values], [1.0], None, 0)
        region = Region(high=float(point["zero_limit"]))
        effects.append(effect_of(name, total, region, len(values)))
    return effects


def _some_zeros(stem: str, tables: Tables) -> str | None:
    most = pd.to_numeric(_points(tables, stem)["mean_zeros"]).max()
    return None if most >= 0.5 else f"there are no zeros to count (at most {most:.2g} in a row)"


def _longer(tables: Tables) -> list[Effect]:
    points, effects = _points(tables, LENGTH), []
    for task, rows in points.groupby("task"):
        lengths = sorted(rows["seq_len"].unique())
        for (short, long), name in product(pairwise(lengths), sorted(rows["readout"].unique())):
            where = _where(str(task), str(name))
            terms = [(1.0, LENGTH, "mean_zeros", where | {"seq_len": long}),
                     (-1.0, LENGTH, "mean_zeros", where | {"seq_len": short})]  # fmt: skip
            words = f"{name}, {task}: zeros at length {long} - {short}".replace("_", " ")
            effects.append(contrast(tables, words, terms, Region(0.5)))
    if not effects:
        raise NotEnoughRunsError(f"{LENGTH} has no task with two lengths")
    return effects


LIMITED = Claim(
    "P2.2 limit",
    "At most n/H - 1 coefficients of a row are zero.",
    PLACE, (ZEROS,), _below_limit, (partial(_some_zeros, ZEROS),),
)  # fmt: skip
LONGER = Claim(
    "P2.2 length",
    "A longer sequence of the same task has more zeros.",
    PLACE, (LENGTH,), _longer, (partial(_some_zeros, LENGTH),),
)  # fmt: skip


EXPERIMENTS = (
    Experiment(
        KERNEL,
        caption="Principle 2.1. Accuracy of kernels psi(q) . psi(h) against the fraction of "
        "coefficients near zero. Stars and dotted lines: softmax attention (exp) and the identity "
        "readout, from principle2_readout. Small dots are seeds, lines 95 % intervals.",
        draw=draw_kernels,
        needs=(READOUT, f"{READOUT}_runs"),
        claims=tuple(_kernel_claims()),
    ),
    Experiment(
        ZEROS,
        caption="Principle 2.2. Number of raw coefficients of size at most 1e-6 at each step, mean "
        "over 64 sequences, for the head of layer 1 that has most; dashed: the limit n/H - 1. The "
        "same runs as principle2_1_kernel.",
        draw=draw_zeros,
        needs=(INDEX,),
        more={INDEX: zeros_per_index},
        claims=(LIMITED,),
    ),
    Experiment(
        LENGTH,
        caption="Principle 2.2 on selective copying at two lengths. Not in the paper, which "
        "compares two tasks. Number of raw coefficients of size at most 1e-6, mean over 64 "
        "sequences, at the step and in the head that have most; a mark per seed.",
        draw=draw_lengths,
        claims=(LONGER,),
    ),
)
