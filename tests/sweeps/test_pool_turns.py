"""The pool's decisions, one at a time: its workers are made up, and die when told to."""

import io
import os
import shutil
import signal
from collections import deque
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from rich.console import Console

from coefdyn.config.grid import PlannedRun, plan
from coefdyn.errors import ConfigError
from coefdyn.runs.lock import locked
from coefdyn.sweeps import pool as pools
from coefdyn.sweeps.pool import LOOK, PATIENCE, TIRED, _environment, _Pool, _threads, _Worker, cores
from coefdyn.sweeps.progress import Progress
from coefdyn.sweeps.worker import Outcome


class Clock(NamedTuple):
    """The pool's alone: other modules wait by the real one."""

    monotonic: Callable[[], float]


class MadeUpProcess(BaseProcess):
    exitcode: int | None = None  # a property of real ones

    def __init__(self) -> None:
        self.asked: list[str] = []

    def join(self, timeout: float | None = None) -> None:
        self.asked.append("join")

    def kill(self) -> None:
        self.asked.append("kill")

    def terminate(self) -> None:
        self.asked.append("terminate")


class MadeUpPool(_Pool):
    """`ends`: the far end of the pipe to each worker, by its number."""

    def _new_worker(self, number: int) -> _Worker:
        ours, theirs = Pipe()
        ends: dict[int, Connection] = vars(self).setdefault("ends", {})
        ends[number] = theirs
        vars(self)["made"] = vars(self).get("made", 0) + 1
        return _Worker(number, MadeUpProcess(), ours, ready=True)

    def die(self, code: int = -signal.SIGKILL, number: int = 0) -> None:
        """The worker ends, and the pool takes its next turn."""
        self.workers[number].process.exitcode = code
        vars(self)["ends"][number].close()
        self.turn()

    def answer(self, outcomes: list[Outcome] | None, number: int = 0) -> None:
        vars(self)["ends"][number].send(outcomes)
        self.turn()


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> list[PlannedRun]:
    place = tmp_path_factory.mktemp("results")
    return plan(["scale=smoke", "seed=0,1,2", f"paths.results={place}"])


@pytest.fixture
def runs(planned: list[PlannedRun]) -> list[PlannedRun]:
    """Of which nothing is on disk."""
    for run in planned:
        shutil.rmtree(run.folder, ignore_errors=True)
    return planned


@pytest.fixture
def pool(runs: list[PlannedRun], monkeypatch: pytest.MonkeyPatch) -> MadeUpPool:
    monkeypatch.setattr(pools, "POLL", 0.01)
    progress = Progress(runs, jobs=1, console=Console(file=io.StringIO()))
    made = MadeUpPool(deque((run,) for run in runs), progress)
    made.start(1)
    made.turn()
    return made


def test_a_run_whose_worker_dies_is_the_next_one_and_queued_once(
    pool: MadeUpPool, runs: list[PlannedRun]
) -> None:
    first = pool.workers[0]
    assert first.share == (runs[0],)
    pool.die()
    assert list(pool.queue) == [(runs[0],), (runs[1],), (runs[2],)]
    assert vars(pool)["made"] == 2
    assert len(pool.workers) == 1
    assert pool.workers[0] is not first
    assert first.process.asked[-2:] == ["kill", "join"]
    pool.turn()
    assert pool.workers[0].share == (runs[0],)
    assert sum(pool.progress.counts.values()) == 0
    pool.answer([Outcome("done", "accuracy 0.5")])
    assert pool.progress.counts == {"done": 1, "diverged": 0, "failed": 0}
    assert [run for share in pool.queue for run in share] + list(pool.workers[0].share) == runs[1:]


def test_deaths_at_one_place_count_and_the_last_one_fails_the_run(
    pool: MadeUpPool, runs: list[PlannedRun]
) -> None:
    for _ in range(PATIENCE - 1):
        pool.die()
        pool.turn()
        assert pool.workers[0].share == (runs[0],)
    pool.die()
    assert pool.progress.counts["failed"] == 1
    assert list(pool.queue) == [(runs[1],), (runs[2],)]
    text = (runs[0].folder / "error.txt").read_text()
    assert "code -9 3 times in a row at the same place; -9 is most often a lack" in text


def test_deaths_at_other_places_do_not(pool: MadeUpPool, runs: list[PlannedRun]) -> None:
    """Each time the run had come further."""
    checkpoint = runs[0].folder / "last.ckpt"
    runs[0].folder.mkdir(parents=True)
    for seconds in range(1, 2 * PATIENCE):
        checkpoint.write_text("")
        os.utime(checkpoint, (seconds, seconds))
        pool.die()
        pool.turn()
        assert pool.workers[0].share == (runs[0],)
    assert pool.progress.counts["failed"] == 0


def test_a_worker_that_asks_to_be_replaced_is_no_death(pool: MadeUpPool) -> None:
    for _ in range(2 * PATIENCE):
        pool.die(TIRED)
        pool.turn()
    assert pool.progress.counts["failed"] == 0


def test_what_a_dead_worker_had_finished_is_not_failed(
    pool: MadeUpPool, runs: list[PlannedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a population one member may have its record already."""
    monkeypatch.setattr(pools, "unfinished", lambda share: [run for run in share if run != runs[1]])
    pool.queue.clear()
    pool.workers[0].share = (runs[0], runs[1])
    for _ in range(PATIENCE):
        pool.die(1)
        pool.turn()
    assert pool.progress.counts["failed"] == 1
    assert pool.workers[0].share == (runs[1],)
    assert "lack of memory" not in (runs[0].folder / "error.txt").read_text()


def test_workers_that_never_begin_end_the_sweep(pool: MadeUpPool) -> None:
    pool.queue.clear()
    pool.workers[0].share = ()
    pool.die(1)
    pool.answer(None)  # imports are done: what came before is forgotten
    for _ in range(PATIENCE - 1):
        pool.die(1)
    with pytest.raises(ConfigError, match=f"code 1 {PATIENCE} times in a row .* before its first"):
        pool.die(1)


def test_a_run_that_another_has_is_waited_for(
    pool: MadeUpPool, runs: list[PlannedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(pools, "time", Clock(lambda: now[0]))
    with locked(runs[0].folder):
        pool.answer([Outcome("elsewhere", "process 7 has it")])
        assert pool.waiting == [runs[0]]
        assert sum(pool.progress.counts.values()) == 0
        pool.looked = now[0]
        now[0] += LOOK
        pool.turn()
        assert pool.waiting == [runs[0]]
    now[0] += LOOK - 0.1  # not yet time to look again
    pool.turn()
    assert pool.waiting == [runs[0]]
    now[0] += 0.1
    pool.turn()
    assert pool.waiting == []
    assert list(pool.queue)[-1] == (runs[0],)


def test_seconds_of_a_share_are_those_of_its_runs_together(
    pool: MadeUpPool, runs: list[PlannedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.workers[0].share = tuple(runs[:2])
    monkeypatch.setattr(pools, "time", Clock(lambda: pool.workers[0].since + 10.0))
    pool.queue.clear()
    pool.answer([Outcome("done", ""), Outcome("diverged", "")])
    assert pool.progress.seconds == {"noisy_recall": [5.0, 5.0]}
    assert pool.progress.counts == {"done": 1, "diverged": 1, "failed": 0}


def test_asked_to_end_only_workers_at_work_are_told(pool: MadeUpPool) -> None:
    idle = pool._new_worker(1)
    pool.workers.append(idle)
    handlers = {number: signal.getsignal(number) for number in pools.SIGNALS}
    try:
        pool.end()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    busy = pool.workers[0].process
    assert busy.asked == ["terminate", "join", "kill"]
    assert idle.process.asked == ["join", "kill"]


def test_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "7")
    assert cores() == 7
    assert [_threads(jobs) for jobs in (1, 2, 3, 7, 20)] == [7, 3, 2, 1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert _threads(7) == 4
    monkeypatch.delenv("SLURM_CPUS_PER_TASK")
    assert cores() == len(os.sched_getaffinity(0))


def test_each_worker_sees_one_gpu_and_its_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    for number, gpu in ((0, "4"), (1, "6"), (2, "4")):
        with _environment(number, jobs=4):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == gpu
            assert os.environ["OMP_NUM_THREADS"] == "2"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,6"
    assert "OMP_NUM_THREADS" not in os.environ


class NotStarted(MadeUpProcess):
    """Notes which GPU it would see."""

    def __init__(self, gpus: list[str | None]) -> None:
        super().__init__()
        self.gpus = gpus

    def start(self) -> None:
        self.gpus.append(os.environ.get("CUDA_VISIBLE_DEVICES"))


@pytest.mark.parametrize(
    ("devices", "named", "jobs", "seen"),
    [
        (8, None, 16, 2 * [str(gpu) for gpu in range(8)]),  # two workers on each
        (8, None, 3, ["0", "1", "2"]),
        (2, None, 5, ["0", "1", "0", "1", "0"]),
        (8, "3, 5", 4, ["3", "5", "3", "5"]),  # only those that the user allows
        (8, "MIG-1,MIG-2", 2, ["MIG-1", "MIG-2"]),
        (8, "6", 2, ["6", "6"]),
        (8, "", 2, ["", ""]),  # the user allows none
        (1, None, 2, [None, None]),
        (0, None, 2, [None, None]),
    ],
)
def test_workers_are_spread_over_the_gpus(
    devices: int,
    named: str | None,
    jobs: int,
    seen: list[str | None],
    pool: MadeUpPool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pools.torch.cuda, "device_count", lambda: devices)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    gpus: list[str | None] = []
    spawn = SimpleNamespace(Pipe=Pipe, Process=lambda **_: NotStarted(gpus))
    monkeypatch.setattr(pools, "mp", SimpleNamespace(get_context=lambda _: spawn))
    real = _Pool(deque(), pool.progress)
    real.start(jobs)
    assert gpus == seen
    real._new_worker(1)  # in place of one that died
    assert gpus[-1] == seen[1]
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == named
