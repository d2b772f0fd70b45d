"""Small decisions of sweeps: what is done together, how far a run is, whose it is, what it cost."""

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from coefdyn.config.grid import PlannedRun, plan
from coefdyn.runs import run as runs_module
from coefdyn.runs.lock import LockedError, LostLockError
from coefdyn.sweeps import pool as pools
from coefdyn.sweeps import progress, slurm
from coefdyn.sweeps.progress import Progress
from coefdyn.sweeps.slurm import DEFAULT_MAX_ARRAY
from coefdyn.sweeps.state import epochs
from coefdyn.sweeps.worker import End, Outcome, attempt, shares


@pytest.fixture
def runs(tmp_path: Path) -> list[PlannedRun]:
    return plan(["scale=smoke", "seed=0,1", f"paths.results={tmp_path}"])


def test_runs_are_done_one_by_one_unless_a_population_is_asked_for(
    runs: list[PlannedRun], tmp_path: Path
) -> None:
    assert shares(runs) == [(runs[0],), (runs[1],)]
    asked = ["scale=smoke", "seed=0,1", f"paths.results={tmp_path}", "population.mode=fused"]
    assert [len(share) for share in shares(plan(asked))] == [2]


def test_epochs_are_the_rows_below_the_heading(tmp_path: Path) -> None:
    assert epochs(tmp_path) == 0
    (tmp_path / "metrics.csv").write_text("epoch,loss\n")
    assert epochs(tmp_path) == 0
    (tmp_path / "metrics.csv").write_text("epoch,loss\n1,2.0\n2,1.0\n")
    assert epochs(tmp_path) == 2


@pytest.mark.parametrize("error", [LockedError, LostLockError])
def test_a_run_that_somebody_else_has_is_no_failure(
    runs: list[PlannedRun], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(_: object) -> None:
        raise error("process 7 has it")

    monkeypatch.setattr(runs_module, "run_one", taken)
    assert attempt(runs[:1]) == [Outcome("elsewhere", "process 7 has it")]
    assert not (runs[0].folder / "error.txt").exists()


@pytest.mark.parametrize(
    ("line", "limit"),
    [
        ("MaxArraySize            = 2", 2),
        ("MaxArraySize            = 1001", 1001),
        ("MaxArraySize            = 1", DEFAULT_MAX_ARRAY),
        ("MaxArraySize            = many", DEFAULT_MAX_ARRAY),
        ("MaxJobCount             = 7", DEFAULT_MAX_ARRAY),
    ],
)
def test_the_size_of_an_array_is_the_clusters(
    line: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = SimpleNamespace(stdout=f"Configuration data\n{line}\n")
    monkeypatch.setattr(slurm.subprocess, "run", lambda *_, **__: said)
    assert slurm._max_array() == limit


@pytest.mark.parametrize(
    ("end", "on_gpu", "tired"),
    [("failed", True, True), ("failed", False, False), ("done", True, False)],
)
def test_a_worker_goes_after_a_failure_on_a_gpu_and_else_goes_on(
    end: End, on_gpu: bool, tired: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_end_with_the_pool", lambda: None)
    monkeypatch.setattr(pools, "prepare_process", lambda: None)
    monkeypatch.setattr(pools, "attempt", attempts(end))
    monkeypatch.setattr(pools.torch.cuda, "is_initialized", lambda: on_gpu)
    ours, theirs = pools.mp.get_context("spawn").Pipe()
    for share in range(3):
        ours.send(share)
    if tired:
        with pytest.raises(SystemExit) as ended:
            pools._work(theirs)
        assert ended.value.code == pools.TIRED
    else:
        pools._work(theirs)
    assert ours.recv() is None  # ready
    answers = 1 if tired else 2
    assert [len(ours.recv()) for _ in range(answers)] == [2] * answers


def attempts(end: End) -> Callable[[int], list[Outcome]]:
    """As `attempt`, until at the third share the pool is gone."""

    def made(share: int) -> list[Outcome]:
        if share == 2:
            raise EOFError
        return [Outcome("done", ""), Outcome(end, "")]

    return made


def test_times_are_how_long_ago(runs: list[PlannedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120, height=40)
    with Progress(runs, jobs=1, console=console) as shown:
        now[0] += 90.0
        shown.show({0: (runs[:1], 1060.0)})
        seen = text.getvalue()
    assert "0:00:30" in seen  # of the run
    assert "0:01:30 gone" in seen
