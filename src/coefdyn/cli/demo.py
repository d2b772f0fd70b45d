"""`coefdyn demo`: a small real ablation over several seeds, with a figure and a page."""

import sys
from collections.abc import Sequence
from pathlib import Path

from coefdyn.config.grid import Planner
from coefdyn.runs.archive import record_of
from coefdyn.sweeps.pool import StoppedError, run_all
from coefdyn.sweeps.progress import Progress
from coefdyn.sweeps.state import unfinished

JOBS = 2


def run(overrides: Sequence[str]) -> int:
    """Train what is not recorded yet, then draw. Exit code: 1 if a run failed."""
    from coefdyn.demo import GRID, conclusion, figure, page  # takes seconds
    from coefdyn.results.tables import run_table

    runs = Planner([*GRID, *overrides]).declared
    todo = unfinished(runs)
    try:
        with Progress(todo, JOBS) as progress:
            run_all(todo, JOBS, progress)
    except StoppedError as stopped:
        print(f"{stopped}: what was trained is saved; the same command goes on", file=sys.stderr)
        return stopped.exit_code
    table = run_table(runs, {run.run_id: record_of(run.folder) for run in runs})
    if len(table) < len(runs):
        print(f"error: {len(runs) - len(table)} runs failed; see error.txt in "
              f"{runs[0].folder.parent}", file=sys.stderr)  # fmt: skip
        return 1
    directory = Path(runs[0].values["paths"]["results"]) / "demo"
    directory.mkdir(parents=True, exist_ok=True)
    drawing = figure(table)
    drawing.savefig(directory / "readouts.png", dpi=200)
    (directory / "index.html").write_text(page(table, drawing))
    print("\n".join(conclusion(table)))
    print(f"figure: {directory / 'readouts.png'}\npage:   {directory / 'index.html'}")
    return 0
