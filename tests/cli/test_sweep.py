"""coefdyn sweep: what there is to run, and what became of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from coefdyn.cli.sweep import run as main
from coefdyn.config.compose import compose
from coefdyn.config.grid import plan
from coefdyn.errors import ConfigError
from coefdyn.runs.record import write_record
from coefdyn.runs.run import run_one
from tests.results.made import recorded

GRID = ["experiment=principle2_2_zeros", "scale=smoke"]


def counts(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    code = main([*arguments, "format=json"])
    return code, json.loads(capsys.readouterr().out)


def test_states_add_up_and_status_tells_when_something_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = [*GRID, f"paths.results={tmp_path}"]
    code, planned = counts(capsys, *grid)
    assert (code, planned["missing"], planned["total"]) == (0, 4, 4)
    assert planned["core_hours"] is None  # nothing to tell it by
    runs = planned["runs"]
    assert isinstance(runs, list)
    run_one(compose(runs[0]["point"]))
    failed = tmp_path / "runs" / runs[1]["run_id"]
    failed.mkdir(parents=True)
    (failed / "error.txt").write_text("Traceback\nRuntimeError: no more of this\n")
    code, now = counts(capsys, *grid, "action=status")
    assert code == 1
    assert [now[name] for name in ("done", "diverged", "failed", "missing")] == [1, 0, 1, 2]
    assert now["runs"][1]["error"] == "RuntimeError: no more of this"  # type: ignore[index]
    assert main([*grid, "action=status"]) == 1
    text = capsys.readouterr().out
    assert "no more of this" in text
    assert "1 done, 0 diverged, 1 failed, 2 missing, 4 total" in text
    assert main([*grid, "seed=0,1"]) == 0
    assert "core hours, 0 for what follows" in capsys.readouterr().out
    for run in runs:
        run_one(compose(run["point"]))
    assert main([*grid, "action=status"]) == 0
    assert " MB on disk" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("action=walk", "action=walk is not known; choose from plan, run, status, submit"),
        ("format=xml", "format=xml is not known; choose from table, json"),
        ("experiment=nothing", "experiment/nothing"),
        ("force=true", "force=true is for train"),
        ("slurm=null", "slurm=None must be a section"),
        ("seed=range(0,0)", "the grid has no points"),
    ],
)
def test_bad_arguments_get_one_sentence(argument: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        main([*GRID, argument])
    assert "\n" not in str(error.value)


def test_one_record_that_cannot_be_read_is_one_failed_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = [*GRID, f"paths.results={tmp_path}"]
    _, planned = counts(capsys, *grid)
    assert planned["core_hours"] is None  # nothing to tell it by
    runs = planned["runs"]
    assert isinstance(runs, list)
    for place, (name, text) in enumerate((("record.json", "{"), ("error.txt", "no [/data] here"))):
        folder = tmp_path / "runs" / runs[place]["run_id"]
        folder.mkdir(parents=True)
        (folder / name).write_text(text)
    code, now = counts(capsys, *grid, "action=status")
    assert (code, now["failed"], now["missing"]) == (1, 2, 2)
    assert "cannot be read; delete it" in now["runs"][0]["error"]  # type: ignore[index]
    assert main([*grid, "action=status"]) == 1
    assert "no [/data] here" in capsys.readouterr().out


def test_a_plan_says_what_is_missing_by_the_time_of_recorded_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By those of the same task, or of any; what waits for pilots counts apart."""
    grid = ["scale=smoke", "task=memorization,noisy_recall", "seed=100", "optimizer.lr=1e-3,3e-3",
            "+grid.smoke.seeds=3", f"paths.results={tmp_path}"]  # fmt: skip
    runs = plan(grid)
    for run, seconds in zip(runs[::2], (3600.0, 7200.0), strict=True):  # one of each task
        run.folder.mkdir(parents=True)
        made = replace(recorded(run.run_id, 0.5), seconds={"session": seconds})
        write_record(run.folder / "record.json", made)
    code, found = counts(capsys, *grid)
    assert code == 0
    assert found["core_hours"] == {"now": pytest.approx(3.0), "following": pytest.approx(9.0)}
