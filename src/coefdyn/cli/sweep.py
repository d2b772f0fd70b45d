"""`coefdyn sweep`: plan, run, submit and look after the runs of a grid."""

import json
import sys
from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from coefdyn.cli.keys import console, own_keys
from coefdyn.config.grid import PlannedRun, differences, plan
from coefdyn.config.schema import Sweep
from coefdyn.errors import ConfigError
from coefdyn.runs.lock import owner_of
from coefdyn.sweeps.pool import StoppedError, run_all
from coefdyn.sweeps.progress import Progress
from coefdyn.sweeps.slurm import submit
from coefdyn.sweeps.state import State, count, epochs, last_error, state, unfinished


def run(arguments: Sequence[str]) -> int:
    """Exit code: for run and status 1 unless everything is recorded; for plan and submit 0."""
    keys, rest = own_keys(Sweep, "sweep", arguments)
    runs = plan(rest)
    if any(run.values["force"] for run in runs):
        raise ConfigError(
            "force=true is for train: a sweep does what is missing; delete the folders of runs "
            "to do them again"
        )
    if not runs:
        raise ConfigError("the grid has no points; look at the ranges and lists given")
    return ACTIONS[keys.action](runs, keys)


def _plan(runs: Sequence[PlannedRun], keys: Sweep) -> int:
    _print(runs, keys.format, every=True)
    return 0


def _status(runs: Sequence[PlannedRun], keys: Sweep) -> int:
    counts = _print(runs, keys.format, every=False)
    return 1 if counts["failed"] + counts["missing"] else 0


def _run(runs: Sequence[PlannedRun], keys: Sweep) -> int:
    todo = unfinished(runs)
    try:
        if todo:
            with Progress(todo, keys.jobs) as progress:
                run_all(todo, keys.jobs, progress)
    except StoppedError as stopped:
        print(f"{stopped}: what was trained is saved; the same command goes on", file=sys.stderr)
        return stopped.exit_code
    return _status(runs, keys)


def _submit(runs: Sequence[PlannedRun], keys: Sweep) -> int:
    todo = unfinished(runs)
    name = runs[0].choices.get("experiment", "None")
    name = "sweep" if name == "None" else name
    message = "every run is recorded; nothing to submit"
    if todo:
        message = submit(todo, name, keys.slurm)
    print(json.dumps({"submitted": message}) if keys.format == "json" else message)
    return 0


ACTIONS: dict[str, Callable[[Sequence[PlannedRun], Sweep], int]] = {
    "plan": _plan,
    "run": _run,
    "status": _status,
    "submit": _submit,
}


def _print(runs: Sequence[PlannedRun], style: str, every: bool) -> dict[str, int]:
    states = {run.run_id: state(run.folder) for run in runs}
    counts = count(states.values())
    if style == "json":
        print(json.dumps(counts | {"runs": [_row(run, states[run.run_id]) for run in runs]}))
    else:
        _print_table(runs, states, every)
        print(", ".join(f"{number} {name}" for name, number in counts.items()))
    return counts


def _row(run: PlannedRun, at: State) -> dict[str, object]:
    row: dict[str, object] = {"run_id": run.run_id, "state": at, "point": list(run.point)}
    if at == "failed":
        row["error"] = last_error(run.folder)
    if at == "missing" and (work := _at_work(run)):
        row["running"] = work
    return row


def _at_work(run: PlannedRun) -> str:
    try:
        owner = owner_of(run.folder)
    except OSError:
        return "locked, but the lock cannot be read"
    done, last = epochs(run.folder), run.values["trainer"]["max_epochs"]
    return f"epoch {done}/{last}, {owner}" if owner else ""


def _print_table(runs: Sequence[PlannedRun], states: dict[str, State], every: bool) -> None:
    """Every run, or those that need attention and those at work."""
    table = Table("run", "state", "point", "what is known")
    points = differences(runs)
    for run in runs:
        at = states[run.run_id]
        why = last_error(run.folder) if at == "failed" else ""
        why = why or (_at_work(run) if at == "missing" else "")
        if every or at in ("failed", "diverged") or why:
            table.add_row(*map(Text, (run.run_id, at, points[run.run_id], why)))
    if table.row_count:
        console().print(table)
