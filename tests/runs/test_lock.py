"""Locks: one process at a time works on a run, and a dead one is not waited for."""

import contextlib
import json
import multiprocessing as mp
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coefdyn.cli import main
from coefdyn.runs import lock as locks
from coefdyn.runs.lock import LockedError, LostLockError, locked, owner_of
from tests.runs.runs import folder, run_smoke

HOLD = """
import sys
from pathlib import Path
from coefdyn.runs.lock import locked
with locked(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def held(directory: Path) -> "Iterator[subprocess.Popen[str]]":
    """Another process that has locked the run, until its stdin is closed or it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        yield process


def abroad(path: Path) -> None:
    """Make a lock that of a process on another machine."""
    owner = json.loads(path.read_text())
    path.write_text(json.dumps(owner | {"machine": "another", "host": "node7", "pid": 1}))


def test_a_claim_is_released_and_leaves_nothing(tmp_path: Path) -> None:
    with locked(tmp_path):
        owner = owner_of(tmp_path)
        assert owner is not None
        assert owner.pid == os.getpid()
        assert f"process {os.getpid()}" in str(owner)
    assert owner_of(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_the_living_are_respected_and_the_dead_replaced(tmp_path: Path) -> None:
    with held(tmp_path) as other:
        words = f"in the hands of process {other.pid}"
        with pytest.raises(LockedError, match=words), locked(tmp_path):
            pass
        other.kill()
    with locked(tmp_path) as mine:
        assert mine.path.name == "lock.1"
        mine.check()
    assert list(tmp_path.iterdir()) == []


def test_another_machine_is_judged_by_its_heartbeat(tmp_path: Path) -> None:
    with locked(tmp_path) as mine:
        abroad(mine.path)
        with pytest.raises(LockedError, match="on node7"), locked(tmp_path):
            pass
        old = time.time() - locks.SILENCE - 1
        os.utime(mine.path, (old, old))
        with locked(tmp_path) as taken:
            assert taken.path.name == "lock.1"
            with pytest.raises(LostLockError):
                mine.check()
        assert list(tmp_path.iterdir()) == []
        with locked(tmp_path), pytest.raises(LostLockError):
            mine.check()  # lock.0 again, and not ours


def test_a_job_that_slurm_restarted_replaces_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "12")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    with locked(tmp_path) as mine:
        abroad(mine.path)
        with pytest.raises(LockedError, match="SLURM job 12_3"), locked(tmp_path):
            pass
        monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
        with locked(tmp_path):
            pass


def test_the_heartbeat_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "HEARTBEAT", 0.01)
    with locked(tmp_path) as mine:
        os.utime(mine.path, (0, 0))
        deadline = time.monotonic() + 10
        while mine.path.stat().st_mtime < 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert mine.path.stat().st_mtime > 1


def test_a_filesystem_without_links_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refused)
    with locked(tmp_path), pytest.raises(LockedError), locked(tmp_path):
        pass
    (tmp_path / "lock.0").write_text("")  # its owner is just about to write into it
    with pytest.raises(LockedError), locked(tmp_path):
        pass


def _race(directory: str, barrier: Any, winners: Any) -> None:
    barrier.wait()
    try:
        with locked(Path(directory)):
            winners.put(os.getpid())
            time.sleep(1)
    except LockedError:
        pass


@pytest.mark.parametrize("dead_owner", [False, True])
def test_of_many_at_once_one_wins(tmp_path: Path, dead_owner: bool) -> None:
    if dead_owner:
        with held(tmp_path) as other:
            other.kill()
    context = mp.get_context("fork")
    barrier, winners = context.Barrier(8), context.Queue()
    racers = [
        context.Process(target=_race, args=(str(tmp_path), barrier, winners)) for _ in range(8)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert winners.get(timeout=5)
    assert winners.empty()


def test_train_refuses_a_run_that_somebody_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = run_smoke(tmp_path)
    directory = folder(tmp_path, record)
    (directory / "record.json").unlink()
    with held(directory) as other:
        assert main(["train", "scale=smoke", f"paths.results={tmp_path}"]) == 1
    assert f"in the hands of process {other.pid}" in capsys.readouterr().err
    assert not (directory / "error.txt").exists()
    assert main(["train", "scale=smoke", f"paths.results={tmp_path}"]) == 0


def test_a_run_that_was_taken_over_writes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: Any) -> None:
        raise LostLockError("taken over")

    monkeypatch.setattr(locks.Lock, "check", lost)
    monkeypatch.setattr(locks, "_take", lambda directory: _unchecked(directory))
    with pytest.raises(LostLockError):
        run_smoke(tmp_path)
    (directory,) = (tmp_path / "runs").iterdir()
    assert {path.name for path in directory.iterdir()} == {"config.yaml", "lock.7"}


def _unchecked(directory: Path) -> locks.Lock:
    directory.mkdir(parents=True)
    (directory / "lock.7").write_text("{}")
    return locks.Lock(directory / "lock.7", locks.this_process())
