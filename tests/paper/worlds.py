"""Made-up records: worlds in which the paper is right, is wrong, or cannot be told to be either."""

import hashlib
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from coefdyn.config.compose import Config, compose
from coefdyn.config.grid import PlannedRun
from coefdyn.config.multirun import sweep_points
from coefdyn.config.plugins import options
from coefdyn.paper import (
    experiment_of,
    experiments,
    principle1,
    principle2_coefficients,
    principle2_rank,
    principle3_order,
    principle5_variance,
    principle6_growth,
)
from coefdyn.paper.ours import hybrids, mqar_frontier, position_lengths, state_tracking
from coefdyn.results.experiment import Experiment
from coefdyn.results.files import TableFolder
from coefdyn.results.tables import (
    write_table,
)
from coefdyn.runs.record import Record

CHANCE = 0.1
MIDDLE = {"elu_plus_one": 0.9, "sigmoid": 0.925, "softplus": 0.945, "exp": 0.97}  # accuracies
PERPLEXITY = {"mamba2_unscaled": 29.2, "mamba2_inverse_sqrt": 28.8, "mamba2": 28.9,
              "softmax_attention_unscaled": 32.7, "softmax_attention": 31.7,
              "all_principles": 25.0}  # fmt: skip
# How stems begin of which the worlds know what comes out; any other has the same everywhere.
SCRIPTED = ("principle1_throughput", "principle2_", "principle3_position", "principle4_evolution",
            "principle5_", "principle6_", "all_principles_lm", "state_tracking",
            "position_lengths", "mqar_frontier", "hybrids")  # fmt: skip
SEEDS, RATES = 5, "1e-3,2e-3,5e-3"
MORE_SEEDS = {"state_tracking": 12}  # shares of seeds need many
STEPS = (-2.0, -1.0, 0.0, 1.0, 2.0)  # of the seeds from their mean, in some order; deviation 1.58


@dataclass(frozen=True)
class Outcome:
    """Means over seeds, and how far apart accuracies lie. `far`: at four times the length."""

    accuracy: float
    near_zero: float = 0.2
    zeros: float = 0.0
    spread: float = 0.004
    far: float | None = None


World = Callable[[str, PlannedRun], Outcome]


@cache
def runs_of(stem: str, *overrides: str) -> list[PlannedRun]:
    """At scale=smoke, with three learning rates and five seeds. Names and values are put into one
    composed configuration: tables tell runs apart by these alone, and a plan would build every
    model."""
    grid = [f"experiment={stem}", "scale=smoke"]
    seeds = "seed=" + ",".join(map(str, range(MORE_SEEDS.get(stem, SEEDS))))
    points = sweep_points([*grid, f"optimizer.lr={RATES}", seeds, *overrides])
    base = compose(grid)
    return [_planned(base, point) for point in points]


def _planned(base: Config, point: Sequence[str]) -> PlannedRun:
    pairs = dict(part.split("=", 1) for part in point)
    choices = dict(base.choices) | {k: v for k, v in pairs.items() if k in base.choices}
    values = {k: yaml.safe_load(v) for k, v in pairs.items() if k not in base.choices}
    values = {"task": dict(_task(choices["task"])), **values}
    run_id = hashlib.sha256(" ".join(point).encode()).hexdigest()[:16]
    return PlannedRun(run_id, tuple(point), base.with_values(values).values, choices)


@cache
def _task(name: str) -> dict[str, Any]:
    task: dict[str, Any] = compose([f"task={name}", "scale=smoke"]).values["task"]
    return task


def right(stem: str, run: PlannedRun) -> Outcome:
    name = run.choices["model/readout"]
    evolution, eta = run.choices["model/evolution"], run.choices["model/normalization"]
    if stem == "principle2_readout":
        if name in MIDDLE:
            return Outcome(MIDDLE[name], 0.3)
        return Outcome(0.995, 0.5) if name == "relu" else Outcome(0.5, 0.1)
    if stem.startswith("principle2_"):
        return Outcome(0.25, 0.15, 2.0 if run.values["task"]["seq_len"] == 16 else 3.0)
    if stem == "principle3_position":
        helped = evolution == "constant" or run.choices["model/position"] == "learned"
        return Outcome(0.99 if helped else 0.6 if name == "relu" else CHANCE)
    if stem == "principle4_evolution":
        structure = ("scalar", "diagonal", "householder").index(evolution.split("_")[0])
        return Outcome(0.5 + 0.12 * structure + 0.07 * ("mamba2" in evolution))
    if stem.startswith("principle5_"):
        exp = run.choices["model"] == "softmax_attention"
        unscaled = run.choices["model/scaling"] in ("one", "gate")
        return Outcome(0.6, spread=(0.1 if exp else 0.03) if unscaled else 0.005)
    if stem.startswith("principle6_"):
        perfect = eta == "row_sum" or (eta == "power" and name != "exp")
        return Outcome(1.0 if perfect else CHANCE if name == "exp" else 0.8)
    if stem in ("state_tracking", "position_lengths", "mqar_frontier", "hybrids"):
        return beyond(stem, run, True)
    return Outcome(0.5)


def wrong(stem: str, run: PlannedRun) -> Outcome:
    """Everything the other way round, but for what makes it decidable."""
    name, evolution = run.choices["model/readout"], run.choices["model/evolution"]
    eta = run.choices["model/normalization"]
    if stem == "principle2_readout":
        if name in MIDDLE:
            return Outcome(1.92 - MIDDLE[name] if name != "exp" else 0.955, 0.5)
        return Outcome(0.5, 0.3) if name == "relu" else Outcome(0.999, 0.97)
    if stem.startswith("principle2_"):
        return Outcome(0.99, 0.95, 99.0 if run.values["task"]["seq_len"] == 16 else 98.0)
    if stem == "principle3_position":
        if evolution == "identity" and run.choices["model/position"] == "none":
            return Outcome(CHANCE if name == "relu" else 0.6)
        return Outcome(0.99 if name == "exp" else 0.5)
    if stem == "principle4_evolution":
        structure = ("scalar", "diagonal", "householder").index(evolution.split("_")[0])
        return Outcome(0.8 - 0.15 * structure)
    if stem.startswith("principle5_"):
        unscaled = run.choices["model/scaling"] in ("one", "gate")
        widest = run.choices["model"] == "mamba2"
        return Outcome(0.6, spread=(0.04 if widest else 0.005) if unscaled else 0.1)
    if stem.startswith("principle6_"):
        return Outcome(0.9 if name == "exp" and eta != "row_sum" else 0.5)
    if stem in ("state_tracking", "position_lengths", "mqar_frontier", "hybrids"):
        return beyond(stem, run, False)
    return Outcome(0.5)


def beyond(stem: str, run: PlannedRun, as_claimed: bool) -> Outcome:
    """What comes out of our own experiments, as their claims have it or the other way round."""
    task, evolution = run.choices["task"], run.choices["model/evolution"]
    if stem == "state_tracking":
        able = evolution in state_tracking.ABLE[task]
        return Outcome(1.0 if able == as_claimed else 0.5)
    if stem == "position_lengths":
        scheme = (evolution, run.choices["model/position"])
        relative, fades = (scheme in position_lengths.RELATIVE, scheme in position_lengths.FADING)
        solves = scheme != ("identity", "none") and (as_claimed or not relative)
        near = 0.99 if solves else 0.5
        if task == "copy":
            return Outcome(near, far=0.8 if relative == as_claimed else 0.2)
        return Outcome(near, far=near if fades == as_claimed else near - 0.4)
    if stem == "mqar_frontier":
        name, width = run.choices["model"], run.values["model"]["n_state"]
        if name == "softmax_attention":
            return Outcome(0.99 if as_claimed else 0.5)
        erases = name in mqar_frontier.ERASING
        sign = 1 if as_claimed else -1
        return Outcome(0.5 + sign * (0.1 * erases + 0.2 * (width / 16 - 1)))
    pattern = "+".join(run.values["model"]["pattern"])
    pure = {hybrids.RECURRENT: 0.3, hybrids.ATTENTION: 1.0}
    return Outcome(pure.get(pattern, 1.0 if as_claimed else 0.4))


def noisy(stem: str, run: PlannedRun) -> Outcome:
    """The means are right, but seeds lie so far apart that nobody can tell."""
    found = right(stem, run)
    if stem.startswith("principle5_"):
        exp = run.choices["model"] == "softmax_attention"
        unscaled = run.choices["model/scaling"] in ("one", "gate")
        return replace(found, spread=(0.018 if exp else 0.015) if unscaled else 0.011)
    return replace(found, spread=2.0)


def _step(run: PlannedRun) -> float:
    """Which of the steps a seed has, in an order of its point's own; means are as they are."""
    point = " ".join(part for part in run.point if not part.startswith(("seed=", "optimizer.lr=")))
    order = list(STEPS)
    random.Random(point).shuffle(order)
    return order[run.values["seed"] % len(order)]


def record(stem: str, run: PlannedRun, world: World = right, **changes: Any) -> Record:
    stem = run.choices["experiment"] if stem == "open_choices" else stem
    outcome, step = world(stem, run), _step(run)
    accuracy = outcome.accuracy + outcome.spread * step
    accuracy -= 0.03 * (run.values["optimizer"]["lr"] != 2e-3)  # the rate that is the better one
    near_zero = outcome.near_zero + outcome.spread * step
    zeros = outcome.zeros + (30 if world is noisy else 0.01) * step * (outcome.zeros > 0)
    perplexity = PERPLEXITY.get(run.choices["model"], 30.0)
    if world is wrong:
        perplexity = 1000 / perplexity**3 * (1.5 if run.choices["model"] == "mamba2" else 1)
    perplexity *= math.exp((0.1 if world is noisy else 0.0005) * step)
    metrics = dict.fromkeys(("accuracy", "accuracy_macro", "accuracy_best"), accuracy)
    metrics |= {"loss": 1.0, "perplexity": perplexity, "perplexity_word": perplexity}
    length = run.values["task"]["seq_len"]
    if stem in ("state_tracking", "position_lengths"):
        lost = 0.0 if outcome.far is None else outcome.accuracy - outcome.far
        metrics |= {f"accuracy@{times * length}": accuracy - lost for times in (2, 4)}
    statistics: dict[str, Any] = dict.fromkeys(("near_one", "near_one_raw", "guarded_rows"), 0.1)
    against = world is wrong or (world is noisy and run.values["seed"] % 2)
    ratio = math.exp(-accuracy if against else accuracy)
    statistics |= dict.fromkeys(("near_zero", "near_zero_raw"), near_zero)
    statistics |= {"ratio": ratio, "ratio_raw": ratio, "most_zeros": int(zeros)}
    statistics["per_head"] = {"zeros_per_index": [[[0.0] * (length - 1) + [zeros]] * 2] * 2}
    values: dict[str, Any] = {
        "schema": 2,
        "run_id": run.run_id,
        "status": "finished",
        "diverged_at_step": None,
        "metrics": {f"test/{name}": value for name, value in metrics.items()},
        "coefficients": statistics,
        "initial": None,
        "epochs": 2,
        "steps": 4,
        "chance": CHANCE,
        "order_free": CHANCE,
        "ceiling": 1.0,
        "config": run.values,
        "choices": dict(run.choices),
        "backend": [],
        "parameters": 100,
        "data": {},
        "history": {"epoch": [1, 2], "step": [2, 4], "train/loss": [9.0, 5.0],
                    "test/accuracy": [CHANCE, accuracy], "validation/loss": [None, 6.0]},
        "population": None,
        "seconds": {"session": 3600.0},
        "git": {"commit": "0" * 40, "dirty": False},
        "versions": {"torch": "2"},
        "device": {"type": "cpu", "name": "x", "kind": "y", "threads": 1},
        "earlier_sessions": [],
    }  # fmt: skip
    return Record(**(values | changes))


def lengths(slopes: dict[str, float], processes: int = 5, noise: float = 0.01) -> pd.DataFrame:
    rows = [
        ["smoke", form, length, 0.01 * length ** (slope + noise * (process - 2)), "CPU", process]
        for form, slope in slopes.items()
        for length in (1024, 2048, 4096, 8192, 16384)
        for process in range(processes)
    ]
    return pd.DataFrame(rows, columns=[*principle1.COLUMNS, "process"])


def variances(slopes: dict[str, float], noise: float) -> pd.DataFrame:
    rows = [
        ["smoke", scaling, width, seed, width ** (slope + noise * (seed % 5 - 2)), "CPU"]
        for scaling, slope in slopes.items()
        for width in (8, 16, 32)
        for seed in range(20)
    ]
    return pd.DataFrame(rows, columns=principle5_variance.COLUMNS)


def benchmarks(world: World) -> dict[tuple[str, ...], pd.DataFrame]:
    """The tables that benchmarks write, by their columns."""
    fits = (2.0, 1.0) if world is wrong else (1.0, 2.0)
    slopes = {"one": 0.0, "inverse_sqrt": 1.0} if world is wrong else {
        "one": 1.0, "inverse_sqrt": 0.0
    }  # fmt: skip
    readouts = ("exp", "relu")
    times = lengths(
        dict(zip(("linear", "quadratic"), fits, strict=True)),
        noise=0.2 if world is noisy else 0.01,
    )
    spreads = variances(slopes, noise=1.0 if world is noisy else 0.01)
    rows: dict[tuple[str, ...], list[list[Any]]] = {
        principle2_coefficients.COLUMNS: [
            ["smoke", "fuzzy_recall", phi, layer, 1, i, " ".join(["0.5"] * i), "0" * 16]
            for phi, layer, i in product(readouts, (1, 2), range(1, 5))
        ],
        principle2_rank.COLUMNS: [
            ["smoke", "kernel_relu", "identity", i, i / 10, 3.0, 7] for i in range(1, 9)
        ],
        principle3_order.COLUMNS: [
            ["smoke", phi, evolution, position, layer, seed, (layer - 1) / 3]
            for phi, evolution, position, layer, seed in product(
                readouts, ("identity", "constant"), ("none", "learned"), (1, 2), (0, 1)
            )
        ],
        principle6_growth.COLUMNS: [
            ["smoke", phi, eta, i, 1.05**i]
            for phi, eta, i in product(readouts, ("one", "row_sum"), range(1, 9))
        ],
    }
    made = {columns: pd.DataFrame(values, columns=columns) for columns, values in rows.items()}
    return made | {principle1.COLUMNS: times, principle5_variance.COLUMNS: spreads}


def fill(
    results: Path,
    world: World = right,
    keep: Callable[[PlannedRun], bool] = lambda _: True,
    stems: Sequence[str] | None = None,
    narrowed: Sequence[str] = (),
) -> TableFolder:
    """The tables of every experiment at scale=smoke, or of these; `keep` says which runs are
    recorded."""
    folder = TableFolder(results, "smoke")
    # open_choices has the designs of others over and over: a test of its own makes it
    every = [stem for stem in options("experiment") if stem != "open_choices"]
    chosen: list[Experiment] = [experiment_of(stem) for stem in stems or every]
    for experiment in chosen:
        stem, runs = experiment.stem, runs_of(experiment.stem)
        records = {run.run_id: record(stem, run, world) if keep(run) else None for run in runs}
        folder.write(experiment, runs, records, narrowed)
    made = benchmarks(world)
    for experiment in [] if stems else experiments().values():
        if experiment.columns in made:
            write_table(folder.path(experiment.stem), made[experiment.columns])
    return folder
