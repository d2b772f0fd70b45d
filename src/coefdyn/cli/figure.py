"""`coefdyn figure`: makes tables and figures from the records of any experiment."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from coefdyn.cli.keys import choose, own_keys
from coefdyn.config.compose import plugins_of
from coefdyn.config.grid import Planner
from coefdyn.config.plugins import options
from coefdyn.config.schema import Figures
from coefdyn.errors import ConfigError
from coefdyn.paper import experiment_of, experiments
from coefdyn.results.experiment import Experiment
from coefdyn.results.files import TableFolder
from coefdyn.results.rounds import recorded_too
from coefdyn.runs.archive import record_of


def run(arguments: Sequence[str]) -> int:
    keys, rest = own_keys(Figures, "figure", arguments)
    # For Hydra experiment and scale choose files; here they are plain names.
    names = {"experiment": "", "scale": "lite"}
    names |= dict(a.split("=", 1) for a in rest if a.startswith(("experiment=", "scale=")))
    plugins = plugins_of(rest)
    grid = [a for a in rest if a.partition("=")[0] not in (*names, "plugins")]
    planned = [f"scale={names['scale']}", *grid, *(a for a in rest if a.startswith("plugins="))]
    measured = [e.stem for e in experiments().values() if e.columns]
    choose("scale", names["scale"], options("scale", plugins))
    if not names["experiment"] and not grid:
        raise ConfigError(
            "figure needs experiment=<name>, experiment=all, or a grid such as model=gla,mamba2"
        )
    if names["experiment"]:
        known = [*options("experiment", plugins), *measured, "all"]
        choose("experiment", names["experiment"], known)
    if grid and keys.source == "tables":
        raise ConfigError(
            f"source=tables draws tables as they are: {' '.join(grid)} would change nothing; "
            "leave it out, or take source=records"
        )
    if not re.fullmatch(r"[\w.-]+", keys.name):
        raise ConfigError(f"name={keys.name} must be a word: it names a table and a figure")
    folder = TableFolder(Path(keys.paths.results), names["scale"])
    stems = [names["experiment"] or keys.name]
    if stems == ["all"]:
        stems = [stem for stem in (*folder.stems(), *measured) if folder.has(stem)]
    if not stems:
        raise ConfigError(
            f"there are no tables in {folder.tables}; name one experiment to make its"
        )
    selected = [experiment_of(stem) for stem in stems]
    if keys.source != "tables":
        # Other commands make the tables of timings and of grids without a file.
        from_records = set(options("experiment", plugins))
        for experiment in selected:
            if experiment.stem in from_records or not names["experiment"]:
                by_name = [f"experiment={experiment.stem}"] if names["experiment"] else []
                # A path says where runs are, not which runs they are.
                filters = [a for a in grid if by_name and not a.startswith("paths.")]
                _make_tables(folder, experiment, keys.source, [*by_name, *planned], filters)
    for experiment in selected:
        missing = [name for name in experiment.needs if not folder.has(name)]
        if missing:
            tables = ", ".join(missing)
            print(f"{experiment.stem}: not drawn; it needs {tables}", file=sys.stderr)
        else:
            print(folder.save(experiment.stem, folder.draw(experiment)))
    return 0


def _make_tables(
    folder: TableFolder,
    experiment: Experiment,
    source: str,
    grid: list[str],
    filters: list[str],
) -> None:
    """Write an experiment's tables from its records; `filters` select a part of its runs.

    With source=auto, existing tables are kept while runs are missing.
    """
    stem = experiment.stem
    known = recorded_too(Planner([*grid, f"paths.results={folder.results}"]))
    runs = known.runs
    records = {run.run_id: record_of(run.folder) for run in runs}
    missing = sum(record is None for record in records.values())
    if missing < len(runs) and (not missing or source == "records"):
        if filters and folder.has(stem) and not folder.narrowed(stem):
            raise ConfigError(
                f"{folder.path(stem)} is of the whole experiment and would be lost to "
                f"one with {' '.join(filters)}; delete it first, or leave that out"
            )
        folder.write(experiment, runs, records, filters)
        if missing or known.waiting:
            total = len(runs) + known.waiting
            words = f"{missing + known.waiting} of {total} runs are missing"
            print(f"{stem}: {words}", file=sys.stderr)
        return
    if source == "records" or not folder.has(stem):
        raise ConfigError(
            f"{missing} of {len(runs)} runs of {stem} are not recorded; "
            f"coefdyn sweep {' '.join(grid)} paths.results={folder.results} action=run"
        )
    print(f"{stem}: {missing} of {len(runs)} runs are not recorded; drawn from its table as it is",
          file=sys.stderr)  # fmt: skip
