"""`make repeat`: train archived runs again, drawn at random, and compare every number.

    python -m tests.repeat [--count 20] [--seed 0] [--jobs 2] [--results results]

The runs are kept in .repeat/, by a digest of the code, so a killed command goes on. Drawn are
records that were made on this kind of processor: another kind rounds sums otherwise, and training
makes more of every difference.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coefdyn.config.grid import PlannedRun
from coefdyn.errors import ConfigError
from coefdyn.results.load import Run
from coefdyn.runs.archive import Archive, record_of
from coefdyn.runs.record import Record, digests, processor, products
from coefdyn.sweeps.pool import StoppedError, run_all
from coefdyn.sweeps.progress import Progress
from coefdyn.sweeps.state import last_error, unfinished

SCRATCH = Path(__file__).parents[1] / ".repeat"
COMPARED = ("status", "diverged_at_step", "epochs", "steps", "data", "metrics", "initial",
            "coefficients", "history")  # fmt: skip


def drawn(results: Path, count: int, seed: int) -> list[Record]:
    """Archived records made with this arithmetic, each as likely as the others."""
    archive = Archive(results)
    everything = [record for name in sorted(archive.names()) if (record := archive.read(name))]
    records = [record for record in everything if rounds_as_here(record)]
    if not 1 <= count <= len(records):
        raise ConfigError(
            f"{archive.folder} has {len(everything)} records, {len(records)} of them made on this "
            f"kind of processor: --count={count} must lie between 1 and their number"
        )
    return random.Random(seed).sample(records, count)


def rounds_as_here(record: Record) -> bool:
    """Whether sums were rounded as they are here. Records from before `products` was kept do not
    tell, and count as such: they used what MKL takes by itself."""
    device = record.device
    return device.get("kind") == processor() and device.get("products", products()) == products()


def planned(record: Record, results: Path) -> PlannedRun:
    """The run of a record, in another results folder."""
    config = Run(results / "runs" / record.run_id, record).config
    again = config.with_values({"paths.results": str(results)})
    point = tuple(f"{group}={again.choices[group]}" for group in ("task", "model"))
    return PlannedRun(again.run_id, point, again.values, again.choices)


def differing(record: Record, again: Record) -> list[str]:
    """The parts of two records of one run that are not the same in every digit."""

    def part(of: Record, name: str) -> Any:
        return getattr(of, name)

    return [name for name in COMPARED if part(record, name) != part(again, name)]


def report(records: Sequence[Record], runs: Sequence[PlannedRun]) -> int:
    """Print a line per run. Returns how many did not repeat."""
    failed = 0
    for record, run in zip(records, runs, strict=True):
        again = record_of(run.folder)
        if again is None:
            outcome = f"not trained: {last_error(run.folder)}"
        elif parts := differing(record, again):
            outcome = f"differs in {', '.join(parts)}"
        else:
            outcome = "the same in every digit"
        failed += outcome != "the same in every digit"
        accuracy = record.metrics["test/accuracy"]
        print(f"{record.run_id} {' '.join(run.point)} accuracy {accuracy}: {outcome}")
    print(f"{len(records) - failed} of {len(records)} runs repeat in every digit")
    return failed


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0 if all repeat, 1 if not, 2 for bad input, 128 and more if stopped."""
    parser = argparse.ArgumentParser(prog="python -m tests.repeat", description=__doc__)
    for name, default in {"count": 20, "seed": 0, "jobs": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--scratch", type=Path, default=SCRATCH / digests()["code"])
    keys = parser.parse_args(arguments)
    try:
        records = drawn(keys.results, keys.count, keys.seed)
        runs = [planned(record, keys.scratch) for record in records]
        todo = unfinished(runs)
        with Progress(todo, keys.jobs) as progress:
            run_all(todo, keys.jobs, progress)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except StoppedError as stopped:
        print(f"{stopped}: the same command goes on", file=sys.stderr)
        return stopped.exit_code
    return 1 if report(records, runs) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
