"""`coefdyn show`: prints the record of one run, or the differences of two."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from coefdyn.cli.keys import console, own_keys
from coefdyn.config.schema import Show
from coefdyn.errors import ConfigError
from coefdyn.results.load import Run, flat, load_run
from coefdyn.runs.archive import recorded


def run(arguments: Sequence[str]) -> int:
    keys, rest = own_keys(Show, "show", arguments)
    names = [name for name in rest if not name.startswith("plugins=")]
    if len(names) not in (1, 2):
        raise ConfigError("show takes one run, or two to compare: coefdyn show <run> [<run>]")
    runs = [_found(name, Path(keys.paths.results)) for name in names]
    if keys.format == "json":
        records = [dataclasses.asdict(run.record) for run in runs]
        print(json.dumps(records[0] if len(records) == 1 else records))
        return 0
    rows = [flat(run.record) for run in runs]
    if len(rows) == 2:
        columns = dict.fromkeys([*rows[0], *rows[1]])
        differing = [name for name in columns if rows[0].get(name) != rows[1].get(name)]
    else:
        differing = list(rows[0])
    table = Table("", *(run.run_id for run in runs))
    for name in differing:
        if name != "run_id":
            table.add_row(name, *(Text(_word(row.get(name))) for row in rows))
    console().print(table)
    if len(rows) == 1:
        print(f"{runs[0].folder}, git {runs[0].record.git['commit'] or 'none'}")
    return 0


def _found(name: str, results: Path) -> Run:
    """The run with this folder, run_id or beginning of a run_id."""
    if "/" in name or (Path(name) / "record.json").exists():
        return load_run(name)
    fitting = [folder for folder in recorded(results) if folder.name.startswith(name)]
    if len(fitting) != 1:
        why = "no run" if not fitting else f"{len(fitting)} runs"
        raise ConfigError(
            f"{name} names {why} in {results}/runs; give a folder, or enough of a name"
        )
    return load_run(fitting[0])


def _word(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
