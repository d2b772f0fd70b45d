"""Job arrays: what is submitted, and, where SLURM is installed, what a real one makes of it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coefdyn.cli.sweep import run as main
from coefdyn.config.grid import PlannedRun, plan
from coefdyn.errors import ConfigError
from coefdyn.runs.lock import owner_of
from coefdyn.sweeps import slurm
from coefdyn.sweeps.slurm import read_manifest, write_manifest
from coefdyn.tasks.text.prepare import prepare
from tests.sweeps.cluster import Cluster, missing_programs

real = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        bool(missing_programs()),
        reason=f"SLURM is not installed: no {', '.join(missing_programs())}",
    ),
]
ODD = "my #1 ='results' \"ü\""
SMALL = ["slurm.cpus=1", "slurm.mem=100", "slurm.time=null"]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands that only note what they are called with, in the directory's calls.txt."""
    place = tmp_path / "bin"
    place.mkdir()
    for name, answer in (("sbatch", "echo 41"), ("squeue", "true"), ("scontrol", "echo $LIMIT")):
        script = place / name
        script.write_text(f'#!/bin/sh\nprintf "%s|" {name} "$@" >> "{place}/calls.txt"\n{answer}\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setenv("LIMIT", "MaxArraySize = 3")
    return place


def test_a_submission_splits_arrays_and_quotes_paths(
    tmp_path: Path, fake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "my results 100%"
    more = ["slurm.pack=2", "slurm.max_parallel=2", "slurm.gpus=1", 'slurm.extra=["--qos=low"]']
    grid = ["scale=smoke", "seed=range(0,10)", f"paths.results='{results}'"]
    assert main([*grid, *more, "slurm.partition=gpu", "action=submit"]) == 0
    assert "10 runs in 5 jobs, SLURM 41" in capsys.readouterr().out
    calls = [c for c in (fake / "calls.txt").read_text().split("sbatch|") if "--array" in c]
    assert ["--array=0-2%2" in calls[0], "--array=0-1%2" in calls[1]] == [True, True]
    for option in ("--partition=gpu", "--gpus=1", "--qos=low", "--requeue", "--signal=B:USR1@60"):
        assert option in calls[0].split("|")
    (directory,) = (results / "slurm").iterdir()
    assert f"--output={str(directory).replace('%', '%%')}/%A_%a.log" in calls[0].split("|")
    assert f"'{directory}/manifest.json' 3 2 1 60" in (directory / "jobs-3.sh").read_text()
    runs = read_manifest(directory / "manifest.json")
    assert [run.run_id for run in runs] == [run.run_id for run in plan(grid)]


def test_a_machine_fills_a_submission_in(
    tmp_path: Path, fake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One word for the GPU, the packing and the trainer; what is typed wins."""
    grid = ["scale=smoke", "seed=range(0,20)", f"paths.results={tmp_path}", "machine=slurm"]
    assert main([*grid, "slurm.partition=gpu", "slurm.mem=32G", "action=submit"]) == 0
    assert "20 runs in 2 jobs" in capsys.readouterr().out
    (call,) = [c for c in (fake / "calls.txt").read_text().split("sbatch|") if "--array" in c]
    for option in ("--partition=gpu", "--gpus=1", "--cpus-per-task=4", "--mem=32G", "--array=0-1"):
        assert option in call.split("|")
    (directory,) = (tmp_path / "slurm").iterdir()
    assert (directory / "jobs-0.sh").read_text().rstrip().endswith("manifest.json 0 16 2 60")
    runs = read_manifest(directory / "manifest.json")
    assert {run.choices["trainer"] for run in runs} == {"cuda"}
    assert {run.config.settings.population.mode for run in runs} == {"auto"}


def test_what_is_queued_is_not_sent_again(
    tmp_path: Path, fake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ["scale=smoke", "seed=range(0,4)", f"paths.results={tmp_path}", "slurm.pack=2"]
    assert main([*grid, "action=submit"]) == 0
    (fake / "squeue").write_text("#!/bin/sh\necho 1\n")  # the second job is still there
    assert main([*grid, "action=submit"]) == 0
    assert "2 are queued already; 2 runs in 1 jobs" in capsys.readouterr().out
    (fake / "sbatch").write_text("#!/bin/sh\necho 'Invalid account' >&2; exit 1\n")
    (fake / "squeue").write_text("#!/bin/sh\necho 'out of order' >&2; exit 1\n")
    with pytest.raises(ConfigError, match="squeue does not say what is queued"):
        main([*grid, "action=submit"])
    (fake / "squeue").write_text("#!/bin/sh\necho 'Invalid job id specified' >&2; exit 1\n")
    for file in tmp_path.glob("slurm/*/manifest.json"):
        file.unlink()  # somebody tidied up
    with pytest.raises(ConfigError, match="sbatch refused: Invalid account"):
        main([*grid, "action=submit"])


def test_without_sbatch_it_says_what_else_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"sbatch is not on this machine.*action=run jobs=N"):
        main(["scale=smoke", f"paths.results={tmp_path}", "action=submit"])


def _edit(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: _edit(text, '"lr": 0.005', '"lr": 0.5'), "was changed after"),
        (lambda text: _edit(text, '"results": "', '"results": "/elsewhere'), "was changed after"),
        (lambda text: text[:-10], "cannot be read"),
        (lambda text: _edit(text, '"runs"', '"jobs"'), "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_a_manifest_edited_by_hand_is_refused(
    tmp_path: Path, change: Callable[[str], str] | None, words: str
) -> None:
    path = tmp_path / "manifest.json"
    runs = plan(["scale=smoke", f"paths.results={tmp_path}", "optimizer.lr=0.005"])
    write_manifest(path, runs)
    assert read_manifest(path) == [_as_read(run) for run in runs]
    path.write_text(change(path.read_text())) if change else path.unlink()
    with pytest.raises(ConfigError, match=f"{words}.*submit again"):
        slurm.main([str(path), "0", "1", "1", "60"])
    assert not (tmp_path / "runs").exists()


def test_other_code_than_was_submitted_stops_a_job_unless_told_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "manifest.json"
    slurm.write_manifest(path, plan(["scale=smoke", f"paths.results={tmp_path}"]))
    assert len(slurm.read_manifest(path)) == 1
    monkeypatch.setattr(slurm, "digests", lambda: {"code": "another"})
    with pytest.raises(ConfigError, match=r"the code is another than when .* was submitted; go"):
        slurm.read_manifest(path)
    (tmp_path / "any_code").touch()
    assert len(slurm.read_manifest(path)) == 1


def _as_read(run: PlannedRun) -> PlannedRun:
    return PlannedRun(run.run_id, run.point, dict(run.values), dict(run.choices))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        Path(root).chmod(0o755)  # munge insists; pytest's own directories are private
        started = Cluster(Path(root))
        yield started
        started.stop()


def _until(what: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _parent(pid: int) -> int:
    """The process that SLURM started and signals, of one of its workers."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("place", [pytest.param('it\'s a "place" 100%', marks=real)])
def test_a_failure_a_cancellation_and_requeues(
    cluster: Cluster, tmp_path: Path, place: str
) -> None:
    """24 runs, 4 per job: job 0 has a run that raises, 1 is cancelled, 2 and 3 start again."""
    home = tmp_path / place
    home.mkdir()
    grid = [
        "scale=smoke",
        "seed=range(0,24)",
        "trainer.max_epochs=40",
        f"paths.results={ODD}",
    ]
    runs = [home / ODD / "runs" / run.run_id for run in plan(grid)]
    runs[2].mkdir(parents=True)
    (runs[2] / "last.ckpt").write_text("no checkpoint")
    sent = cluster.sweep(*grid, *SMALL, "action=submit", "slurm.pack=4", cwd=home)
    assert (sent.returncode, sent.stderr) == (0, "")
    assert "24 runs in 6 jobs" in sent.stdout
    assert cluster.call("squeue", "--noheader")  # it did not wait for them

    def at_work(job: int) -> bool:
        return any(owner_of(run) for run in runs[4 * job : 4 * job + 4])

    (array,) = {job.partition("_")[0] for job in cluster.states()}
    _until(lambda: at_work(1))
    cluster.call("scancel", f"{array}_1")
    _until(lambda: at_work(2))
    os.kill(_parent(next(filter(None, map(owner_of, runs[8:12]))).pid), signal.SIGUSR1)
    _until(lambda: at_work(3))
    cluster.call("scontrol", "requeue", f"{array}_3")
    states = cluster.wait()
    others = {f"{array}_{job}": "COMPLETED" for job in (2, 3, 4, 5)}
    assert states == {f"{array}_0": "FAILED", f"{array}_1": "CANCELLED", **others}
    logs = {p.stem: p.read_text() for p in (home / ODD / "slurm").glob("*/*.log")}
    assert "SIGUSR1: saved" in logs[f"{array}_2"]
    assert "SIGTERM: saved" in logs[f"{array}_3"]

    now = json.loads(cluster.sweep(*grid, "action=status", "format=json", cwd=home).stdout)
    left = {run["run_id"]: run["state"] for run in now["runs"] if run["state"] != "done"}
    assert left.pop(runs[2].name) == "failed"
    assert set(left) <= {run.name for run in runs[4:8]}  # of the cancelled job
    assert set(left.values()) == {"missing"}
    assert "cannot be read" in now["runs"][2]["error"]

    (runs[2] / "last.ckpt").unlink()
    again = cluster.sweep(*grid, *SMALL, "action=submit", "slurm.pack=4", cwd=home)
    assert f"{len(left) + 1} runs in" in again.stdout
    second = cluster.wait()
    assert {s for job, s in second.items() if not job.startswith(f"{array}_")} == {"COMPLETED"}
    done = cluster.sweep(*grid, "action=status", cwd=home)
    assert done.returncode == 0
    assert done.stdout.startswith("24 done, 0 diverged, 0 failed, 0 missing, 24 total\n")


@pytest.mark.parametrize("why", [pytest.param("partition", marks=real)])
def test_a_choice_that_the_cluster_does_not_have(
    cluster: Cluster, tmp_path: Path, why: str
) -> None:
    grid = ["scale=smoke", f"paths.results={tmp_path}", "action=submit", f"slurm.{why}=nowhere"]
    refused = cluster.sweep(*grid, cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: sbatch refused: ")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("launcher", [pytest.param("slurm", marks=real)])
def test_hydra_s_own_way_by_submitit(cluster: Cluster, tmp_path: Path, launcher: str) -> None:
    grid = ["scale=smoke", "seed=0,1", f"paths.results={tmp_path}"]
    good, bad = (tmp_path / "runs" / run.run_id for run in plan(grid))
    bad.mkdir(parents=True)
    (bad / "last.ckpt").write_text("no checkpoint")
    small = ["hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=1"]
    done = cluster.script(
        "train.py", "-m", *grid, f"hydra/launcher={launcher}", *small, cwd=tmp_path
    )
    assert done.returncode == 1
    assert (good / "record.json").exists()
    assert not (bad / "record.json").exists()


@pytest.mark.parametrize("tasks", [pytest.param(2, marks=real)])
def test_the_tasks_of_a_job_share_a_run(
    cluster: Cluster, tmp_path: Path, text: dict[str, Any], tasks: int
) -> None:
    prepare(text)
    script = Path(__file__).parents[2] / "scripts" / "train.py"
    arguments = ["task=wikitext103", "scale=smoke", "task.vocab_size=258", "trainer=ddp",
                 "trainer.precision=fp32", "trainer.devices.accelerator=cpu",
                 "trainer.devices.threads=1", f"paths.data={tmp_path}/data",
                 f"paths.results={tmp_path}"]  # fmt: skip
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(
        ["srun", f"--ntasks-per-node={tasks}", "--mem=100", *command],
        env=cluster.environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("record.json") == 1
    (path,) = tmp_path.glob("runs/*/record.json")
    assert json.loads(path.read_text())["device"]["processes"] == tasks


@pytest.mark.parametrize("where", [pytest.param("slurm", marks=real)])
def test_decide_submits_what_a_look_needs_and_goes_on_when_called_again(
    cluster: Cluster, tmp_path: Path, where: str
) -> None:
    """Pilots, then seeds, then a verdict: here that there is nothing to count."""
    grid = ["experiment=principle2_2_length", "scale=smoke", "seed=100", "+grid.smoke.seeds=3",
            "optimizer.lr=1e-3,5e-3", "action=decide", f"where={where}", "slurm.cpus=1",
            "slurm.mem=1G"]  # fmt: skip
    said = []
    for _ in range(3):
        done = cluster.sweep(*grid, cwd=tmp_path)
        said.append(done.stdout + done.stderr)
        cluster.wait()
    assert "8 runs are under way; the same command goes on" in said[0]
    assert "12 runs are under way" in said[1]
    assert done.returncode == 0, said
    assert "all claims are decided" in said[2]
    assert len(list((tmp_path / "results/runs").glob("*/record.json"))) == 20
