"""Locks, so that no two processes train the same run, on one machine or on many.

A lock is a file lock.<n> in the run's folder that names its owner. It is created by link(2), so it
is never incomplete, and only one process can create it, on a shared filesystem too. The owner
touches the file while it is alive. A process that finds the newest lock's owner dead creates
lock.<n+1>. An owner that was only asleep then finds that file and stops: it looks before each
checkpoint and before the record. Only the newest owner ever deletes a lock.
"""

import contextlib
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

HEARTBEAT = 20.0  # seconds between two touches of the file
SILENCE = 180.0  # seconds without a touch after which an owner counts as dead; NFS caches up to 60


class LockedError(Exception):
    """Another process is training this run."""


class LostLockError(Exception):
    """Another process has taken this run over, because this one did not touch its lock."""


@dataclass(frozen=True)
class Owner:
    """A process. Its pid is valid only on the same machine, boot and PID namespace."""

    host: str
    machine: str
    pid: int
    started: str
    job: str | None
    restarts: int  # of the job
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" + (f", SLURM job {self.job}" * bool(self.job))


def this_process() -> Owner:
    return Owner(
        host=platform.node(),
        machine=_machine(),
        pid=os.getpid(),
        started=_start_of(os.getpid()) or "",
        job=_slurm_job(),
        restarts=_restarts(),
        token=uuid.uuid4().hex,
    )


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux: only touches tell whether an owner is alive
        return uuid.uuid4().hex


def _start_of(pid: int) -> str | None:
    """When a process of this machine started, in clock ticks; None if it is gone or a zombie."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else rest[18]


def _slurm_job() -> str | None:
    """The SLURM job of this process, with its cluster: several clusters may share the files."""
    array, task = (os.environ.get(f"SLURM_ARRAY_{name}_ID") for name in ("JOB", "TASK"))
    job = f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")
    return f"{job} of {os.environ.get('SLURM_CLUSTER_NAME', 'a cluster')}" if job else None


def _restarts() -> int:
    return int(os.environ.get("SLURM_RESTART_COUNT", 0))


class Lock:
    """The lock of a run that this process owns. A thread touches its file until `release`."""

    def __init__(self, path: Path, owner: Owner) -> None:
        self.path, self.owner = path, owner
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise LostLockError if another process has taken over."""
        newest = _newest(self.path.parent)
        with contextlib.suppress(FileNotFoundError):
            if newest is not None and _read(newest) == self.owner:
                return
        raise LostLockError(f"run {self.path.parent.name} was taken over by another process")

    def _beat(self) -> None:
        while not self._end.wait(HEARTBEAT):
            with contextlib.suppress(LostLockError, OSError):
                self.check()
                os.utime(self.path)

    def release(self) -> None:
        """Delete the locks of this run, oldest first: the newest one left is then always ours."""
        self._end.set()
        self._thread.join()
        with contextlib.suppress(LostLockError, OSError):
            self.check()
            for path in _locks(self.path.parent):
                if _number(path) <= _number(self.path):
                    path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[Lock]:
    """Lock the run in `directory` for this process; LockedError if another one has it."""
    lock = _take(directory)
    try:
        yield lock
    finally:
        lock.release()


def owner_of(directory: Path) -> Owner | None:
    """The living owner of the run in `directory`, or None."""
    newest = _newest(directory)
    if newest is None:
        return None
    try:
        return _living_owner(newest)
    except FileNotFoundError:  # released just now
        return None


def _living_owner(lock: Path) -> Owner | None:
    owner = _read(lock)
    if not _alive(owner, lock):
        return None
    return owner or Owner("?", "?", 0, "?", None, 0, "?")


def _take(directory: Path) -> Lock:
    directory.mkdir(parents=True, exist_ok=True)
    newest = _newest(directory)
    try:
        owner = None if newest is None else _living_owner(newest)
    except FileNotFoundError:  # released while we read it: another process may lock it first
        raise LockedError(f"run {directory.name} has changed hands just now") from None
    if owner is not None:
        raise LockedError(f"run {directory.name} is in the hands of {owner}")
    mine = this_process()
    path = directory / f"lock.{0 if newest is None else _number(newest) + 1}"
    with contextlib.suppress(FileExistsError):
        _appear(path, json.dumps(asdict(mine)))
    # An NFS server may answer twice and report our own lock as existing, so ask who owns it.
    lock = Lock(path, mine)
    try:
        lock.check()
    except (LostLockError, OSError) as error:
        lock.release()
        if isinstance(error, OSError):
            raise
        raise LockedError(f"run {directory.name} was locked by another process just now") from None
    return lock


def _appear(path: Path, text: str) -> None:
    """Create a complete file in one step; FileExistsError if there is one."""
    draft = path.with_name(f"lock.{uuid.uuid4().hex}.partial")
    try:
        draft.write_text(text)
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # no links here, or a full disk, which then fails again below
        with path.open("x") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                path.unlink()
                raise
    finally:
        draft.unlink(missing_ok=True)


def _locks(directory: Path) -> list[Path]:
    locks = (path for path in directory.glob("lock.*") if path.suffix[1:].isdigit())
    return sorted(locks, key=_number)


def _number(path: Path) -> int:
    return int(path.suffix[1:])


def _newest(directory: Path) -> Path | None:
    locks = _locks(directory)
    return locks[-1] if locks else None


def _read(path: Path) -> Owner | None:
    """The owner that a lock names; None if it cannot be parsed, such as when half written."""
    try:
        return Owner(**json.loads(path.read_text()))
    except (ValueError, TypeError):
        return None


def _alive(owner: Owner | None, lock: Path) -> bool:
    if owner is not None and owner.machine == _machine():
        return _start_of(owner.pid) == owner.started
    if owner is not None and owner.job == _slurm_job() and owner.restarts < _restarts():
        return False  # this same job, before SLURM restarted it
    return _filesystem_time(lock.parent) - lock.stat().st_mtime < SILENCE


def _filesystem_time(directory: Path) -> float:
    """The present time of the file server's clock, which may differ from this machine's."""
    probe = directory / f"probe.{uuid.uuid4().hex}.partial"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:  # a read-only folder
        return time.time()
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
