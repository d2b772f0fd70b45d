"""Made-up records: a world in which the paper is right, and one in which it is wrong."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from coefdyn.config.compose import options
from coefdyn.config.grid import PlannedRun, plan
from coefdyn.results.files import LENGTHS, Shelf
from coefdyn.results.tables import LENGTH_COLUMNS, write_table

CHANCE = 0.1
# In the order of their near-zero sets; exp, sigmoid, softplus and elu + 1 are ties.
ORDER = ("identity", "elu_plus_one", "sigmoid", "softplus", "exp", "relu")
World = Callable[[str, PlannedRun], tuple[float, float, float]]  # accuracy, near zero, zeros


@cache
def runs_of(stem: str) -> list[PlannedRun]:
    """At scale=smoke, with two learning rates."""
    fewer = ["task=noisy_recall,compression"] if stem == "architectures" else []
    return plan([f"experiment={stem}", "scale=smoke", "optimizer.lr=1e-3,5e-3", *fewer])


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
        larger = run.settings["model"]["n_state"] > 16
        width = (
            ((0.2 if larger else 0.15) if exp else (0.08 if larger else 0.1)) if unscaled else 0.02
        )
        return 0.6 + width * run.settings["seed"] / 2, 0.2, 0.0
    if stem.startswith("principle6_"):
        perfect = eta == "row_sum" or (eta == "power" and name != "exp")
        return (1.0 if perfect else CHANCE if name == "exp" else 0.8), 0.2, 0.0
    return 0.5, 0.2, 0.0


PERPLEXITY = {"mamba2_unscaled": 29.2, "mamba2_inverse_sqrt": 28.8, "mamba2": 28.9,
              "softmax_attention_unscaled": 32.7, "softmax_attention": 31.7,
              "all_principles": 25.0}  # fmt: skip


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
        width += 0.02 * (run.settings["model"]["n_state"] > 16)  # everywhere
        return 0.5 + width * run.settings["seed"] / 2, near_zero, zeros
    return CHANCE + 1 - accuracy, near_zero, zeros


def record(stem: str, run: PlannedRun, world: World) -> dict[str, Any]:
    accuracy, near_zero, zeros = world(stem, run)
    accuracy -= 0.03 * (run.settings["optimizer"]["lr"] == 1e-3)  # the other rate is the better one
    values = {
        "accuracy": accuracy,
        "accuracy_macro": accuracy,
        "accuracy_best": accuracy,
        "loss": 1.0,
    }
    statistics: dict[str, Any] = dict.fromkeys(
        ("near_one", "near_zero_raw", "near_one_raw", "ratio_raw", "guarded_rows"), 0.1
    )
    length = run.settings["task"]["seq_len"]
    statistics |= {"near_zero": near_zero, "ratio": near_zero, "most_zeros": int(zeros)}
    statistics["per_head"] = {"zeros_per_index": [[[0.0] * (length - 1) + [zeros]] * 2] * 2}
    perplexity = PERPLEXITY.get(run.choices["model"], 30.0)
    if world is wrong:
        perplexity = 1000 / perplexity**3 * (1.5 if run.choices["model"] == "mamba2" else 1)
    return {
        "status": "finished",
        "diverged_at_step": None,
        "metrics": {f"test/{name}": value for name, value in values.items()}
        | {"test/perplexity": perplexity},
        "coefficients": statistics,
        "chance": CHANCE,
        "parameters": 100,
        "seconds": {"session": 3600.0},
        "git": {"commit": "0" * 40, "dirty": False},
        "versions": {"torch": "2"},
        "device": {"type": "cpu", "name": "x", "threads": 1},
    }


def lengths(slopes: dict[str, float]) -> pd.DataFrame:
    rows = [["smoke", form, length, 0.01 * length**slope, "CPU"]
            for form, slope in slopes.items() for length in (256, 512, 1024, 2048)]  # fmt: skip
    return pd.DataFrame(rows, columns=LENGTH_COLUMNS)


def shelf(
    results: Path,
    world: World,
    keep: Callable[[PlannedRun], bool] = lambda _: True,
    stems: Sequence[str] | None = None,
) -> Shelf:
    """The tables of every experiment at scale=smoke, or of these; `keep` says which runs are
    recorded."""
    made = Shelf(results, "smoke")
    for stem in stems or options("experiment"):
        runs = runs_of(stem)
        for run in runs if stem.endswith(("wikitext", "_lm")) else []:
            place = results / "runs" / run.run_id
            place.mkdir(parents=True, exist_ok=True)
            (place / "metrics.csv").write_text("step,train/loss,validation/loss\n2,9,\n4,5,6\n")
        made.write(
            stem, runs, {r.run_id: record(stem, r, world) if keep(r) else None for r in runs}
        )
    fits = (
        {"linear": 1.0, "quadratic": 2.0} if world is right else {"linear": 2.0, "quadratic": 1.0}
    )
    write_table(made.path(LENGTHS), lengths(fits))
    return made
