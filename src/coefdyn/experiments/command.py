"""The command line of scripts/sweep.py."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from coefdyn.errors import ConfigError
from coefdyn.experiments.grid import Run, plan
from coefdyn.experiments.store import State, count, last_error, state
from coefdyn.training.config import compose

ACTIONS, FORMATS = ("plan", "status"), ("table", "json")
OWN_KEYS = ("action", "format")


def main(arguments: Sequence[str]) -> int:
    """Exit code: for status 1 unless everything is recorded; for plan 0."""
    own = [a for a in arguments if a.partition("=")[0] in OWN_KEYS]
    keys = compose(own, "sweep").values
    for name, choices in (("action", ACTIONS), ("format", FORMATS)):
        if keys[name] not in choices:
            raise ConfigError(f"{name}={keys[name]} is not known; choose from {', '.join(choices)}")
    runs = plan([a for a in arguments if a not in own])
    found = {run.run_id: state(_results(run), run.run_id) for run in runs}
    counts = count(found.values())
    if keys.format == "json":
        print(json.dumps(counts | {"runs": [_row(run, found[run.run_id]) for run in runs]}))
    else:
        _print_table(runs, found, keys.action)
        print(", ".join(f"{number} {name}" for name, number in counts.items()))
    unfinished = counts["failed"] + counts["missing"]
    return 1 if keys.action == "status" and unfinished else 0


def _results(run: Run) -> Path:
    return Path(run.config.values.paths.results)


def _row(run: Run, at: State) -> dict[str, object]:
    row: dict[str, object] = {"run_id": run.run_id, "state": at, "point": list(run.point)}
    if at == "failed":
        row["error"] = last_error(_results(run), run.run_id)
    return row


def _print_table(runs: Sequence[Run], found: dict[str, State], action: str) -> None:
    """plan lists every run, status those that need attention."""
    table = Table("run", "state", "point" if action == "plan" else "point, or why it failed")
    for run in runs:
        at = found[run.run_id]
        if action == "status" and at not in ("failed", "diverged"):
            continue
        why = last_error(_results(run), run.run_id) if at == "failed" else " ".join(run.point)
        table.add_row(run.run_id, at, why)
    if table.row_count:
        Console(width=None if sys.stdout.isatty() else 160).print(table)
