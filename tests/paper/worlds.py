"""Made-up records: a world in which the paper is right, and one in which it is wrong."""

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from coefdyn.config.compose import Config, compose, sweep_points
from coefdyn.config.grid import PlannedRun
from coefdyn.config.plugins import options
from coefdyn.paper import experiment_of, experiments
from coefdyn.results.experiment import Experiment
from coefdyn.results.files import TableFolder
from coefdyn.results.tables import LENGTH_COLUMNS, write_table
from coefdyn.runs.record import Record

CHANCE = 0.1
# In the order of their near-zero sets; exp, sigmoid, softplus and elu + 1 are ties.
ORDER = ("identity", "elu_plus_one", "sigmoid", "softplus", "exp", "relu")
PERPLEXITY = {"mamba2_unscaled": 29.2, "mamba2_inverse_sqrt": 28.8, "mamba2": 28.9,
              "softmax_attention_unscaled": 32.7, "softmax_attention": 31.7,
              "all_principles": 25.0}  # fmt: skip
# How stems begin of which the worlds know what comes out; any other has the same everywhere.
SCRIPTED = ("principle1_throughput", "principle2_", "principle3_position", "principle4_evolution",
            "principle5_", "principle6_", "all_principles_lm")  # fmt: skip
World = Callable[[str, PlannedRun], tuple[float, float, float]]  # accuracy, near zero, zeros


@cache
def runs_of(stem: str, *overrides: str) -> list[PlannedRun]:
    """At scale=smoke, with two learning rates. Names and values are put into one composed
    configuration: tables tell runs apart by these alone, and a plan would build every model."""
    grid = [f"experiment={stem}", "scale=smoke"]
    points = sweep_points([*grid, "optimizer.lr=1e-3,5e-3", *overrides])
    base = compose(grid)
    return [_planned(base, point) for point in points]


def _planned(base: Config, point: Sequence[str]) -> PlannedRun:
    pairs = dict(part.split("=", 1) for part in point)
    choices = dict(base.choices) | {k: v for k, v in pairs.items() if k in base.choices}
    values = {k: yaml.safe_load(v) for k, v in pairs.items() if k not in base.choices}
    values = {"task": _task(choices["task"]), **values}
    run_id = hashlib.sha256(" ".join(point).encode()).hexdigest()[:16]
    return PlannedRun(run_id, tuple(point), base.with_values(values).values, choices)


@cache
def _task(name: str) -> dict[str, Any]:
    task: dict[str, Any] = compose([f"task={name}", "scale=smoke"]).values["task"]
    return task


def right(stem: str, run: PlannedRun) -> tuple[float, float, float]:
    name = run.choices["model/readout"]
    evolution, eta = run.choices["model/evolution"], run.choices["model/normalization"]
    if stem == "principle2_readout":
        place = ORDER.index(name)
        return 0.3 + 0.1 * place, 0.1 + 0.1 * place, 0.0
    if stem.startswith("principle2_"):
        return 0.25, 0.11, 3.0 if run.choices["task"] == "fuzzy_recall" else 2.0
    if stem == "principle3_position":
        helped = evolution == "constant" or run.choices["model/position"] == "learned"
        return (0.99 if helped else 0.6 if name == "relu" else CHANCE), 0.2, 0.0
    if stem == "principle4_evolution":
        structure = ("scalar", "diagonal", "householder").index(evolution.split("_")[0])
        return 0.5 + 0.15 * structure + 0.05 * ("mamba2" in evolution), 0.2, 0.0
    if stem.startswith("principle5_"):
        unscaled = run.choices["model/scaling"] in ("one", "gate")
        exp = run.choices["model"] == "softmax_attention"
        larger = run.values["model"]["n_state"] > 16
        width = (
            ((0.2 if larger else 0.15) if exp else (0.08 if larger else 0.1)) if unscaled else 0.02
        )
        return 0.6 + width * run.values["seed"] / 2, 0.2, 0.0
    if stem.startswith("principle6_"):
        perfect = eta == "row_sum" or (eta == "power" and name != "exp")
        return (1.0 if perfect else CHANCE if name == "exp" else 0.8), 0.2, 0.0
    return 0.5, 0.2, 0.0


def wrong(stem: str, run: PlannedRun) -> tuple[float, float, float]:
    """Everything the other way round."""
    accuracy, near_zero, zeros = right(stem, run)
    if stem == "principle2_readout":
        return accuracy, 0.1 + 0.1 * (5 - ORDER.index(run.choices["model/readout"])), zeros
    if stem.startswith("principle2_"):
        return 0.99, 0.05 if "exp" in run.choices["model/readout"] else 0.95, 99.0 - zeros
    if stem == "principle4_evolution":
        return 0.9, near_zero, zeros
    if stem.startswith("principle5_"):
        unscaled = run.choices["model/scaling"] in ("one", "gate")
        width = 0.0 if unscaled else 0.2
        width += 0.1 * (run.choices["model"] == "mamba2")
        width += 0.02 * (run.values["model"]["n_state"] > 16)  # everywhere
        return 0.5 + width * run.values["seed"] / 2, near_zero, zeros
    return CHANCE + 1 - accuracy, near_zero, zeros


def record(stem: str, run: PlannedRun, world: World = right, **changes: Any) -> Record:
    accuracy, near_zero, zeros = world(stem, run)
    accuracy -= 0.03 * (run.values["optimizer"]["lr"] == 1e-3)  # the other rate is the better one
    perplexity = PERPLEXITY.get(run.choices["model"], 30.0)
    if world is wrong:
        perplexity = 1000 / perplexity**3 * (1.5 if run.choices["model"] == "mamba2" else 1)
    metrics = dict.fromkeys(("accuracy", "accuracy_macro", "accuracy_best"), accuracy)
    metrics |= {"loss": 1.0, "perplexity": perplexity}
    statistics: dict[str, Any] = dict.fromkeys(
        ("near_one", "near_zero_raw", "near_one_raw", "ratio_raw", "guarded_rows"), 0.1
    )
    statistics |= {"near_zero": near_zero, "ratio": near_zero, "most_zeros": int(zeros)}
    length = run.values["task"]["seq_len"]
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
        "device": {"type": "cpu", "name": "x", "threads": 1},
        "earlier_sessions": [],
    }  # fmt: skip
    return Record(**(values | changes))


def lengths(slopes: dict[str, float]) -> pd.DataFrame:
    rows = [["smoke", form, length, 0.01 * length**slope, "CPU"]
            for form, slope in slopes.items() for length in (256, 512, 1024, 2048)]  # fmt: skip
    return pd.DataFrame(rows, columns=LENGTH_COLUMNS)


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
    chosen: list[Experiment] = [experiment_of(stem) for stem in stems or options("experiment")]
    for experiment in chosen:
        stem, runs = experiment.stem, runs_of(experiment.stem)
        records = {run.run_id: record(stem, run, world) if keep(run) else None for run in runs}
        folder.write(experiment, runs, records, narrowed)
    fits = (1.0, 2.0) if world is right else (2.0, 1.0)
    for experiment in [] if stems else experiments().values():
        if experiment.columns == tuple(LENGTH_COLUMNS):
            table = lengths(dict(zip(("linear", "quadratic"), fits, strict=True)))
            write_table(folder.path(experiment.stem), table)
    return folder
