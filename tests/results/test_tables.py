"""Tables: what a row says, and tables that cannot be used."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from coefdyn.cli import main
from coefdyn.config.grid import plan
from coefdyn.paper import experiments
from coefdyn.results.experiment import Experiment
from coefdyn.results.files import TableFolder
from coefdyn.results.tables import (
    CURVE_ROWS,
    curve_table,
    planned_per_point,
    point_table,
    provenance,
    run_table,
)
from coefdyn.runs.run import run_one
from tests.paper.worlds import fill, record, runs_of

STEM = "principle3_position"


def ours() -> Experiment:
    return experiments()[STEM]


def test_a_point_is_the_best_of_its_runs() -> None:
    runs = runs_of(STEM)
    records = {run.run_id: record(STEM, run) for run in runs}
    diverged = {"status": "diverged", "coefficients": None, "diverged_at_step": 7}
    records[runs[0].run_id] = record(STEM, runs[0], **diverged)
    rows = run_table(runs, records)
    assert len(rows) == len(runs) == 24
    points = point_table(rows, planned_per_point(runs))
    assert len(points) == 12
    first = points.iloc[0]
    assert (first["lr"], first["lr_at_edge"], first["runs"]) == (0.005, "largest", 2)
    assert (first["diverged"], first["missing"], first["seeds"]) == (1, 0, 1)
    assert first["accuracy"] == pytest.approx(0.99)
    assert first["accuracy_worst"] == pytest.approx(0.96)
    assert first["run_id"] == runs[1].run_id


def test_a_point_is_over_seeds_the_best_run_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first seed is best at the smaller rate, the second at the larger."""
    runs, folder, experiment = runs_of(STEM, "seed=0,1"), TableFolder(tmp_path, "smoke"), ours()
    records = {run.run_id: record(STEM, run) for run in runs}
    for run, accuracy in zip(runs, (0.59, 0.3, 0.2, 0.99), strict=False):
        metrics = records[run.run_id].metrics | {"test/accuracy": accuracy}
        records[run.run_id] = record(STEM, run, metrics=metrics)
    folder.write(experiment, runs, records)
    points = folder.read(STEM)
    assert len(points) == 12
    first = points.iloc[0]
    over_seeds = first[["accuracy", "accuracy_min", "accuracy_max", "accuracy_std"]]
    assert list(over_seeds) == pytest.approx([0.79, 0.59, 0.99, 0.4 / 2**0.5], rel=1e-5)
    assert (first["seeds"], first["runs"], first["accuracy_worst"]) == (2, 4, 0.2)
    folder.draw(experiment)
    assert main(["report", f"paths.results={tmp_path}", "format=json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_missing_runs_are_counted_and_not_filled() -> None:
    runs = runs_of(STEM)
    records = {r.run_id: record(STEM, r) if i else None for i, r in enumerate(runs)}
    rows = run_table(runs, records)
    assert len(rows) == 23
    assert point_table(rows, planned_per_point(runs))["missing"].tolist() == [1] + [0] * 11
    about = provenance(records)
    assert (about["runs"], about["missing"], about["hours"]) == (23, 1, 23.0)


def test_what_else_a_grid_varies_is_a_column() -> None:
    runs = runs_of(STEM, "trainer.clip=1,2", "trainer.stop_at=0.999")
    records = {run.run_id: record(STEM, run) for run in runs}
    rows = run_table(runs, records)
    points = point_table(rows, planned_per_point(runs))
    for table in (rows, points, curve_table(rows, records)):
        assert set(table["trainer.clip"]) == {1, 2}
        assert "trainer.stop_at" not in table
    assert (len(points), set(points["runs"])) == (24, {2})


def test_a_curve_is_of_the_best_run_and_ends_where_that_did() -> None:
    runs = runs_of(STEM)
    steps: list[float | None] = [float(step) for step in range(1, 3 * CURVE_ROWS)]
    records = {run.run_id: record(STEM, run, history={"step": steps}) for run in runs}
    rows = run_table(runs, records)
    curves = curve_table(rows, records)
    assert list(dict.fromkeys(curves["run_id"])) == list(point_table(rows)["run_id"])
    for _, curve in curves.groupby("run_id"):
        assert len(curve) <= CURVE_ROWS
        assert curve["step"].iloc[-1] == steps[-1]


def test_tables_from_real_runs_can_be_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way: two runs, their tables, their figure, the page."""
    place = f"paths.results={tmp_path}"
    ask = ["experiment=principle2_2_zeros", "scale=smoke", place, "task=fuzzy_recall"]
    assert main(["figure", *ask]) == 1
    assert re.search(f"2 of 2 runs of .* are not recorded.* {place}", capsys.readouterr().err)
    for run in plan(ask):
        run_one(run.config)
    capsys.readouterr()
    assert main(["figure", *ask]) == 0
    picture = Path(capsys.readouterr().out.strip())
    assert picture.stat().st_size > 5000
    assert picture.with_suffix(".pdf").exists()
    table = tmp_path / "tables" / "smoke" / "principle2_2_zeros.csv"
    before = table.read_bytes()
    assert main(["figure", *ask, f"paths.data={tmp_path}"]) == 0
    assert table.read_bytes() == before
    # Which runs, not where they lie.
    assert json.loads(table.with_suffix(".json").read_text())["narrowed"] == ["task=fuzzy_recall"]
    # A table of the whole experiment is not lost to one of a part.
    table.with_suffix(".json").write_text("{}")
    assert main(["figure", *ask]) == 1
    lost = "would be lost to one with task=fuzzy_recall; delete it"
    assert lost in capsys.readouterr().err
    assert table.read_bytes() == before
    assert main(["report", place]) == 0


def _spoil(table: pd.DataFrame, how: str) -> pd.DataFrame:
    if how == "columns":
        return table.drop(columns=["near_zero", "lr"])
    if how == "rows":
        return table.head(0)
    if how == "scale":
        return table.assign(scale="paper")
    if how == "twice":
        return pd.concat([table, table.assign(n_heads=8)])
    if how == "words":
        return table.assign(near_zero="few")
    return table.assign(accuracy=float("nan"))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("good"), stems=[STEM]).results


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("columns", "lacks the columns near_zero, lr"),
        ("rows", "has no rows"),
        ("scale", "is of scale=paper, not of scale=smoke"),
        ("numbers", "has accuracy=nan, which is no number"),
        ("words", "has near_zero=few, which is no number"),
        ("twice", "several points with readout=exp where the figure shows one"),
        ("text", "cannot be read"),
    ],
)
def test_a_table_that_cannot_be_used_is_named(
    good: Path, tmp_path: Path, how: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(good / "tables", tmp_path / "tables")
    path = TableFolder(tmp_path, "smoke").path(STEM)
    if how == "text":
        path.write_text('a,b\n"1')
    else:
        _spoil(pd.read_csv(path, keep_default_na=False), how).to_csv(path, index=False)
    place = f"paths.results={tmp_path}"
    for command in (
        ["figure", f"experiment={STEM}", "scale=smoke", place, "source=tables"],
        ["report", place],
    ):
        assert main(command) == 1
        message = capsys.readouterr().err
        assert words in message
        assert str(path) in message
        assert message.startswith("error: ")
        assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("figure experiment=principle9", "experiment=principle9 is not known; choose from"),
        (
            "figure experiment=all scale=huge",
            "scale=huge is not known; choose from lite, paper, smoke",
        ),
        ("figure experiment=all source=web", "source=web is not known; choose from auto, records"),
        ("figure", "figure needs experiment=<name>"),
        ("figure experiment=all", "there are no tables in"),
        (f"figure experiment={STEM} source=tables", "there is no table"),
        ("figure experiment=all source=tables results=x", "results=x would change nothing"),
        ("report", "coefdyn figure makes them"),
        ("report paths=here", "paths=here must be a section"),
        ("report paths=null", "paths=None must be a section"),
        ("report paths.results=3", "there are no tables in 3/tables"),
        ("report format=pdf", "format=pdf is not known"),
    ],
)
def test_bad_arguments_get_one_sentence(
    tmp_path: Path, arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = [] if "paths" in arguments else [f"paths.results={tmp_path}"]
    assert main([*arguments.split(), *place]) == 1
    message = capsys.readouterr().err
    assert words in message
    assert message.startswith("error: ")
    assert message.count("\n") == 1
