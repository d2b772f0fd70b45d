"""What remains of a run: its name, and the record that says everything about it."""

import contextlib
import copy
import csv
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch

from coefdyn.config.compose import CONF, Config, settings
from coefdyn.errors import ConfigError
from coefdyn.tasks.source import identity
from coefdyn.tasks.text.corpus import text_identity

# Where and how a run is carried out, or where its values came from: not what it computes.
NOT_IN_RUN_ID = (
    "paths",
    "logger",
    "scale",
    "grid",
    "force",
    "check",
    "population",
    "model.backend",
    "model.factor",  # as `c` of a slot that uses it, it is in the name
    "model.base",
    "trainer.devices",
    "trainer.checkpoint_seconds",
)
# What other code reads of a record.
REQUIRED = {"run_id", "status", "diverged_at_step", "metrics", "coefficients", "epochs", "chance",
            "config", "choices", "seconds", "parameters", "git", "versions", "device"}  # fmt: skip
SOLO_CHECKPOINT, MEMBER_CHECKPOINT = "last.ckpt", "member.ckpt"
VERSIONS = ("coefdyn", "torch", "lightning", "numpy", "hydra-core")


def run_id(config: Config) -> str:
    """A hash of every value that moves the numbers: the same run has the same name everywhere."""
    return name_of(settings(config))


def name_of(values: Mapping[str, Any]) -> str:
    """The run_id of settings."""
    kept = copy.deepcopy(dict(values))
    for name in NOT_IN_RUN_ID:
        *parents, last = name.split(".")
        node = kept
        for parent in parents:
            node = node.get(parent, {})
        node.pop(last, None)
    # Files are what they hold, wherever they are.
    kept["task"]["source"] = identity(str(kept["task"].get("source")))
    if "data" in kept["task"]:
        kept["task"]["data"] = text_identity(Path(str(kept["task"]["data"])))
    text = json.dumps(_canonical(kept), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _canonical(value: Any) -> Any:
    """Whole floats as integers, so that 0 and 0.0 are one value."""
    if isinstance(value, Mapping):
        return {str(key): _canonical(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def read_record(path: Path) -> dict[str, Any] | None:
    """The record at `path`, or None if there is none."""
    try:
        record = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the record {path} cannot be read; delete it to train this run again"
        ) from error
    if not isinstance(record, dict) or not record.keys() >= REQUIRED:
        raise ConfigError(f"the record {path} is incomplete; delete it to train this run again")
    return record


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Last of all, by rename: where there is a record, the run is finished."""
    lines = [f"{json.dumps(key)}: {json.dumps(v, allow_nan=False)}" for key, v in record.items()]
    with replacing(path) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())
        file.flush()
        os.fsync(file.fileno())  # finished is finished, even if the power fails


def write_history(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """metrics.csv: a row per epoch. Rewritten as a whole, so that it never disagrees with the
    checkpoint that a run resumes from."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())


def write_atomically(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when it is complete, or not at all."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def provenance(device: torch.device) -> dict[str, Any]:
    """Which code ran, with which libraries, on what."""
    versions = {name: importlib.metadata.version(name) for name in VERSIONS}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "git": _git(),
        "versions": {"python": platform.python_version(), **versions},
        "device": {"type": device.type, "name": name, "threads": torch.get_num_threads()},
    }


def _git() -> dict[str, Any]:
    """The commit of the checkout, and whether code or configuration differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(CONF.parent), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        dirty = bool(git("status", "--porcelain", "--", "src", "conf", "scripts"))
    except (OSError, subprocess.CalledProcessError):  # no git, or no checkout
        return {"commit": None, "dirty": None}
    return {"commit": commit, "dirty": dirty}
