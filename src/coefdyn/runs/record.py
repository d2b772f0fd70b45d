"""The record of a run, record.json; and writing files so that they are never incomplete."""

import contextlib
import csv
import dataclasses
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal

import torch

from coefdyn.config.plugins import CONF
from coefdyn.errors import ConfigError

PACKAGE = Path(__file__).parents[1]
SCHEMA = 2  # of records and checkpoints; version 0.1 had no number
CHECKPOINT = "last.ckpt"
# What tells kinds of processors apart in /proc/cpuinfo, of x86 and ARM, and elsewhere.
OF_A_PROCESSOR = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part", "name")
VERSIONS = ("coefdyn", "torch", "lightning", "numpy", "hydra-core")

Row = dict[str, Any]  # numbers by column; None where there is none


@dataclass(frozen=True)
class Record:
    """Everything that is known of a finished run. `seconds` are summed over all sessions."""

    schema: int
    run_id: str
    status: Literal["finished", "diverged"]
    diverged_at_step: int | None
    metrics: dict[str, float | None]
    coefficients: dict[str, Any] | None  # statistics; None if diverged, or of a foreign mixer
    initial: dict[str, Any] | None  # a few of them before the first step
    epochs: int
    steps: int
    chance: float  # the accuracy of guessing; of counting tokens; the best that can be learned
    order_free: float
    ceiling: float
    config: dict[str, Any]
    choices: dict[str, str]
    backend: list[str | None]  # the form of each layer; None of a foreign mixer
    parameters: int
    data: dict[str, str]  # digests
    history: dict[str, list[float | int | None]]  # a list per column, an entry per epoch
    population: dict[str, Any] | None
    seconds: dict[str, float]
    git: dict[str, Any]
    versions: dict[str, str]
    device: dict[str, Any]
    earlier_sessions: list[dict[str, Any]]


class OtherSchemaError(ConfigError):
    """A record written by a version with another schema."""


def read_record(path: Path) -> Record | None:
    """The record at `path`, or None if there is none."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the record {path} cannot be read; delete it to train this run again"
        ) from error
    return as_record(content, f"the record {path}")


def as_record(found: Any, name: str) -> Record:
    """The record with the JSON content `found`, checked. Errors call it `name`."""
    schema = found.get("schema", 0) if isinstance(found, dict) else None
    if schema != SCHEMA and schema is not None:
        raise OtherSchemaError(
            f"{name} has schema {schema}, and this version of coefdyn reads schema "
            f"{SCHEMA}; use the version that wrote it, or train the run again"
        )
    names = {field.name for field in dataclasses.fields(Record)}
    if schema is None or not found.keys() >= names:
        raise ConfigError(f"{name} is incomplete; delete it to train this run again")
    return Record(**{name: found[name] for name in names})


def write_record(path: Path, record: Record) -> None:
    """Write record.json by a rename, as the last file: a run with a record is finished."""
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    lines = [f"{json.dumps(key)}: {json.dumps(v, allow_nan=False)}" for key, v in values.items()]
    with replacing(path) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())
        file.flush()
        os.fsync(file.fileno())  # so that a power failure cannot lose it


def write_history(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write metrics.csv, a row per epoch.

    The whole file is rewritten, so that it agrees with the checkpoint that a run resumes from.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())


def columns(rows: Sequence[Row]) -> dict[str, list[float | int | None]]:
    """A list per column, with None where a row lacks the column."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def write_atomically(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that replaces `path` once it is complete. After an error `path` is unchanged."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def provenance(device: torch.device) -> dict[str, Any]:
    """The code, the libraries and the device of a session."""
    versions = {name: importlib.metadata.version(name) for name in VERSIONS}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "git": _git(),
        "versions": {"python": platform.python_version(), **versions, **digests()},
        "device": {
            "type": device.type,
            "name": name,
            "kind": processor(),
            "products": products(),
            "threads": torch.get_num_threads(),
        },
    }


@cache
def processor() -> str:
    """A digest of the kind of processor.

    Processors of one kind round sums alike, so that a run repeats in every digit. Those of
    another kind add in another order.
    """
    about = {"capability": torch.backends.cpu.get_cpu_capability(), "machine": platform.machine()}
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        first = f"name: {platform.processor()}"  # macOS
    for line in first.splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key in OF_A_PROCESSOR:
            about[key] = value
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]


@cache
def products() -> str:
    """A digest of how float32 matrix products round on this processor.

    The library behind torch has several ways to compute them. MKL takes an older one on processors
    of other makers, unless the environment makes it think otherwise.
    """
    x = torch.arange(256 * 256).mul(7919).remainder(1009).view(256, 256) / 1009
    return hashlib.sha256((x @ x.mT).numpy().tobytes()).hexdigest()[:8]


@cache
def digests() -> dict[str, str]:
    """Digests of the code and of conf/ as they are on disk, committed or not."""
    return {
        "code": _digest(PACKAGE, "*.py"),
        "conf": _digest(CONF, "*.yaml"),
    }


def _digest(folder: Path, pattern: str) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob(pattern)):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _git() -> dict[str, Any]:
    """The commit of our checkout, and whether code or configuration differ from it.

    Both are None for an installed coefdyn, which may lie inside the checkout of another project.
    """
    root = CONF.resolve().parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    if not (root / "src" / "coefdyn").is_dir():
        return {"commit": None, "dirty": None}
    try:
        commit = git("rev-parse", "HEAD")
        dirty = bool(git("status", "--porcelain", "--", "src", "conf", "scripts"))
    except (OSError, subprocess.CalledProcessError):  # no git, or no checkout
        return {"commit": None, "dirty": None}
    return {"commit": commit, "dirty": dirty}
