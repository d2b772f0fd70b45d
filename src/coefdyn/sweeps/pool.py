"""The local pool: worker processes on this machine train the runs of a sweep.

A worker that dies, even by kill -9, is replaced, and its run resumes from its checkpoint. The pool
waits for runs that another pool or job has locked, so two machines can work on one sweep.
"""

import contextlib
import multiprocessing as mp
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from coefdyn.config.grid import PlannedRun
from coefdyn.errors import ConfigError
from coefdyn.runs.lock import owner_of
from coefdyn.runs.record import CHECKPOINT
from coefdyn.sweeps.progress import Progress
from coefdyn.sweeps.state import unfinished, write_error
from coefdyn.sweeps.worker import Outcome, attempt, shares

PATIENCE = 3  # deaths of workers at the same checkpoint of a run, or before their first run
POLL = 1.0  # seconds to wait for messages of workers
LOOK = 5.0  # seconds between two checks of runs that others have locked
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
NO_RUN = ("", 0)
TIRED = 75  # exit code of a worker that asks to be replaced
SECONDS_TO_SAVE = 60.0  # for workers that are asked to end


class StoppedError(Exception):
    """A signal of the user or the system asked to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def run_all(
    runs: Sequence[PlannedRun],
    jobs: int,
    progress: Progress,
    seconds_to_save: float = SECONDS_TO_SAVE,
) -> None:
    """Train every run. Each leaves a record or an error in its folder.

    When asked to end, workers get `seconds_to_save` for their checkpoints.
    """
    queue = deque(shares(runs))
    pool = _Pool(queue, progress, seconds_to_save=seconds_to_save)
    with _stopped_by_signals():
        try:
            pool.start(min(jobs, len(queue)))
            while pool.queue or pool.waiting or any(w.share for w in pool.workers):
                pool.turn()
        finally:
            pool.end()


@dataclass
class _Worker:
    number: int
    process: mp.process.BaseProcess
    connection: Connection
    ready: bool = False
    share: tuple[PlannedRun, ...] = ()  # the runs that it is training
    since: float = 0.0


@dataclass
class _Pool:
    queue: deque[tuple[PlannedRun, ...]]
    progress: Progress
    waiting: list[PlannedRun] = field(default_factory=list)  # locked by other processes
    workers: list[_Worker] = field(default_factory=list)
    deaths: Counter[tuple[str, int]] = field(default_factory=Counter)
    jobs: int = 0
    looked: float = 0.0
    seconds_to_save: float = SECONDS_TO_SAVE

    def start(self, jobs: int) -> None:
        self.jobs = jobs
        self.workers = [self._new_worker(number) for number in range(jobs)]

    def _new_worker(self, number: int) -> _Worker:
        ours, theirs = mp.get_context("spawn").Pipe()
        process = mp.get_context("spawn").Process(target=_work, args=(theirs,), daemon=True)
        with _environment(number, self.jobs), _deaf_to_interrupts():
            process.start()
        theirs.close()
        return _Worker(number, process, ours)

    def turn(self) -> None:
        """Give work to idle workers, and take the outcomes of the others."""
        for worker in self.workers:
            if worker.ready and not worker.share and self.queue:
                worker.share, worker.since = self.queue.popleft(), time.monotonic()
                with contextlib.suppress(OSError):  # it is dead, which recv below notices
                    worker.connection.send(worker.share)
        self.progress.show({w.number: (w.share, w.since) for w in self.workers if w.share})
        for connection in wait([w.connection for w in self.workers], timeout=POLL):
            worker = next(w for w in self.workers if w.connection is connection)
            try:
                outcomes = worker.connection.recv()
            except (EOFError, OSError):
                self._bury(worker)
            else:
                self._hear(worker, outcomes)
        if self.waiting and time.monotonic() - self.looked >= LOOK:
            self.looked = time.monotonic()
            free = [run for run in self.waiting if not _is_locked(run)]
            self.queue.extend(shares(free))  # those that others finished are only read
            self.waiting = [run for run in self.waiting if run not in free]

    def _hear(self, worker: _Worker, outcomes: list[Outcome] | None) -> None:
        """Take a worker's message: None after its imports, then the outcomes of its runs."""
        if outcomes is None:
            worker.ready = True
            self.deaths.pop(NO_RUN, None)
            return
        share, worker.share = worker.share, ()
        seconds = (time.monotonic() - worker.since) / len(share)
        for run, outcome in zip(share, outcomes, strict=True):
            if outcome.end == "elsewhere":
                self.waiting.append(run)
            else:
                self.progress.finished(run, outcome, seconds)

    def _bury(self, worker: _Worker) -> None:
        """Replace a dead worker. Its runs go back to the queue, or fail if that happens often."""
        worker.process.join(SECONDS_TO_SAVE)
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        share, code = worker.share, worker.process.exitcode
        place = (share[0].run_id, max(map(_saved_at, share))) if share else NO_RUN
        self.deaths[place] += code != TIRED
        if self.deaths[place] >= PATIENCE:
            how = f"the worker ended with code {code} {PATIENCE} times in a row at the same place"
            if not share:
                raise ConfigError(f"{how}, before its first run; its messages are above")
            hint = "; -9 is most often a lack of memory" if code == -signal.SIGKILL else ""
            lost = unfinished(share)
            for run in lost:
                with contextlib.suppress(OSError):
                    write_error(run.folder, how + hint)
                self.progress.finished(run, Outcome("failed", how + hint), 0.0)
            if len(lost) < len(share):  # the next worker reads their records
                self.queue.appendleft(tuple(run for run in share if run not in lost))
        elif share:
            self.queue.appendleft(share)
        self.workers[self.workers.index(worker)] = self._new_worker(worker.number)

    def end(self) -> None:
        """End all workers; those that are training save first."""
        for number in SIGNALS:  # a second signal must not interrupt this
            signal.signal(number, signal.SIG_IGN)
        for worker in self.workers:
            if worker.share:
                worker.process.terminate()
            worker.connection.close()
        deadline = time.monotonic() + self.seconds_to_save
        for worker in self.workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()


def _is_locked(run: PlannedRun) -> bool:
    try:
        return owner_of(run.folder) is not None
    except OSError:
        return True


def _saved_at(run: PlannedRun) -> int:
    try:
        return (run.folder / CHECKPOINT).stat().st_mtime_ns
    except OSError:
        return 0


def cores() -> int:
    """The number of cores to use. SLURM may have given fewer than the machine shows."""
    if os.environ.get("SLURM_CPUS_PER_TASK", "").isdigit():
        return int(os.environ["SLURM_CPUS_PER_TASK"])
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads(jobs: int) -> int:
    """The threads of a worker: OMP_NUM_THREADS, or its share of the cores."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdigit() else max(1, cores() // jobs)


def _gpus() -> list[str]:
    """The GPUs to use, as CUDA_VISIBLE_DEVICES names them: its own, or all of the machine."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [str(index) for index in range(torch.cuda.device_count())]
    return [name.strip() for name in named.split(",") if name.strip()]


@contextlib.contextmanager
def _environment(number: int, jobs: int) -> Iterator[None]:
    """Set the environment for a new worker: its share of the cores, and one of several GPUs."""
    before = dict(os.environ)
    os.environ.setdefault("OMP_NUM_THREADS", str(_threads(jobs)))
    gpus = _gpus()
    if len(gpus) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let a process that starts here ignore Ctrl-C from its first moment.

    The pool gets the Ctrl-C and ends its workers by SIGTERM.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Turn signals into StoppedError."""

    def stop(number: int, _: Any) -> None:
        raise StoppedError(number)

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _work(connection: Connection) -> None:
    """The main function of a worker: receive runs and send outcomes until the pipe is closed."""
    threading.Thread(target=_end_with_the_pool, daemon=True).start()
    prepare_process()
    with contextlib.suppress(EOFError, OSError):
        connection.send(None)
        while True:
            outcomes = attempt(connection.recv())
            connection.send(outcomes)
            if any(outcome.end == "failed" for outcome in outcomes) and torch.cuda.is_initialized():
                sys.exit(TIRED)  # after an error on a GPU this process may not be able to use it


def _end_with_the_pool() -> None:
    parent = mp.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def prepare_process() -> None:
    """Prepare a process for training: import everything, and silence messages."""
    import logging
    import warnings

    import coefdyn.runs.population.training  # noqa: F401  takes seconds
    from coefdyn.allocator import keep_freed_memory

    warnings.filterwarnings("ignore", module=r"lightning\.")
    logging.getLogger("coefdyn").addHandler(logging.NullHandler())
    keep_freed_memory()
