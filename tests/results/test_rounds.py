"""Grids that grow: pilots choose the rate, seeds are run at it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coefdyn.cli import main
from coefdyn.config.grid import PlannedRun, Planner
from coefdyn.errors import ConfigError
from coefdyn.results.rounds import PILOT, Known, known_runs, point_of
from coefdyn.results.tables import planned_per_point, point_table, run_table
from coefdyn.runs.record import read_record, write_record
from tests.results.made import diverged, recorded

pytestmark = pytest.mark.long

RATES = "optimizer.lr=1e-3,3e-3,1e-2"


def grid(results: Path, *more: str, seeds: int = 2, extend: int = 1) -> list[str]:
    return ["scale=smoke", f"paths.results={results}", f"seed={PILOT}", RATES,
            "model/readout=exp,relu", f"+grid.smoke.seeds={seeds}", f"+grid.smoke.extend={extend}",
            *more]  # fmt: skip


def known(given: list[str], seeds: Any = None) -> Known:
    return known_runs(Planner(given), seeds)


def record(known: Known, accuracies: Mapping[float, float | None]) -> None:
    """All runs of these learning rates; None diverged."""
    for run in known.runs:
        accuracy = accuracies.get(run.values["optimizer"]["lr"], 0.5)
        run.folder.mkdir(parents=True, exist_ok=True)
        made = diverged(run.run_id, 0.1) if accuracy is None else recorded(run.run_id, accuracy)
        write_record(run.folder / "record.json", made)


def rates(runs: list[PlannedRun], pilots: bool) -> list[float]:
    return sorted(
        {r.values["optimizer"]["lr"] for r in runs if (r.values["seed"] >= PILOT) == pilots}
    )


def test_seeds_wait_for_their_pilots_and_run_at_the_best_rate(tmp_path: Path) -> None:
    found = known(grid(tmp_path))
    assert (len(found.runs), found.waiting) == (6, 4)
    record(found, {1e-3: 0.5, 3e-3: 0.9, 1e-2: 0.7})
    found = known(grid(tmp_path))
    assert (len(found.runs), found.waiting) == (10, 0)
    assert rates(found.runs, pilots=False) == [3e-3]
    assert sorted({run.values["seed"] for run in found.runs}) == [0, 1, PILOT]


def test_one_rate_needs_no_pilots(tmp_path: Path) -> None:
    found = known([*grid(tmp_path), "optimizer.lr=3e-3"])
    assert (len(found.runs), found.waiting) == (4, 0)
    assert {run.values["optimizer"]["lr"] for run in found.runs} == {3e-3}
    assert sorted({run.values["seed"] for run in found.runs}) == [0, 1]
    more = known([*grid(tmp_path), "optimizer.lr=3e-3"], {point_of(found.runs[0]): 5})
    assert len(more.runs) == 7


@pytest.mark.parametrize(
    ("accuracies", "added", "chosen"),
    [
        ({1e-3: 0.9, 3e-3: 0.8, 1e-2: 0.7, 0.000333: 0.95}, 0.000333, 0.000333),
        ({1e-3: 0.5, 3e-3: 0.8, 1e-2: 0.9, 0.0333: 0.3}, 0.0333, 1e-2),
        ({1e-3: 0.5, 3e-3: 0.8, 1e-2: 0.9, 0.0333: None}, 0.0333, 1e-2),
    ],
)
def test_the_next_rate_is_tried_while_the_best_is_at_an_edge(
    accuracies: dict[float, float | None], added: float, chosen: float, tmp_path: Path
) -> None:
    """Once, if it is allowed once."""
    record(known(grid(tmp_path)), accuracies)
    found = known(grid(tmp_path))
    assert rates(found.runs, pilots=True) == sorted([1e-3, 3e-3, 1e-2, added])
    assert found.waiting == 4
    record(found, accuracies)
    found = known(grid(tmp_path))
    assert rates(found.runs, pilots=True) == sorted([1e-3, 3e-3, 1e-2, added])
    assert rates(found.runs, pilots=False) == [chosen]
    assert found.waiting == 0


def test_an_edge_may_move_as_often_as_allowed(tmp_path: Path) -> None:
    rising = {1e-3: 0.1, 3e-3: 0.2, 1e-2: 0.3, 0.0333: 0.4, 0.111: 0.5, 0.37: 0.6}
    for _ in range(5):
        found = known(grid(tmp_path, extend=2))
        record(found, rising)
    assert rates(found.runs, pilots=True) == [1e-3, 3e-3, 1e-2, 0.0333, 0.111]
    assert rates(found.runs, pilots=False) == [0.111]


def test_of_equal_rates_the_smallest_and_of_pilots_the_mean(tmp_path: Path) -> None:
    more = [f"seed={PILOT},{PILOT + 1}"]
    given = [part for part in grid(tmp_path, extend=0) if not part.startswith("seed=")]
    found = known([*given, *more])
    assert (len(found.runs), found.waiting) == (12, 4)
    record(found, {1e-3: 0.9, 3e-3: 0.9, 1e-2: 0.5})
    assert rates(known([*given, *more]).runs, pilots=False) == [1e-3]


def test_a_point_may_get_more_seeds_than_the_grid_says(tmp_path: Path) -> None:
    record(known(grid(tmp_path)), {3e-3: 0.9})
    runs = known(grid(tmp_path)).runs
    point = next(point_of(run) for run in runs if run.choices["model/readout"] == "relu")
    more = known(grid(tmp_path), {point: 5}).runs
    counts = [sum(r.values["seed"] < PILOT and r.choices["model/readout"] == phi for r in more)
              for phi in ("exp", "relu")]  # fmt: skip
    assert counts == [2, 5]


def test_an_ordinary_grid_is_what_it_was(tmp_path: Path) -> None:
    plain = ["scale=smoke", f"paths.results={tmp_path}", "optimizer.lr=1e-3,2e-3", f"seed={PILOT}"]
    assert len(known(plain).runs) == 2
    staged = [part.replace(f"seed={PILOT}", "seed=0") for part in grid(tmp_path)]
    found = known(staged)  # no pilots: seeds were chosen by hand
    record(found, {3e-3: 0.9})
    assert known(staged).runs == found.runs
    with pytest.raises(ConfigError, match="whole numbers, seeds of at least 1"):
        known(grid(tmp_path, seeds=0))


def test_tables_keep_pilots_out_of_the_numbers(tmp_path: Path) -> None:
    for _ in range(3):
        found = known(grid(tmp_path))
        record(found, {1e-3: 0.5, 3e-3: 0.9, 1e-2: 0.7})
    for run in found.runs:
        if run.values["seed"] < PILOT:
            made = recorded(run.run_id, 0.6 + 0.1 * run.values["seed"])
            write_record(run.folder / "record.json", made)
    records = {run.run_id: read_record(run.folder / "record.json") for run in found.runs}
    points = point_table(run_table(found.runs, records), planned_per_point(found.runs))
    for point in points.to_dict("records"):
        assert point["accuracy"] == pytest.approx(0.65)
        assert (point["seeds"], point["runs"], point["missing"]) == (2, 5, 0)
        assert (point["lr"], point["lr_at_edge"]) == (3e-3, "inside")
        assert point["accuracy_optimistic"] == pytest.approx(0.9)


def test_a_sweep_runs_in_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [*grid(tmp_path, "trainer.max_epochs=1", seeds=1), "format=json"]
    assert main(["sweep", *given]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["total"], planned["waiting"]) == (6, 2)
    assert main(["sweep", *given, "action=status"]) == 1
    capsys.readouterr()
    assert main(["sweep", *given, "action=run"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["missing"] == done["waiting"] == 0
    seeds = [run for run in done["runs"] if "seed=0" in run["point"]]
    assert len(seeds) == 2
    assert done["done"] == done["total"] in range(8, 11)
    assert main(["sweep", *given, "action=status"]) == 0
