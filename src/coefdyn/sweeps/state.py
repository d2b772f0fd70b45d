"""The state of runs, read from the files in their folders."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from coefdyn.config.grid import PlannedRun
from coefdyn.errors import ConfigError
from coefdyn.runs.archive import record_of
from coefdyn.runs.record import write_atomically

State = Literal["done", "diverged", "failed", "missing"]
STATES: tuple[State, ...] = ("done", "diverged", "failed", "missing")


def state(folder: Path) -> State:
    """A run with a record is done or diverged; one with an error failed; any other is missing."""
    try:
        record = record_of(folder)
    except ConfigError:  # an unreadable record; training the run reports why
        return "failed"
    if record is not None:
        return "diverged" if record.status == "diverged" else "done"
    return "failed" if (folder / "error.txt").exists() else "missing"


def unfinished(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """The runs that are missing or failed. A failed run is tried again."""
    return [run for run in runs if state(run.folder) in ("missing", "failed")]


def epochs(folder: Path) -> int:
    """The number of epochs that a run has done."""
    try:
        return max(0, (folder / "metrics.csv").read_bytes().count(b"\n") - 1)
    except OSError:
        return 0


def write_error(folder: Path, text: str) -> None:
    """Mark a run as failed."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "error.txt", text)


def last_error(folder: Path) -> str:
    """The last line of a failed run's traceback, or what is wrong with its record."""
    try:
        record_of(folder)
        lines = (folder / "error.txt").read_text().strip().splitlines()
    except ConfigError as error:
        return str(error)
    except OSError:  # another process has just restarted the run
        return ""
    return lines[-1] if lines else ""


def count(states: Iterable[State]) -> dict[str, int]:
    """How many runs are in each state; they add up to `total`."""
    all_states = list(states)
    return {**{name: all_states.count(name) for name in STATES}, "total": len(all_states)}
