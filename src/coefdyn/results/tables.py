"""From records to tables: a row per run, a row per grid point, and the curves of its best runs.

Every table has columns for the design and its sizes, and one for whatever else its grid varies.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from coefdyn.config.grid import PlannedRun
from coefdyn.errors import ConfigError
from coefdyn.results.experiment import Records
from coefdyn.results.rounds import PILOT
from coefdyn.runs.record import Record, write_atomically

SLOTS = ["evolution", "scaling", "readout", "normalization", "block", "preprocess", "position"]
SETTINGS = {  # column -> where it stands in the configuration
    "post_norm": "model.block.post_norm",
    "n_heads": "model.n_heads",
    "n_state": "model.n_state",
    "seq_len": "task.seq_len",
    "seed": "seed",
    "lr": "optimizer.lr",
    "weight_decay": "optimizer.weight_decay",
}
AXES = ["task", "model", *SLOTS, "post_norm", "n_heads", "n_state", "seq_len"]
TUNED = ["lr", "weight_decay"]
METRICS = ["accuracy", "accuracy_macro", "accuracy_best", "loss"]
FINAL = "accuracy@"  # how columns of final tests begin, in tables of runs that have some
PERPLEXITIES = ["test/perplexity", "test/perplexity_word", "validation/perplexity"]  # of text only
STATISTICS = ["near_zero", "near_one", "ratio", "near_zero_raw", "near_one_raw", "ratio_raw",
              "near_zero_relative", "entropy", "score_variance", "effective_rank", "guarded_rows",
              "most_zeros"]  # fmt: skip
INITIAL = ["near_zero", "near_zero_raw", "near_zero_relative", "score_variance"]
AT_FIRST = [f"{name}_initial" for name in INITIAL]  # before training: due to the design alone
LEVELS = ["chance", "order_free", "ceiling"]
MEASURED = [*METRICS, *PERPLEXITIES, *STATISTICS, *AT_FIRST, "mean_zeros", "accuracy_worst"]
RUN_COLUMNS = ["scale", *AXES, "seed", *TUNED, "status", "diverged_at_step", *METRICS,
               *PERPLEXITIES, *LEVELS, *STATISTICS, *AT_FIRST, "mean_zeros", "zero_limit",
               "parameters", "run_id"]  # fmt: skip
POINT_COLUMNS = ["scale", *AXES, "seeds", "accuracy", "accuracy_std", "accuracy_min",
                 "accuracy_max", *METRICS[1:], *PERPLEXITIES, *LEVELS, *STATISTICS, *AT_FIRST,
                 "mean_zeros", "zero_limit", "parameters", *TUNED, "lr_at_edge", "runs", "missing",
                 "diverged", "accuracy_worst", "accuracy_optimistic", "run_id"]  # fmt: skip
# Columns that tables of version 0.1 lack.
NEW = {"order_free", "ceiling", "near_zero_relative", "entropy", "score_variance",
       "effective_rank", "accuracy_optimistic", *AT_FIRST}  # fmt: skip
LOOKS = ["train/loss", "test/loss", "test/accuracy", "validation/loss", "validation/accuracy"]
CURVE_COLUMNS = ["scale", *AXES, "seed", "epoch", "step", *LOOKS, "run_id"]
CURVE_ROWS = 50  # per run, at most
POSITIVE = ["length", "milliseconds", "head_dimension"]
WORDS = ["scale", "task", "model", *SLOTS, "post_norm", "status", "lr_at_edge", "run_id", "form",
         "device", "weights"]  # fmt: skip


def varied(runs: Sequence[PlannedRun]) -> list[str]:
    """The keys that the grid varies and that have no fixed column, such as trainer.clip."""
    keys = {f"model/{slot}": slot for slot in SLOTS} | {v: k for k, v in SETTINGS.items()}
    values: dict[str, set[str]] = {}
    for run in runs:
        for override in run.point:
            key, _, value = override.partition("=")
            values.setdefault(key.lstrip("+"), set()).add(value)
    fixed = {"task", "model", "scale", "plugins", *keys}
    return [key for key, distinct in values.items() if key not in fixed and len(distinct) > 1]


def run_table(runs: Sequence[PlannedRun], records: Records) -> pd.DataFrame:
    """A row per recorded run, in the grid's order. Choices have the grid's names: a record may have
    been made for another experiment, which has other names for the same values."""
    extra = varied(runs)
    rows = [
        _axes(run, extra) | _outcome(run, record)
        for run in runs
        if (record := records[run.run_id]) is not None
    ]
    measured = dict.fromkeys(name for row in rows for name in row if name.startswith(FINAL))
    return pd.DataFrame(rows, columns=_with(RUN_COLUMNS, extra, list(measured)))


def _with(columns: Sequence[str], extra: Sequence[str], final: Sequence[str] = ()) -> list[str]:
    """The columns, with `extra` inserted after the axes and final tests after the loss."""
    axes = list(columns).index(AXES[-1]) + 1
    loss = list(columns).index(METRICS[-1]) + 1 if final else len(columns)
    return [*columns[:axes], *extra, *columns[axes:loss], *final, *columns[loss:]]


def _axes(run: PlannedRun, extra: Sequence[str]) -> dict[str, Any]:
    foreign = run.values["model"].get("mixer") is not None
    slots = {slot: run.choices[f"model/{slot}"] for slot in SLOTS}
    if foreign:  # a user's own mixer uses only the block and the positions
        unused = ("evolution", "scaling", "readout", "normalization", "preprocess")
        slots |= dict.fromkeys(unused, "foreign")
    if pattern := run.values["model"].get("pattern"):
        slots |= dict.fromkeys(("evolution", "scaling", "readout", "normalization", "block",
                                "preprocess"), "hybrid")  # fmt: skip
    row: dict[str, Any] = {name: run.choices[name] for name in ("scale", "task")}
    row |= {"model": "+".join(pattern) if pattern else run.choices["model"], **slots}
    row |= {name: _at(run.values, place) for name, place in SETTINGS.items()}
    # "null", not None: grouping cannot tell one blank from another
    values = {key: run.choices.get(key, _at(run.values, key)) for key in extra}
    row |= {key: "null" if value is None else value for key, value in values.items()}
    return row


def axes_of_run(run: PlannedRun) -> dict[str, Any]:
    """The design and sizes of a run, as the columns of a table will have them."""
    return _axes(run, ())


def _at(values: Mapping[str, Any], place: str) -> Any:
    node: Any = values
    for key in place.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node if node is None or isinstance(node, str | int | float) else json.dumps(node)


def _outcome(run: PlannedRun, record: Record) -> dict[str, Any]:
    model, statistics = run.values["model"], record.coefficients or {}
    means = [max(head) for layer in statistics["per_head"]["zeros_per_index"] for head in layer
             ] if statistics else []  # fmt: skip
    return {
        "status": record.status,
        "diverged_at_step": record.diverged_at_step,
        **{name: record.metrics.get(f"test/{name}") for name in METRICS},
        **{k.removeprefix("test/"): v for k, v in record.metrics.items() if f"/{FINAL}" in k},
        **{name: record.metrics.get(name) for name in PERPLEXITIES},
        **{name: getattr(record, name) for name in LEVELS},
        **{name: statistics.get(name) for name in STATISTICS},
        **{f"{name}_initial": (record.initial or {}).get(name) for name in INITIAL},
        "mean_zeros": max(means, default=None),  # at the worst step of the worst head
        "zero_limit": model["n_state"] // model["n_heads"] - 1,
        "parameters": record.parameters,
        "run_id": run.run_id,
    }


def axes_of(table: pd.DataFrame) -> list[str]:
    """The columns that tell points apart: AXES, and whatever else varies."""
    columns = list(table.columns)
    after = columns[columns.index(AXES[-1]) + 1 : columns.index("run_id")]
    fixed = {*RUN_COLUMNS, *POINT_COLUMNS, *CURVE_COLUMNS}
    return [*AXES, *(n for n in after if n not in fixed and not n.startswith(FINAL))]


def free_axes(points: pd.DataFrame) -> list[str]:
    """The axes that vary, without those that follow from others, as slots follow from a preset."""
    names = axes_of(points)
    free: list[str] = []
    for name in dict.fromkeys(["task", "model", *names[len(AXES) :], *names]):
        count = points.groupby(free, dropna=False)[name].nunique(dropna=False).max() if free else (
            points[name].nunique(dropna=False)
        )  # fmt: skip
        if count > 1:
            free.append(name)
    return free


def planned_per_point(runs: Sequence[PlannedRun]) -> "pd.Series[int]":
    """How many runs each point of the grid has."""
    extra = varied(runs)
    rows = pd.DataFrame([_axes(run, extra) for run in runs])
    return rows.groupby([*AXES, *extra], sort=False, dropna=False).size()


def point_table(runs: pd.DataFrame, planned: "pd.Series[int] | None" = None) -> pd.DataFrame:
    """A row per grid point: mean, deviation, smallest and largest over the best run of each seed.

    A diverged run is the best only where all diverged. Where pilots chose the rate, means are over
    the other seeds. `lr_at_edge` is `smallest` or `largest` if the best learning rate is at an edge
    of those tried, so that a wider grid might have a better one; `only` if one was tried; otherwise
    `inside`. Of equal accuracies the smallest learning rate is taken. `lr` and `run_id` are those
    of the first seed.
    """
    axes, final = axes_of(runs), [name for name in runs if name.startswith(FINAL)]
    rows = []
    for key, group in runs.groupby(axes, sort=False, dropna=False):
        pilots, claimed = group[group["seed"] >= PILOT], group[group["seed"] < PILOT]
        best = best_runs(claimed if len(claimed) else pilots)
        tried = pilots if len(pilots) else group
        first, rates = best.iloc[0], sorted(tried["lr"].unique())
        edge = (
            {rates[0]: "smallest", rates[-1]: "largest"} if len(rates) > 1 else {rates[0]: "only"}
        )
        accuracy = best["accuracy"]
        rows.append(
            first.to_dict()
            | best.reindex(columns=[*MEASURED, *final]).apply(pd.to_numeric).mean().to_dict()
            | {
                "seeds": len(best),
                "accuracy_std": accuracy.std(),
                "accuracy_min": accuracy.min(),
                "accuracy_max": accuracy.max(),
                "lr_at_edge": edge.get(first["lr"], "inside"),
                "runs": len(group),
                "missing": 0 if planned is None else int(planned[key]) - len(group),
                "diverged": int((group["status"] == "diverged").sum()),
                "accuracy_worst": group["accuracy"].min(),
                # The paper's rule, the best of the grid on the test set: of the pilots, if any.
                "accuracy_optimistic": best_runs(tried)["accuracy"].mean(),
            }
        )
    return pd.DataFrame(rows, columns=_with(POINT_COLUMNS, axes[len(AXES) :], final))


def best_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The run with the best accuracy of each seed; a diverged one only if all diverged."""
    ranked = runs.assign(failed=runs["status"] == "diverged").sort_values(
        ["failed", "accuracy", *TUNED], ascending=[True, False, True, True]
    )
    return ranked.groupby("seed", sort=True).head(1).sort_values("seed")


def curve_table(runs: pd.DataFrame, records: Records) -> pd.DataFrame:
    """The history of the best run of each point and seed, in at most CURVE_ROWS rows. Pilots have
    curves only where a point has no other seeds."""
    axes, tables = axes_of(runs), []
    for _, group in runs.groupby(axes, sort=False, dropna=False):
        claimed = group[group["seed"] < PILOT]
        for run in best_runs(claimed if len(claimed) else group).to_dict("records"):
            record = records[run["run_id"]]
            assert record is not None
            history = pd.DataFrame(record.history)
            stride = -(-len(history) // CURVE_ROWS)
            thinned = history.iloc[::-1][:: stride or 1][::-1]  # always with the last row
            about = {name: run[name] for name in ("scale", *axes, "seed", "run_id")}
            tables.append(
                thinned.assign(**about).reindex(columns=_with(CURVE_COLUMNS, axes[len(AXES) :]))
            )
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=CURVE_COLUMNS)


def provenance(records: Records) -> dict[str, Any]:
    """Code, versions and devices of the table's runs, and how long they took."""
    done = [record for record in records.values() if record is not None]

    def distinct(values: list[Any]) -> list[Any]:
        return [
            json.loads(text) for text in sorted({json.dumps(v, sort_keys=True) for v in values})
        ]

    return {
        "runs": len(done),
        "missing": len(records) - len(done),
        "hours": round(sum(r.seconds["session"] for r in done) / 3600, 2),
        "commits": distinct([r.git for r in done]),
        "versions": distinct([r.versions for r in done]),
        "devices": distinct([r.device for r in done]),
    }


def write_table(path: Path, table: pd.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, table.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def read_table(path: Path, columns: Sequence[str], scale: str) -> pd.DataFrame:
    """Read a table and check its columns, its scale, and that numbers are numbers."""
    try:
        table = pd.read_csv(path, keep_default_na=False, na_values=[""])
    except FileNotFoundError:
        raise ConfigError(f"there is no table {path}") from None
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"the table {path} cannot be read: {' '.join(str(error).split())}"
        ) from error
    table[[name for name in columns if name in NEW and name not in table]] = float("nan")
    missing = [name for name in columns if name not in table]
    if missing:
        raise ConfigError(f"the table {path} lacks the columns {', '.join(missing)}; make it again")
    if table.empty:
        raise ConfigError(f"the table {path} has no rows; run the experiment first")
    if set(table["scale"]) != {scale}:
        scales = ", ".join(sorted(map(str, set(table["scale"]))))
        raise ConfigError(f"the table {path} is of scale={scales}, not of scale={scale}")
    _check_numbers(path, table[[name for name in columns if name not in WORDS]])
    return table


def _check_numbers(path: Path, table: pd.DataFrame) -> None:
    """Blanks are allowed, since a run may lack a value; but every run has an accuracy."""
    numbers = table.apply(pd.to_numeric, errors="coerce")
    for name in table:
        bad = numbers[name].isna() & (table[name].notna() | (name == "accuracy"))
        if name in POSITIVE:
            bad = ~(numbers[name] > 0)
        if bad.any():
            example = table[name][bad].iloc[0]
            raise ConfigError(
                f"the table {path} has {name}={example}, which is no"
                f"{' positive' * (name in POSITIVE)} number; make it again"
            )
