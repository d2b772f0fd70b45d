"""From records to tables: a row per run, and a row per grid point, best of lr x weight decay."""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from coefdyn.config.grid import PlannedRun
from coefdyn.errors import ConfigError
from coefdyn.runs.record import name_of, write_atomically
from coefdyn.sweeps.state import folder

AXES = ["task", "model", "evolution", "scaling", "readout", "normalization", "block", "post_norm",
        "preprocess", "position", "n_heads", "n_state", "seq_len", "seed"]  # fmt: skip
TUNED = ["lr", "weight_decay"]
METRICS = ["accuracy", "accuracy_macro", "accuracy_best", "loss"]
PERPLEXITIES = ["test/perplexity", "test/perplexity_word", "validation/perplexity"]  # of text only
STATISTICS = ["near_zero", "near_one", "ratio", "near_zero_raw", "near_one_raw", "ratio_raw",
              "guarded_rows", "most_zeros"]  # fmt: skip
RUN_COLUMNS = ["scale", *AXES, *TUNED, "status", "diverged_at_step", *METRICS, *PERPLEXITIES,
               "chance", *STATISTICS, "mean_zeros", "zero_limit", "parameters",
               "run_id"]  # fmt: skip
POINT_COLUMNS = ["scale", *AXES, *METRICS, *PERPLEXITIES, "chance", *STATISTICS, "mean_zeros",
                 "zero_limit", "parameters", *TUNED, "lr_at_edge", "runs", "missing", "diverged",
                 "accuracy_worst", "run_id"]  # fmt: skip
ZERO_COLUMNS = ["scale", "task", "readout", "layer", "head", "index", "zeros", "limit", "run_id"]
CURVE_COLUMNS = ["scale", "model", "seed", "step", "train/loss", "validation/loss", "run_id"]
LENGTH_COLUMNS = ["scale", "form", "length", "milliseconds", "device"]
POSITIVE = ["length", "milliseconds"]
NUMBERS = [*METRICS, *PERPLEXITIES, *STATISTICS, *TUNED, *POSITIVE, "n_heads", "n_state", "seq_len",
           "seed", "chance", "mean_zeros", "zero_limit", "parameters", "runs", "missing",
           "diverged", "accuracy_worst", "index", "zeros", "limit", "step", "train/loss",
           "validation/loss"]  # fmt: skip

Records = Mapping[str, Mapping[str, Any] | None]  # by run_id; None where there is none


def run_table(runs: Sequence[PlannedRun], records: Records) -> pd.DataFrame:
    """A row per recorded run, in the grid's order. The names of choices are the grid's: a record
    may have been made for another experiment, under other names of the same values."""
    rows = [_row(run, record) for run in runs if (record := records[run.run_id]) is not None]
    return pd.DataFrame(rows, columns=RUN_COLUMNS)


def _row(run: PlannedRun, record: Mapping[str, Any]) -> dict[str, Any]:
    model, task = run.settings["model"], run.settings["task"]
    statistics = record["coefficients"] or {}
    means = [max(head) for layer in statistics["per_head"]["zeros_per_index"] for head in layer
             ] if statistics else []  # fmt: skip
    slots = ("evolution", "scaling", "readout", "normalization", "block", "preprocess", "position")
    return {
        "scale": run.choices["scale"],
        "task": run.choices["task"],
        "model": run.choices["model"],
        **{slot: run.choices[f"model/{slot}"] for slot in slots},
        "post_norm": model["block"]["post_norm"],
        "n_heads": model["n_heads"],
        "n_state": model["n_state"],
        "seq_len": task["seq_len"],
        "seed": run.settings["seed"],
        "lr": run.settings["optimizer"]["lr"],
        "weight_decay": float(run.settings["optimizer"]["weight_decay"]),
        "status": record["status"],
        "diverged_at_step": record["diverged_at_step"],
        **{name: record["metrics"][f"test/{name}"] for name in METRICS},
        **{name: record["metrics"].get(name) for name in PERPLEXITIES},
        "chance": record["chance"],
        **{name: statistics.get(name) for name in STATISTICS},
        "mean_zeros": max(means, default=None),  # at the worst step of the worst head
        "zero_limit": model["n_state"] // model["n_heads"] - 1,
        "parameters": record["parameters"],
        "run_id": run.run_id,
    }


def point_table(runs: pd.DataFrame, planned: Sequence[PlannedRun]) -> pd.DataFrame:
    """A row per grid point: the run with the best accuracy, and what the others were like. A run
    that diverged is the best only where all did.

    `lr_at_edge` says when the best learning rate is the smallest or largest that was tried: a wider
    grid might have found a better one (else: inside, or only, where one was tried). Of equal
    accuracies the smallest learning rate is taken.
    """
    _check_axes(planned)
    wanted = pd.DataFrame([_axes(run) for run in planned], columns=AXES)
    sizes = wanted.groupby(AXES, sort=False, dropna=False).size()
    rows = []
    for key, group in runs.groupby(AXES, sort=False, dropna=False):
        ranked = group.assign(failed=group["status"] == "diverged").sort_values(
            ["failed", "accuracy", *TUNED], ascending=[True, False, True, True]
        )
        best = ranked.iloc[0]
        rates = sorted(group["lr"].unique())
        edge = (
            {rates[0]: "smallest", rates[-1]: "largest"} if len(rates) > 1 else {rates[0]: "only"}
        )
        rows.append(
            best.to_dict()
            | {
                "lr_at_edge": edge.get(best["lr"], "inside"),
                "runs": len(group),
                "missing": int(sizes[key]) - len(group),
                "diverged": int((group["status"] == "diverged").sum()),
                "accuracy_worst": group["accuracy"].min(),
            }
        )
    return pd.DataFrame(rows, columns=POINT_COLUMNS)


def _check_axes(planned: Sequence[PlannedRun]) -> None:
    """Runs of one point may differ in what is tuned only."""
    seen: dict[tuple[Any, ...], str] = {}
    for run in planned:
        rest = copy.deepcopy(dict(run.settings))
        for name in TUNED:
            rest["optimizer"].pop(name)
        name = name_of(rest)
        if seen.setdefault(tuple(_axes(run).values()), name) != name:
            raise ConfigError(
                f"the grid varies what tables have no column for ({' '.join(run.point)}); "
                f"they have {', '.join([*AXES, *TUNED])}"
            )


def _axes(run: PlannedRun) -> dict[str, Any]:
    empty = {"status": "", "diverged_at_step": None, "metrics": dict.fromkeys(
        f"test/{name}" for name in METRICS), "chance": None, "coefficients": None,
        "parameters": None}  # fmt: skip
    return {name: value for name, value in _row(run, empty).items() if name in AXES}


def over_seeds(points: pd.DataFrame) -> pd.DataFrame:
    """Points that differ in their seed as one: means of what is measured, sums of what is counted,
    and the rest of the first."""
    axes = ["scale", *(name for name in AXES if name != "seed")]
    measured = [*METRICS, *PERPLEXITIES, *STATISTICS, "mean_zeros", "accuracy_worst"]
    rules = {name: "first" for name in POINT_COLUMNS if name not in axes}
    rules |= dict.fromkeys(measured, "mean") | dict.fromkeys(("runs", "missing", "diverged"), "sum")
    groups = points.groupby(axes, sort=False, dropna=False)
    return groups.agg(rules).reset_index()[POINT_COLUMNS]


def curve_table(runs: Sequence[PlannedRun], records: Records, results: Path) -> pd.DataFrame:
    """A row per epoch of each recorded run: the losses of its metrics.csv."""
    tables = []
    for run in runs:
        path = folder(results, run.run_id) / "metrics.csv"
        if records[run.run_id] is None or not path.exists():
            continue
        axes = {name: value for name, value in _axes(run).items() if name in ("model", "seed")}
        about = {"scale": run.choices["scale"], **axes, "run_id": run.run_id}
        tables.append(pd.read_csv(path).assign(**about).reindex(columns=CURVE_COLUMNS))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=CURVE_COLUMNS)


def zero_table(points: pd.DataFrame, records: Records) -> pd.DataFrame:
    """Zeros at each step of the head of layer 1 that has most, in the best run of each point."""
    rows = []
    for point in points.to_dict("records"):
        record = records[point["run_id"]]
        if record is None or record["coefficients"] is None:
            continue
        heads = record["coefficients"]["per_head"]["zeros_per_index"][0]
        head = max(range(len(heads)), key=lambda h: sum(heads[h]))
        shared = {name: point[name] for name in ("scale", "task", "readout", "run_id")}
        shared |= {"layer": 1, "head": head + 1, "limit": point["zero_limit"]}
        rows += [shared | {"index": i, "zeros": z} for i, z in enumerate(heads[head], 1)]
    return pd.DataFrame(rows, columns=ZERO_COLUMNS)


def provenance(records: Records) -> dict[str, Any]:
    """What the table's runs have in common: code, versions, device, and how long they took."""
    found = [record for record in records.values() if record is not None]

    def distinct(values: list[Any]) -> list[Any]:
        return [
            json.loads(text) for text in sorted({json.dumps(v, sort_keys=True) for v in values})
        ]

    return {
        "runs": len(found),
        "missing": len(records) - len(found),
        "hours": round(sum(r["seconds"]["session"] for r in found) / 3600, 2),
        "commits": distinct([r["git"] for r in found]),
        "versions": distinct([r["versions"] for r in found]),
        "devices": distinct([r["device"] for r in found]),
    }


def write_table(path: Path, table: pd.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, table.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def read_table(path: Path, columns: Sequence[str], scale: str) -> pd.DataFrame:
    """A table, if it is one of this kind and scale, with numbers where numbers belong."""
    try:
        table = pd.read_csv(path, keep_default_na=False, na_values=[""])
    except FileNotFoundError:
        raise ConfigError(f"there is no table {path}") from None
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"the table {path} cannot be read: {' '.join(str(error).split())}"
        ) from error
    missing = [name for name in columns if name not in table]
    if missing:
        raise ConfigError(f"the table {path} lacks the columns {', '.join(missing)}; make it again")
    if table.empty:
        raise ConfigError(f"the table {path} has no rows; run the experiment first")
    if set(table["scale"]) != {scale}:
        found = ", ".join(sorted(map(str, set(table["scale"]))))
        raise ConfigError(f"the table {path} is of scale={found}, not of scale={scale}")
    _check_numbers(path, table[[name for name in columns if name in NUMBERS]])
    return table


def _check_numbers(path: Path, found: pd.DataFrame) -> None:
    """A blank is a value that a run does not have; every run has an accuracy."""
    numbers = found.apply(pd.to_numeric, errors="coerce")
    for name in found:
        bad = (
            numbers[name].isna()
            if name == "accuracy"
            else numbers[name].isna() & found[name].notna()
        )
        if name in POSITIVE:
            bad = ~(numbers[name] > 0)
        if bad.any():
            example = found[name][bad].iloc[0]
            raise ConfigError(
                f"the table {path} has {name}={example}, which is no"
                f"{' positive' * (name in POSITIVE)} number; make it again"
            )
