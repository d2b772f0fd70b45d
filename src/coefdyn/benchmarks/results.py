"""suite=results: how long a thousand records take to become a table."""

import dataclasses
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from coefdyn.api import train
from coefdyn.benchmarks.measure import Result, interleaved_medians, result
from coefdyn.results.load import load_runs
from coefdyn.runs.record import write_record

SUITE = "results"
RUNS, BAR = 1000, 2.0  # seconds


def run(repeats: int) -> Iterator[Result]:
    """Load copies of a real record. It has the paper's sizes, but fewer training steps."""
    with tempfile.TemporaryDirectory() as results:
        short = ("task.num_train=128", "task.num_test=64", "trainer.max_epochs=200")
        tiny = ("scale=paper", "task=memorization", "task.vocab_size=64", "trainer.batch_size=128")
        record = train(*tiny, *short, "check=false", results=results).record
        for number in range(RUNS - 1):
            folder = Path(results) / "runs" / f"{number:016x}"
            folder.mkdir()
            write_record(folder / "record.json", dataclasses.replace(record, run_id=folder.name))
        cases = {"load": partial(load_runs, results)}
        seconds = interleaved_medians(cases, max(3, repeats // 3))["load"] / 1e3
    case = f"load_runs of {RUNS} records, against {BAR:g} s"
    yield result(SUITE, case, seconds, "s", BAR, 1.0)
