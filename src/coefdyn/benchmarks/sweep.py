"""suite=sweep: time and memory that the local pool adds to its runs, and planning time."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from coefdyn.benchmarks.measure import Result, result
from coefdyn.config.grid import plan
from coefdyn.config.plugins import options
from coefdyn.runs.lock import owner_of
from coefdyn.runs.record import read_record

SUITE = "sweep"
RUNS, JOBS = 200, 2
OVERHEAD_BAR = 0.3  # seconds per run
GROWTH_BAR = 1.05  # of a worker's memory, from the second quarter of its life to the last
PLAN_BAR = 30.0  # seconds


def run(_: int) -> Iterator[Result]:
    yield from pool()
    for name in options("experiment"):
        start = time.perf_counter()
        runs = plan([f"experiment={name}", "scale=paper"])
        seconds = time.perf_counter() - start
        case = f"plan of {name} at scale=paper, {len(runs)} runs, against {PLAN_BAR:g} s"
        yield result(SUITE, case, seconds, "s", PLAN_BAR, 1.0)


def pool() -> Iterator[Result]:
    """A sweep of short runs: its time per run besides training and testing, and memory growth."""
    with tempfile.TemporaryDirectory() as results:
        grid = ["scale=smoke", f"seed=range(0,{RUNS})", f"paths.results={results}"]
        start = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "coefdyn", "sweep", *grid, "action=run", f"jobs={JOBS}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            sizes = _sizes(process, Path(results))
        wall = time.perf_counter() - start
        records = [read_record(p) for p in Path(results).glob("runs/*/record.json")]
    steps = sum(r.seconds["training"] + r.seconds["testing"] for r in records if r)
    assert len(records) == RUNS
    each = (wall * JOBS - steps) / RUNS
    case = f"{RUNS} smoke runs, {JOBS} workers, all but steps and tests per run, against 0.3 s"
    yield result(SUITE, case, each, "s", OVERHEAD_BAR, 1.0)
    quarters = [[values[len(values) * q // 4 :][: len(values) // 4] for q in (1, 3)]
                for values in sizes.values()]  # fmt: skip
    early, late = (max(median(q[i]) for q in quarters) for i in (0, 1))
    yield result(
        SUITE,
        "memory of a worker, last quarter of its runs to second",
        late,
        "MB",
        early,
        GROWTH_BAR,
    )


def _sizes(process: "subprocess.Popen[bytes]", results: Path) -> dict[int, list[float]]:
    """Memory of each worker in megabytes, sampled over time, by process id."""
    sizes: dict[int, list[float]] = {}
    while process.poll() is None:
        time.sleep(0.2)
        for owner in filter(None, map(owner_of, results.glob("runs/*"))):
            try:
                status = Path(f"/proc/{owner.pid}/status").read_text()
            except OSError:  # it has just ended
                continue
            kilobytes = next(line for line in status.splitlines() if line.startswith("VmRSS"))
            sizes.setdefault(owner.pid, []).append(int(kilobytes.split()[1]) / 1e3)
    return sizes
