"""What remains of a run: its name, and the record that says everything about it."""

import csv
import hashlib
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from coefdyn.errors import ConfigError
from coefdyn.training.build import CONF, Config

# Where and how a run is carried out, or where its values came from: not what it computes.
NOT_IN_RUN_ID = (
    "paths",
    "logger",
    "scale",
    "experiment",
    "force",
    "check",
    "population",
    "model.backend",
    "trainer.devices",
    "trainer.checkpoint_seconds",
)
VERSIONS = ("coefdyn", "torch", "lightning", "torchmetrics", "numpy", "hydra-core")


def run_id(config: Config) -> str:
    """A hash of every value that moves the numbers: the same run has the same name everywhere."""
    values = settings(config)
    for name in NOT_IN_RUN_ID:
        *parents, last = name.split(".")
        node = values
        for parent in parents:
            node = node.get(parent, {})
        node.pop(last, None)
    text = json.dumps(_canonical(values), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def settings(config: Config) -> dict[str, Any]:
    """The configuration in plain Python values."""
    return OmegaConf.to_container(config.values, resolve=True)  # type: ignore[return-value]


def _canonical(value: Any) -> Any:
    """Numbers as floats, so that 0 and 0.0 are one value; true and false stay."""
    if isinstance(value, Mapping):
        return {str(key): _canonical(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
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
    if not isinstance(record, dict) or not {"run_id", "status", "metrics"} <= record.keys():
        raise ConfigError(f"the record {path} is incomplete; delete it to train this run again")
    return record


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Last of all, by rename: where there is a record, the run is finished."""
    lines = [f"{json.dumps(key)}: {json.dumps(v, allow_nan=False)}" for key, v in record.items()]
    write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def write_history(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """metrics.csv: a row per epoch. Rewritten as a whole, so that it never disagrees with the
    checkpoint that a run resumes from."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    partial = path.with_suffix(".partial")
    with partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    partial.replace(path)


def write_atomically(path: Path, text: str) -> None:
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text)
    partial.replace(path)


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
    """The commit of the checkout, and whether tracked files differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(CONF.parent), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        dirty = bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):  # no git, or no checkout
        return {"commit": None, "dirty": None}
    return {"commit": commit, "dirty": dirty}
