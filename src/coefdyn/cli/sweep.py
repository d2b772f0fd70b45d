"""`coefdyn sweep`: plans, trains, submits and manages the runs of a grid."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean

from rich.table import Table
from rich.text import Text

from coefdyn.cli.keys import console, own_keys
from coefdyn.config.grid import PlannedRun, Planner, differences
from coefdyn.config.machine import sweep_keys
from coefdyn.config.schema import Sweep
from coefdyn.errors import ConfigError
from coefdyn.results.rounds import Known, known_runs, recorded_too
from coefdyn.runs.archive import Archive, record_of
from coefdyn.runs.lock import owner_of
from coefdyn.runs.record import CHECKPOINT, Record
from coefdyn.sweeps.pool import StoppedError, run_all
from coefdyn.sweeps.progress import Progress
from coefdyn.sweeps.slurm import submit
from coefdyn.sweeps.state import State, count, epochs, last_error, state, unfinished


def run(arguments: Sequence[str]) -> int:
    """Exit code: 0 for plan and submit; for run and status 1 unless every run is recorded."""
    keys, rest = own_keys(Sweep, "sweep", arguments, sweep_keys(arguments))
    planner = Planner(rest)
    known = known_runs(planner)
    runs = known.runs
    if any(run.values["force"] for run in runs):
        raise ConfigError(
            "force=true is for train: a sweep does what is missing; delete the folders of runs "
            "to do them again"
        )
    if not runs:
        raise ConfigError("the grid has no points; a range or list on the command line is empty")
    if keys.action == "run":
        return _run(planner, keys)
    if keys.action == "decide":
        return _decide(rest, runs[0], keys)
    if keys.action in ("archive", "clean", "status"):
        known = recorded_too(planner)
    return ACTIONS[keys.action](known, keys)


def _plan(known: Known, keys: Sweep) -> int:
    _print(known, keys.format, every=True)
    return 0


def _cost(known: Known, states: dict[str, State]) -> dict[str, float] | None:
    """Estimated core hours: of the runs missing now, and of those that follow them.

    A run counts the mean time of recorded runs of its task, or of all tasks. None if no run is
    recorded.
    """
    seconds: dict[str, list[float]] = {}
    missing: list[str] = []
    for run in known.runs:
        task, at = run.choices["task"], states[run.run_id]
        if at in ("missing", "failed"):
            missing.append(task)
        elif record := record_of(run.folder):
            seconds.setdefault(task, []).append(record.seconds["session"])
    all_tasks = [value for values in seconds.values() for value in values]
    if not all_tasks:
        return None
    now = [mean(seconds.get(task, all_tasks)) for task in missing]
    following = known.waiting * (mean(now) if now else mean(all_tasks))
    return {"now": sum(now) / 3600, "following": following / 3600}


def _status(known: Known, keys: Sweep) -> int:
    counts = _print(known, keys.format, every=False)
    if keys.format == "table":
        _print_points(known.runs)
        size = sum(map(_size, (file for run in known.runs for file in run.folder.glob("*"))))
        print(f"{size / 1e6:.1f} MB on disk" + "; action=clean removes checkpoints" * (size > 1e8))
    return 1 if counts["failed"] + counts["missing"] + known.waiting else 0


def _print_points(runs: Sequence[PlannedRun]) -> None:
    """Print a line per grid point, over its seeds, at the best learning rate or the pilots'."""
    from coefdyn.results.tables import free_axes, point_table, run_table  # takes half a second

    records = {run.run_id: _record(run) for run in runs}
    points = point_table(run_table(runs, records))
    if points.empty:
        return
    names = free_axes(points)
    metric = "test/perplexity" if points["test/perplexity"].notna().any() else "accuracy"
    table = Table(*names, metric.removeprefix("test/"), "spread", "seeds", "best lr", "diverged")
    for point in points.to_dict("records"):
        several = metric == "accuracy" and point["seeds"] > 1
        spread = f"{point['accuracy_min']:.4f} to {point['accuracy_max']:.4f}" * several
        numbers = (f"{point[metric]:.4f}", spread, point["seeds"], f"{point['lr']:g}",
                   point["diverged"] or "")  # fmt: skip
        table.add_row(*(Text(str(x)) for x in (*(point[name] for name in names), *numbers)))
    console().print(table)


def _record(run: PlannedRun) -> Record | None:
    try:
        return record_of(run.folder)
    except ConfigError:  # the table of failed runs shows it
        return None


def _run(grid: Planner, keys: Sweep) -> int:
    """Train in rounds, because records of one round may call for more runs. Each is tried once."""
    tried: set[str] = set()
    try:
        while todo := [run for run in unfinished(known_runs(grid).runs) if run.run_id not in tried]:
            tried |= {run.run_id for run in todo}
            with Progress(todo, keys.jobs) as progress:
                run_all(todo, keys.jobs, progress)
    except StoppedError as stopped:
        print(f"{stopped}: what was trained is saved; the same command goes on", file=sys.stderr)
        return stopped.exit_code
    return _status(known_runs(grid), keys)


def _decide(grid: Sequence[str], example: PlannedRun, keys: Sweep) -> int:
    """Add seeds until the claims are decided. Exit code: 0 if all are, 1 if not."""
    from coefdyn.paper.decide import Decision, as_json  # takes seconds

    def here(todo: list[PlannedRun]) -> bool:
        with Progress(todo, keys.jobs) as progress:
            run_all(todo, keys.jobs, progress)
        return True

    def there(todo: list[PlannedRun]) -> bool:
        print(submit(todo, example.choices["experiment"], keys.slurm), file=sys.stderr)
        return False

    results = Path(example.values["paths"]["results"])
    decision = Decision(grid, results, example.choices["scale"])
    try:
        ending = decision.run(here if keys.where == "here" else there, keys.budget)
    except StoppedError as stopped:
        print(f"{stopped}: what was trained is saved; the same command goes on", file=sys.stderr)
        return stopped.exit_code
    if keys.format == "json":
        print(as_json(ending))
    else:
        table = Table("claim", "verdict", "seeds", "effects")
        for name, judgement in ending.verdicts.items():
            seeds = str(ending.looks.get(name, ""))
            table.add_row(*map(Text, (name, judgement.verdict, seeds, judgement.statistic)))
        console().print(table)
        print(f"{ending.words}; {ending.hours:.2g} core hours in all")
    return 0 if len(ending.looks) == len(ending.verdicts) else 1


def _submit(known: Known, keys: Sweep) -> int:
    runs = known.runs
    todo = unfinished(runs)
    name = runs[0].choices.get("experiment", "None")
    name = "sweep" if name == "None" else name
    message = "every run is recorded; nothing to submit"
    if todo:
        message = submit(todo, name, keys.slurm)
    if known.waiting:
        message += f"; {known.waiting} more follow their pilots: submit again when these are done"
    _say({"submitted": message}, message, keys)
    return 0


def _archive(known: Known, keys: Sweep) -> int:
    """Archive the records that there are. Exit code: 1 if some are still missing."""
    results = Path(keys.into or known.runs[0].values["paths"]["results"])
    records = [record_of(run.folder) for run in known.runs]
    done = [record for record in records if record is not None]
    added, missing = Archive(results).add(done), len(records) - len(done) + known.waiting
    numbers = {"added": added, "archived": len(done), "missing": missing}
    words = (
        f"{added} records added to {results}/records; {len(done)} of {len(done) + missing} there"
    )
    _say(numbers, words, keys)
    return 1 if missing else 0


def _clean(known: Known, keys: Sweep) -> int:
    """Remove checkpoints of recorded runs, except of a run that is being trained again."""
    finished = [run.folder for run in known.runs if record_of(run.folder) and not _at_work(run)]
    checkpoints = [path for folder in finished for path in folder.glob(CHECKPOINT)]
    size = sum(path.stat().st_size for path in checkpoints)
    for path in checkpoints:
        path.unlink()
    words = f"{len(checkpoints)} checkpoints removed, {size / 1e6:.1f} MB"
    _say({"removed": len(checkpoints), "bytes": size}, words, keys)
    return 0


def _say(numbers: Mapping[str, object], words: str, keys: Sweep) -> None:
    print(json.dumps(numbers) if keys.format == "json" else words)


def _size(path: Path) -> int:
    """Bytes of a file; 0 if it is gone, since a run at work removes files."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0


ACTIONS: dict[str, Callable[[Known, Sweep], int]] = {
    "plan": _plan,
    "status": _status,
    "submit": _submit,
    "archive": _archive,
    "clean": _clean,
}


def _print(known: Known, style: str, every: bool) -> dict[str, int]:
    runs = known.runs
    states = {run.run_id: state(run.folder) for run in runs}
    counts = count(states.values())
    if style == "json":
        rows = [_row(run, states[run.run_id]) for run in runs]
        about = {"waiting": known.waiting, "core_hours": _cost(known, states) if every else None}
        print(json.dumps(counts | about | {"runs": rows}))
    else:
        _print_table(runs, states, every)
        waiting = f"; {known.waiting} more follow their pilots" * bool(known.waiting)
        print(", ".join(f"{number} {name}" for name, number in counts.items()) + waiting)
        if every and (cost := _cost(known, states)):
            print("about {now:.2g} core hours, {following:.2g} for what follows".format(**cost))
    return counts


def _row(run: PlannedRun, at: State) -> dict[str, object]:
    row: dict[str, object] = {"run_id": run.run_id, "state": at, "point": list(run.point)}
    if at == "failed":
        row["error"] = last_error(run.folder)
    if at == "missing" and (work := _at_work(run)):
        row["running"] = work
    return row


def _at_work(run: PlannedRun) -> str:
    """How far a run is and who trains it; empty if nobody does."""
    try:
        owner = owner_of(run.folder)
    except OSError:
        return "locked, but the lock cannot be read"
    done, last = epochs(run.folder), run.values["trainer"]["max_epochs"]
    return f"epoch {done}/{last}, {owner}" if owner else ""


def _print_table(runs: Sequence[PlannedRun], states: dict[str, State], every: bool) -> None:
    """Print every run, or only those that failed, diverged or are being trained."""
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
