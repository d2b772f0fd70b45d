"""Small runs for tests."""

import csv
from pathlib import Path

from coefdyn.config.compose import Config, compose
from coefdyn.runs.record import Record
from coefdyn.runs.run import run_one


def smoke(results: Path, *more: str) -> Config:
    return compose(["scale=smoke", f"paths.results={results}", *more])


def run_smoke(results: Path, *more: str) -> Record:
    return run_one(smoke(results, *more))


def history(results: Path, record: Record) -> list[dict[str, str]]:
    return list(csv.DictReader((folder(results, record) / "metrics.csv").read_text().splitlines()))


def folder(results: Path, record: Record) -> Path:
    return results / "runs" / str(record.run_id)
