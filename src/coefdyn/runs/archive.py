"""The archive of records, <results>/records/: files that are written once and kept for good.

Each file is a shard: compressed lines, first the run_ids, then one record per line. A shard is
named by the digest of its content. So damage is noticed, and two people can add to one archive.
"""

import gzip
import hashlib
import json
import logging
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from coefdyn.config.compose import Config
from coefdyn.errors import ConfigError
from coefdyn.runs.record import Record, as_record, read_record, replacing

log = logging.getLogger(__name__)

ENDING = ".jsonl.gz"


class DamagedArchiveError(ConfigError):
    """The content of a shard does not match its name."""


def record_of(folder: Path) -> Record | None:
    """The record of the run in `folder`, <results>/runs/<run_id>, or its record in the archive."""
    return read_record(folder / "record.json") or Archive(folder.parents[1]).read(folder.name)


def folder_of(config: Config) -> Path:
    return Path(config.settings.paths.results) / "runs" / config.run_id


def already_recorded(config: Config) -> Record | None:
    """The record of a run, and a log message; None if the run is missing or force=true.

    This needs no Lightning, whose import takes seconds.
    """
    record = record_of(folder_of(config))
    if record is None or config.settings.force:
        return None
    log.info("run %s is already recorded; force=true trains it again", record.run_id)
    if config.settings.logger:
        log.warning("nothing is logged to %s for it", config.choices.get("logger"))
    return record


def is_recorded(folder: Path) -> bool:
    """Whether the run has a record, readable or not."""
    return (folder / "record.json").exists() or folder.name in Archive(folder.parents[1]).names()


def recorded(results: Path) -> list[Path]:
    """The folders of all runs that have a record. The folder of an archived run may be gone."""
    here = {path.parent.name for path in (results / "runs").glob("*/record.json")}
    return [results / "runs" / name for name in sorted(here.union(Archive(results).names()))]


class Archive:
    """The archive of a results folder. Shards that were read stay in memory."""

    def __init__(self, results: Path) -> None:
        self.folder = results / "records"

    def shards(self) -> Iterator[Path]:
        try:
            shards = [path for path in self.folder.iterdir() if path.name.endswith(ENDING)]
        except (FileNotFoundError, NotADirectoryError):
            return
        yield from sorted(shards)

    def names(self) -> set[str]:
        return {name for shard in self.shards() for name in _lines_of(shard)}

    def read(self, run_id: str) -> Record | None:
        by_shard = {shard: _lines_of(shard).get(run_id) for shard in self.shards()}
        lines = {shard: line for shard, line in by_shard.items() if line is not None}
        records = [
            as_record(json.loads(line), f"{shard}, run {run_id},") for shard, line in lines.items()
        ]
        if any(record.metrics != records[0].metrics for record in records):
            raise ConfigError(
                f"run {run_id} is in {' and '.join(map(str, lines))} with different results; keep "
                "one of these shards"
            )
        return records[0] if records else None

    def add(self, records: Iterable[Record]) -> int:
        """Write the records that are not archived yet as one more shard. Returns their number."""
        new: dict[str, str] = {}
        for record in sorted(records, key=lambda record: record.run_id):
            archived = self.read(record.run_id)
            if archived is not None and archived.metrics != record.metrics:
                raise ConfigError(
                    f"run {record.run_id} is in {self.folder} with other results; keep one of the "
                    "two: delete the folder of the run, or take its shard out of the archive"
                )
            if archived is None:
                new[record.run_id] = _line(record)
        if not new:
            return 0
        body = "\n".join([json.dumps(list(new)), *new.values(), ""]).encode()
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.folder / f"{_digest(body)}{ENDING}") as file:
            file.write(gzip.compress(body, mtime=0))
        return len(new)


def _line(record: Record) -> str:
    """A record as JSON, without the paths of the machine that made it."""
    config = record.config | {"paths": {"results": "results", "data": "data"}}
    return json.dumps(asdict(replace(record, config=config)), separators=(",", ":"))


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


@cache  # a shard never changes
def _lines_of(shard: Path) -> dict[str, str]:
    """The JSON of each record, by run_id."""
    try:
        body = gzip.decompress(shard.read_bytes())
    except (OSError, EOFError, zlib.error):
        body = b""
    if f"{_digest(body)}{ENDING}" != shard.name:
        raise DamagedArchiveError(
            f"{shard} is damaged; restore it, such as by git checkout, or delete it and train its "
            "runs again"
        )
    head, *lines = body.decode().splitlines()
    return dict(zip(json.loads(head), lines, strict=True))
