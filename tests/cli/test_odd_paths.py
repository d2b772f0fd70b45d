"""A results folder may be called anything, and may be moved."""

from pathlib import Path

import pytest

import coefdyn
from coefdyn.cli import main

NAMES = ['it\'s "odd": #1=a,ü {x}[y]%~+']


@pytest.mark.parametrize("name", NAMES)
def test_every_command_takes_any_folder(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results, moved = tmp_path / name, tmp_path / f"moved {name}"
    place = [f"paths.results={results}"]
    grid = ["scale=smoke", "seed=0,1"]
    assert main(["train", "scale=smoke", "check=false", *place]) == 0
    assert main(["train", "-m", *grid, "check=false", *place]) == 0
    assert main(["sweep", *grid, *place, "action=status"]) == 0
    results.rename(moved)
    place = [f"paths.results={moved}"]
    assert main(["sweep", *grid, *place, "action=run"]) == 0
    assert main(["figure", *grid, *place]) == 0
    assert main(["report", *place]) == 0
    (first, second) = sorted(path.name for path in (moved / "runs").iterdir())
    capsys.readouterr()
    assert main(["show", first, second, *place]) == 0
    assert "test/loss" in capsys.readouterr().out
    assert len(coefdyn.load_runs(moved)) == 2
    run = coefdyn.train("scale=smoke", results=moved)
    assert run.run_id in (first, second)
    run.model()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"moved {name}"]
