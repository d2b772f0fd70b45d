"""The local pool: it ends with every run recorded, whatever happens to its workers."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coefdyn.cli.sweep import run as main
from coefdyn.config.grid import plan
from coefdyn.runs.lock import owner_of
from coefdyn.runs.record import read_record
from coefdyn.sweeps.worker import shares
from tests import SCRIPTS
from tests.runs.test_lock import held

pytestmark = pytest.mark.long

SWEEP = [sys.executable, str(SCRIPTS / "sweep.py")]
FOUR = ["scale=smoke", "seed=0,1", "model/readout=exp,relu"]


def table(results: Path) -> str:
    """Everything that the records say of the runs, but for times and sessions."""
    rows = []
    for path in sorted((results / "runs").iterdir()):
        record = read_record(path / "record.json")
        kept = {
            k: getattr(record, k) for k in ("run_id", "status", "metrics", "coefficients", "data")
        }
        rows.append(json.dumps(kept) + (path / "metrics.csv").read_text())
    return "\n".join(rows)


def clean(results: Path) -> bool:
    """Nothing is left that only a run at work has."""
    return not [*results.glob("runs/*/lock.*"), *results.glob("runs/*/*.partial")]


def test_one_that_fails_stops_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = [*FOUR, f"paths.results={tmp_path}", "jobs=2"]
    bad = tmp_path / "runs" / plan(grid[:-1])[1].run_id
    bad.mkdir(parents=True)
    (bad / "last.ckpt").write_text("no checkpoint")
    assert main([*grid, "action=run"]) == 1
    said = capsys.readouterr()
    assert "3 done, 0 diverged, 1 failed, 0 missing, 4 total" in said.out
    assert [line.split("/4 ")[0] for line in said.err.splitlines() if "/4 " in line] == list("1234")
    assert main([*grid, "action=status", "format=json"]) == 1
    (failed,) = (row for row in json.loads(capsys.readouterr().out)["runs"] if row.get("error"))
    assert failed["run_id"] == bad.name
    assert "cannot be read; delete it" in failed["error"]
    (bad / "last.ckpt").unlink()
    assert main([*grid, "action=run", "format=json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 4
    assert clean(tmp_path)


POOL_KILLED_EVERY = 7  # kills of a worker


def kill_at_random(results: Path, grid: list[str], kills: int, seed: int) -> int:
    """Run a sweep whose workers are killed; how many times it had to be started."""
    rng, killed, starts = random.Random(seed), 0, 0
    while True:
        process = subprocess.Popen(
            [*SWEEP, *grid, f"paths.results={results}", "action=run", "jobs=2"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        starts += 1
        while process.poll() is None:
            owners = [owner_of(path) for path in results.glob("runs/*")]
            busy = [owner.pid for owner in owners if owner]
            if killed < kills and busy:
                time.sleep(rng.random() * 0.4)
                try:
                    os.kill(rng.choice(busy), signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:  # it has just ended
                    continue
                if killed % POOL_KILLED_EVERY == 0:
                    process.kill()
            time.sleep(0.05)
        if process.returncode == 0:
            assert killed == kills
            return starts


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_workers_change_nothing(tmp_path: Path, kills: int) -> None:
    epochs = 25 if kills == 2 else 150
    grid = [*FOUR, f"trainer.max_epochs={epochs}", "trainer.checkpoint_seconds=0.1"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main([*grid, f"paths.results={whole}", "action=run", "jobs=2"]) == 0
    starts = kill_at_random(killed, grid, kills, seed=kills)
    assert starts == 1 + kills // POOL_KILLED_EVERY  # a worker's death alone ends no sweep
    assert table(killed) == table(whole)
    assert clean(killed)


@pytest.mark.slow
def test_a_worker_that_dies_again_and_again_fails_its_run_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A checkpoint that can only be waited for: each time, the worker is killed while it does.
    grid = ["scale=smoke", "seed=0,1", f"paths.results={tmp_path}", "jobs=1"]
    stuck = tmp_path / "runs" / plan(grid[:-1])[0].run_id
    stuck.mkdir(parents=True)
    os.mkfifo(stuck / "last.ckpt")
    process = subprocess.Popen(
        [*SWEEP, *grid, "action=run"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None:
        owner = owner_of(stuck)
        if owner:
            os.kill(owner.pid, signal.SIGKILL)
        time.sleep(0.05)
    assert process.returncode == 1
    assert main([*grid, "action=status", "format=json"]) == 1
    now = json.loads(capsys.readouterr().out)
    assert (now["done"], now["failed"]) == (1, 1)
    assert "3 times in a row at the same place; -9 is most often" in now["runs"][0]["error"]


def test_asked_to_end_it_saves_and_the_same_command_goes_on(tmp_path: Path) -> None:
    grid = ["scale=smoke", "trainer.max_epochs=150", f"paths.results={tmp_path}", "action=run"]
    (run,) = plan(grid[:-1])
    directory = tmp_path / "runs" / run.run_id
    process = subprocess.Popen([*SWEEP, *grid], stderr=subprocess.PIPE, text=True)
    while not (directory / "metrics.csv").exists() and process.poll() is None:
        time.sleep(0.02)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "SIGTERM: what was trained is saved; the same command goes on" in said
    assert (directory / "last.ckpt").exists()
    assert clean(tmp_path)
    assert main(grid) == 0
    record = read_record(directory / "record.json")
    assert record is not None
    assert len(record.earlier_sessions) == 1


def test_runs_of_others_are_waited_for(tmp_path: Path) -> None:
    grid = ["scale=smoke", f"paths.results={tmp_path}"]
    (run,) = plan(grid)
    directory = tmp_path / "runs" / run.run_id
    with held(directory):
        process = subprocess.Popen([*SWEEP, *grid, "action=run"], stderr=subprocess.DEVNULL)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=6)
        assert not (directory / "record.json").exists()
    assert process.wait(timeout=60) == 0
    assert (directory / "record.json").exists()


@pytest.mark.parametrize("argument", ["jobs=0", "jobs=two", "slurm.pack=0", "slurm.extra=fast"])
def test_bad_numbers_get_one_sentence(argument: str) -> None:
    process = subprocess.run(
        [*SWEEP, "scale=smoke", "action=run", argument], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    assert process.stderr.startswith(f"error: {argument} must be")
    assert process.stderr.count("\n") == 1


def test_results_that_cannot_be_written_lose_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    process = subprocess.run(
        [*SWEEP, "scale=smoke", f"paths.results={tmp_path / 'file'}", "action=run"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert "cannot be written to: Not a directory" in process.stderr
    assert "Traceback" not in process.stderr
    assert (tmp_path / "file").read_text() == "mine"


FULL_DISK = """
import resource, runpy, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing fails as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_disk_that_is_full_loses_nothing(tmp_path: Path) -> None:
    grid = ["scale=smoke", f"paths.results={tmp_path}", "trainer.max_epochs=3"]
    full = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(SCRIPTS / "train.py"), *grid],
        capture_output=True,
        text=True,
        check=False,
    )
    assert full.returncode == 1
    said = [line for line in full.stderr.splitlines() if line.startswith("error:")]
    assert said == [
        f"error: paths.results={tmp_path} cannot be written to: File too large; what is there is "
        "unharmed, and the same command goes on"
    ]
    assert clean(tmp_path)
    assert main([*grid, "action=run"]) == 0


@pytest.mark.slow
def test_a_sweep_of_populations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two tasks, each with its grid of rates and seeds as one."""
    grid = ["scale=smoke", "task=noisy_recall,compression", "optimizer.lr=1e-3,5e-3", "seed=0,1",
            f"paths.results={tmp_path}", "population.mode=fused"]  # fmt: skip
    assert [len(share) for share in shares(plan(grid))] == [4, 4]
    assert main([*grid, "action=run", "jobs=2"]) == 0
    assert "8 done, 0 diverged, 0 failed, 0 missing, 8 total" in capsys.readouterr().out
    for run in plan(grid):
        record = read_record(run.folder / "record.json")
        assert record is not None
        assert record.population == {"mode": "fused", "members": 4}
