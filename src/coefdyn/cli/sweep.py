"""The command line of scripts/sweep.py."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coefdyn.config.compose import compose, settings
from coefdyn.config.grid import PlannedRun, differences, plan
from coefdyn.errors import ConfigError
from coefdyn.runs.lock import owner_of
from coefdyn.sweeps.pool import StoppedError, run_all
from coefdyn.sweeps.progress import Progress
from coefdyn.sweeps.slurm import Options, submit
from coefdyn.sweeps.state import State, count, epochs, folder, last_error, state, unfinished

FORMATS = ("table", "json")
OWN_KEYS = ("action", "format", "jobs", "slurm")


@dataclass(frozen=True)
class Keys:
    """conf/sweep.yaml, which says what each is."""

    action: str
    format: str
    jobs: int
    slurm: Options

    def __post_init__(self) -> None:
        for name, choices in (("action", tuple(ACTIONS)), ("format", FORMATS)):
            if getattr(self, name) not in choices:
                known = ", ".join(choices)
                raise ConfigError(f"{name}={getattr(self, name)} is not known; choose from {known}")
        if type(self.jobs) is not int or self.jobs < 1:
            raise ConfigError(f"jobs={self.jobs} must be a whole number of at least 1")


def main(arguments: Sequence[str]) -> int:
    """Exit code: for run and status 1 unless everything is recorded; for plan and submit 0."""
    own = [a for a in arguments if a.partition("=")[0].partition(".")[0] in OWN_KEYS]
    given = settings(compose(own, "sweep"))
    if not isinstance(given["slurm"], dict):
        raise ConfigError(
            f"slurm={given['slurm']} must be a section; set slurm.partition and so on"
        )
    keys = Keys(**given | {"slurm": Options(**given["slurm"])})
    runs = plan([a for a in arguments if a not in own])
    if any(run.settings["force"] for run in runs):
        raise ConfigError(
            "force=true is for train.py: a sweep does what is missing; delete the folders of runs "
            "to do them again"
        )
    if not runs:
        raise ConfigError("the grid has no points; look at the ranges and lists given")
    return ACTIONS[keys.action](runs, keys)


def _plan(runs: Sequence[PlannedRun], keys: Keys) -> int:
    _print(runs, keys.format, every=True)
    return 0


def _status(runs: Sequence[PlannedRun], keys: Keys) -> int:
    counts = _print(runs, keys.format, every=False)
    return 1 if counts["failed"] + counts["missing"] else 0


def _run(runs: Sequence[PlannedRun], keys: Keys) -> int:
    todo = unfinished(runs)
    try:
        if todo:
            with Progress(todo, keys.jobs) as progress:
                run_all(todo, keys.jobs, progress)
    except StoppedError as stopped:
        print(f"{stopped}: what was trained is saved; the same command goes on", file=sys.stderr)
        return stopped.exit_code
    return _status(runs, keys)


def _submit(runs: Sequence[PlannedRun], keys: Keys) -> int:
    todo = unfinished(runs)
    name = runs[0].choices.get("experiment", "None")
    name = "sweep" if name == "None" else name
    said = submit(todo, name, keys.slurm) if todo else "every run is recorded; nothing to submit"
    print(json.dumps({"submitted": said}) if keys.format == "json" else said)
    return 0


ACTIONS: dict[str, Callable[[Sequence[PlannedRun], Keys], int]] = {
    "plan": _plan,
    "run": _run,
    "status": _status,
    "submit": _submit,
}


def _print(runs: Sequence[PlannedRun], style: str, every: bool) -> dict[str, int]:
    found = {run.run_id: state(run.results, run.run_id) for run in runs}
    counts = count(found.values())
    if style == "json":
        print(json.dumps(counts | {"runs": [_row(run, found[run.run_id]) for run in runs]}))
    else:
        _print_table(runs, found, every)
        print(", ".join(f"{number} {name}" for name, number in counts.items()))
    return counts


def _row(run: PlannedRun, at: State) -> dict[str, object]:
    row: dict[str, object] = {"run_id": run.run_id, "state": at, "point": list(run.point)}
    if at == "failed":
        row["error"] = last_error(run.results, run.run_id)
    if at == "missing" and (work := _at_work(run)):
        row["running"] = work
    return row


def _at_work(run: PlannedRun) -> str:
    try:
        owner = owner_of(folder(run.results, run.run_id))
    except OSError:
        return "locked, but the lock cannot be read"
    done = epochs(run.results, run.run_id)
    return f"epoch {done}/{run.settings['trainer']['max_epochs']}, {owner}" if owner else ""


def _print_table(runs: Sequence[PlannedRun], found: dict[str, State], every: bool) -> None:
    """Every run, or those that need attention and those at work."""
    table = Table("run", "state", "point", "what is known")
    points = differences(runs)
    for run in runs:
        at = found[run.run_id]
        why = last_error(run.results, run.run_id) if at == "failed" else ""
        why = why or (_at_work(run) if at == "missing" else "")
        if every or at in ("failed", "diverged") or why:
            table.add_row(*map(Text, (run.run_id, at, points[run.run_id], why)))
    if table.row_count:
        Console(width=None if sys.stdout.isatty() else 160).print(table)
