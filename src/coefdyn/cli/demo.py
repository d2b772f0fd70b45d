"""`coefdyn demo`: a small real ablation, its figure and its page."""

import itertools
import warnings
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from coefdyn.allocator import keep_freed_memory
from coefdyn.config.compose import compose
from coefdyn.demo import SHOWN, TASKS, figure, page


def run(overrides: Sequence[str]) -> int:
    warnings.filterwarnings("ignore", module=r"lightning\.")
    keep_freed_memory()
    from coefdyn.runs.run import run_one  # takes seconds to import

    console = Console(stderr=True)
    records = []
    points = list(itertools.product(TASKS, SHOWN))
    for i, (task, readout) in enumerate(points, 1):
        console.print(f"[{i}/{len(points)}] {task}, {readout} ...")
        config = compose([f"task={task}", f"model/readout={readout}", *overrides])
        records.append(run_one(config))
        console.print(f"    accuracy {records[-1].metrics['test/accuracy']:.3f}")
    directory = Path(config.settings.paths.results) / "demo"
    directory.mkdir(parents=True, exist_ok=True)
    drawing = figure(records)
    drawing.savefig(directory / "readouts.png", dpi=200)
    (directory / "index.html").write_text(page(records, drawing))
    print(f"figure: {directory / 'readouts.png'}\npage:   {directory / 'index.html'}")
    return 0
