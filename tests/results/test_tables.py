"""Tables from records: every column by value, and which run stands for a point."""

import json
import math
from typing import Any

import pandas as pd
import pytest

from coefdyn.results.tables import (
    CURVE_COLUMNS,
    POINT_COLUMNS,
    RUN_COLUMNS,
    best_runs,
    curve_table,
    planned_per_point,
    point_table,
    provenance,
    run_table,
)
from coefdyn.runs.record import Record
from tests.results.made import SLOTS, diverged, planned, recorded

AXES = {"scale": "smoke", "task": "noisy_recall", "model": "gla", **SLOTS, "post_norm": "all",
        "n_heads": 3, "n_state": 24, "seq_len": 8}  # fmt: skip
METRICS = ("accuracy", "accuracy_macro", "accuracy_best", "loss", "test/perplexity",
           "test/perplexity_word", "validation/perplexity")  # fmt: skip
STATISTICS = ("near_zero", "near_one", "ratio", "near_zero_raw", "near_one_raw", "ratio_raw",
              "near_zero_relative", "entropy", "score_variance", "effective_rank", "guarded_rows",
              "most_zeros")  # fmt: skip
INITIAL = ("near_zero_initial", "near_zero_raw_initial", "near_zero_relative_initial",
           "score_variance_initial")  # fmt: skip


def measured(accuracy: float) -> dict[str, Any]:
    """What `recorded` measures, all of it."""
    metrics = {name: times * accuracy for times, name in enumerate(METRICS, 1)}
    return metrics | {
        name: times * accuracy for times, name in enumerate((*STATISTICS, *INITIAL), 8)
    }


def test_a_row_says_what_its_run_was_and_what_it_did() -> None:
    """A run without a record has no row."""
    runs = [planned("a", seed=4), planned("lost"), planned("b", lr=0.01, weight_decay=0.2)]
    records = {"a": recorded("a", 0.5), "lost": None, "b": diverged("b", 0.25)}
    table = run_table(runs, records)
    assert list(table.columns) == RUN_COLUMNS
    finished, failed = table.to_dict("records")
    known = {
        "chance": 0.125,
        "order_free": 0.25,
        "ceiling": 1.0,
        "zero_limit": 7,
        "parameters": 1000,
    }
    assert finished | {"diverged_at_step": None} == {
        **AXES, "seed": 4, "lr": 1e-3, "weight_decay": 0.1, "status": "finished",
        "diverged_at_step": None, **measured(0.5), "mean_zeros": 4.5, **known, "run_id": "a",
    }  # fmt: skip
    assert math.isnan(finished["diverged_at_step"])
    blank = {*STATISTICS, "mean_zeros"}
    assert {name for name, value in failed.items() if value != value} == blank
    assert {name: value for name, value in failed.items() if name not in blank} == {
        **AXES, "seed": 0, "lr": 0.01, "weight_decay": 0.2, "status": "diverged",
        "diverged_at_step": 7, "run_id": "b", **known,
        **{name: measured(0.25)[name] for name in (*METRICS, *INITIAL)},
    }  # fmt: skip


def test_final_tests_are_columns_where_some_run_has_them() -> None:
    """No axis of the points, but a mean over seeds. A run without one has a blank."""
    runs = [planned("a", seed=0), planned("b", seed=1), planned("c", seed=2)]
    records = {name: recorded(name, 0.5) for name in "abc"}
    for name, accuracies in {"a": {"64": 0.2, "gap4": 0.5}, "b": {"64": 0.4}}.items():
        found = {f"test/accuracy@{test}": accuracy for test, accuracy in accuracies.items()}
        records[name] = recorded(name, 0.5, metrics=records[name].metrics | found)
    table = run_table(runs, records)
    place = list(table.columns).index("loss") + 1
    assert list(table.columns)[place : place + 2] == ["accuracy@64", "accuracy@gap4"]
    assert [name for name in table if "@" not in name] == RUN_COLUMNS
    assert table["accuracy@64"].tolist()[:2] == [0.2, 0.4]
    assert table["accuracy@64"].isna().tolist() == [False, False, True]
    points = point_table(table)
    assert len(points) == 1
    assert [name for name in points if "@" not in name] == POINT_COLUMNS
    assert points["accuracy@64"].tolist() == pytest.approx([0.3])
    assert points["accuracy@gap4"].tolist() == pytest.approx([0.5])
    curves = curve_table(table, records)
    assert list(curves.columns) == CURVE_COLUMNS


def test_zeros_are_those_of_the_worst_step_of_the_worst_head() -> None:
    for accuracy, most in ((0.2, 2.0), (0.5, 4.5)):  # in the first layer, in the second
        table = run_table([planned("a")], {"a": recorded("a", accuracy)})
        assert table["mean_zeros"].tolist() == [most]


def test_a_foreign_mixer_has_no_slots_but_block_and_position() -> None:
    run = planned("a", model={"mixer": {"_target_": "theirs"}})
    row = run_table([run], {"a": recorded("a", 0.5, coefficients=None)}).iloc[0]
    used = {"block": "mamba", "position": "none"}
    assert {slot: row[slot] for slot in SLOTS} == dict.fromkeys(SLOTS, "foreign") | used


def test_what_else_a_grid_varies_is_a_column_of_every_table() -> None:
    """What it sets once is none, nor what has a column. "null", not a blank: groups lose blanks."""
    clips: list[Any] = [None, 2, [1, 2]]
    runs = [
        planned(str(number), seed=number, trainer={"clip": clip, "stop_at": 0.9},
                point=(f"+trainer.clip={clip}", "trainer.stop_at=0.9", f"seed={number}",
                       "experiment=mine", f"model/readout=exp{number}"))
        for number, clip in enumerate(clips)
    ]  # fmt: skip
    records = {run.run_id: recorded(run.run_id, 0.5) for run in runs}
    rows = run_table(runs, records)
    points = point_table(rows, planned_per_point(runs))
    curves = curve_table(rows, records)
    for table, known in ((rows, RUN_COLUMNS), (points, POINT_COLUMNS), (curves, CURVE_COLUMNS)):
        assert set(table.columns) - set(known) == {"trainer.clip"}
        assert list(dict.fromkeys(table["trainer.clip"])) == ["null", 2, "[1, 2]"]
        assert list(table.columns).index("trainer.clip") == list(table.columns).index("seq_len") + 1
    assert points["missing"].tolist() == [0, 0, 0]


def test_a_point_is_over_seeds_the_best_run_of_each() -> None:
    """The first seed's best diverged, so that the second best counts; one run is missing."""
    accuracies = {(0, 1e-3): 0.2, (0, 2e-3): 0.6, (0, 5e-3): 0.9,
                  (1, 1e-3): 0.4, (1, 2e-3): 0.3, (1, 5e-3): None}  # fmt: skip
    runs, records = [], dict[str, Record | None]()
    for (seed, lr), accuracy in reversed(accuracies.items()):
        run = planned(f"seed {seed} lr {lr}", lr, seed=seed)
        make = diverged if accuracy == 0.9 else recorded
        records[run.run_id] = None if accuracy is None else make(run.run_id, accuracy)
        runs.append(run)
    table = point_table(run_table(runs, records), planned_per_point(runs))
    assert list(table.columns) == POINT_COLUMNS
    (point,) = table.to_dict("records")
    assert {name: value for name, value in point.items() if isinstance(value, str)} == {
        **{name: value for name, value in AXES.items() if isinstance(value, str)},
        "lr_at_edge": "inside", "run_id": "seed 0 lr 0.002",
    }  # fmt: skip
    assert {name: value for name, value in point.items() if not isinstance(value, str)} == (
        pytest.approx({
            "n_heads": 3, "n_state": 24, "seq_len": 8, "seeds": 2,
            "accuracy_std": 0.1 * 2**0.5, "accuracy_min": 0.4, "accuracy_max": 0.6,
            **measured(0.5), "mean_zeros": 4.5, "chance": 0.125, "order_free": 0.25,
            "ceiling": 1.0, "zero_limit": 7,
            "parameters": 1000, "lr": 2e-3, "weight_decay": 0.1,
            "runs": 5, "missing": 1, "diverged": 1, "accuracy_worst": 0.2,
            "accuracy_optimistic": 0.5,
        })
    )  # fmt: skip


def test_what_a_point_is_told_apart_by_makes_points() -> None:
    """And each has its own number of planned runs."""
    runs = [planned("a", seq_len=8), planned("b", seq_len=16), planned("c", seed=1, seq_len=16)]
    records = {"a": recorded("a", 0.5), "b": None, "c": recorded("c", 0.5)}
    rows = run_table(runs, records)
    points = point_table(rows, planned_per_point(runs))
    assert points[["seq_len", "seeds", "missing"]].to_numpy().tolist() == [[8, 1, 0], [16, 1, 1]]
    assert point_table(rows)["missing"].tolist() == [0, 0]  # where no plan is known


@pytest.mark.parametrize(
    ("outcomes", "best"),
    [
        ({(2e-3, 0.1): 0.5, (1e-3, 0.1): 0.4}, (2e-3, 0.1)),
        ({(2e-3, 0.1): 0.5, (1e-3, 0.9): 0.5}, (1e-3, 0.9)),
        ({(1e-3, 0.2): 0.5, (1e-3, 0.1): 0.5}, (1e-3, 0.1)),
        ({(1e-3, 0.1): -0.9, (2e-3, 0.2): 0.1}, (2e-3, 0.2)),
        ({(1e-3, 0.1): -0.3, (2e-3, 0.2): -0.9}, (2e-3, 0.2)),
    ],
    ids=["accuracy", "then lr", "then weight decay", "but not diverged", "unless all are"],
)
def test_the_best_run(outcomes: dict[tuple[float, float], float], best: tuple[float, ...]) -> None:
    """Accuracies by learning rate and weight decay; below zero: of a run that diverged."""
    runs = [planned(str(tuned), *tuned) for tuned in outcomes]
    records = {str(tuned): (diverged if accuracy < 0 else recorded)(str(tuned), abs(accuracy))
               for tuned, accuracy in outcomes.items()}  # fmt: skip
    rows = run_table(runs, records)
    for table in (rows, rows.iloc[::-1]):
        assert best_runs(table)["run_id"].tolist() == [str(best)]


@pytest.mark.parametrize(
    ("rates", "best", "edge"),
    [
        ([1e-3], 1e-3, "only"),
        ([1e-3, 2e-3], 1e-3, "smallest"),
        ([2e-3, 1e-3], 2e-3, "largest"),
        ([5e-3, 1e-3, 2e-3], 2e-3, "inside"),
        ([5e-3, 1e-3, 2e-3], 5e-3, "largest"),
        ([5e-3, 1e-3, 2e-3], 1e-3, "smallest"),
    ],
)
def test_a_best_rate_at_the_edge_is_said(rates: list[float], best: float, edge: str) -> None:
    """Whatever the weight decay."""
    runs = [planned(f"{lr} {decay}", lr, decay) for lr in rates for decay in (0.1, 0.2)]
    records = {run.run_id: recorded(run.run_id, 0.9 if run.run_id == f"{best} 0.2" else 0.1)
               for run in runs}  # fmt: skip
    (point,) = point_table(run_table(runs, records)).to_dict("records")
    assert (point["lr"], point["weight_decay"], point["lr_at_edge"]) == (best, 0.2, edge)


@pytest.mark.parametrize(
    ("length", "steps"),
    [
        (1, [1]),
        (50, list(range(1, 51))),
        (51, list(range(1, 52, 2))),
        (100, list(range(2, 101, 2))),
        (101, list(range(2, 102, 3))),
    ],
)
def test_a_curve_has_at_most_fifty_rows_and_ends_where_its_run_did(
    length: int, steps: list[int]
) -> None:
    history: dict[str, list[Any]] = {"step": list(range(1, length + 1))}
    records = {"a": recorded("a", 0.5, history=history)}
    curve = curve_table(run_table([planned("a")], records), records)
    assert curve["step"].tolist() == steps


def test_a_curve_is_of_the_best_run_of_each_seed() -> None:
    runs = [planned(f"{seed} {lr}", lr, seed=seed) for seed in (0, 1) for lr in (1e-3, 2e-3)]
    history = {"epoch": [1, 2], "step": [5, 10], "train/loss": [3.0, 2.0]}
    best = {"0 0.002", "1 0.001"}
    records = {run.run_id: recorded(run.run_id, 0.5 + 0.1 * (run.run_id in best), history=history)
               for run in runs}  # fmt: skip
    curves = curve_table(run_table(runs, records), records)
    assert list(curves.columns) == CURVE_COLUMNS
    known = curves.dropna(axis=1).to_dict("records")
    assert known == [
        {**AXES, "seed": seed, "epoch": epoch, "step": 5 * epoch, "train/loss": 4.0 - epoch,
         "run_id": run_id}
        for seed, run_id in enumerate(sorted(best)) for epoch in (1, 2)
    ]  # fmt: skip


def test_no_runs_have_no_curves() -> None:
    rows = run_table([planned("a")], {"a": None})
    assert list(curve_table(rows, {"a": None}).columns) == CURVE_COLUMNS
    assert isinstance(rows, pd.DataFrame)
    assert len(point_table(rows)) == 0


def test_provenance_is_what_the_runs_have_in_common() -> None:
    other = {"commit": "b" * 40, "dirty": True}
    records = {
        "a": recorded("a", 0.5, seconds={"session": 5000.0}),
        "b": recorded("b", 0.5, seconds={"session": 1600.0}, git=other),
        "c": recorded("c", 0.5, seconds={"session": 70.0}),
        "d": None,
    }
    about = provenance(records)
    assert about == {
        "runs": 3,
        "missing": 1,
        "hours": 1.85,  # 6670 s
        "commits": [{"commit": "a" * 40, "dirty": False}, other],
        "versions": [{"torch": "2"}],
        "devices": [{"type": "cpu", "name": "x", "kind": "y", "threads": 1}],
    }
    assert json.loads(json.dumps(about)) == about
