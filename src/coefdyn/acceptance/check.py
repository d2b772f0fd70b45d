"""Runs the parts of the check one after the other, and keeps what each has found in one file."""

import json
import re
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from coefdyn.acceptance.parts import PARTS, Machine, NotHereError, Row
from coefdyn.errors import ConfigError
from coefdyn.paper import principle1
from coefdyn.runs.record import provenance, write_atomically

SCHEMA = 1  # of the file


@dataclass(frozen=True)
class Part:
    """What became of a part: done, failed, or not run; `why` says why it is not done."""

    name: str
    what: str
    status: str
    why: str | None
    seconds: float
    rows: list[Row]

    @property
    def failures(self) -> int:
        """Rows of something that went wrong, though the part went on."""
        return sum(bool(row.get("failed") or row.get("wrong")) for row in self.rows)


def check_machine(
    results: Path, names: Iterable[str] | None, say: Callable[[str], None]
) -> tuple[Path, list[Part]]:
    """Run the parts, each whatever became of the others. The file is written after each."""
    chosen = list(PARTS) if names is None else list(names)
    if unknown := [name for name in chosen if name not in PARTS]:
        raise ConfigError(f"parts={unknown[0]} is not known; choose from {', '.join(PARTS)}")
    here = Machine(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    path, parts = results / "gpu" / f"{_file_name(here.name)}.json", []
    path.parent.mkdir(parents=True, exist_ok=True)
    for name in PARTS:
        if name in chosen:
            say(f"{name}: {_what(name)}")
            parts.append(_run(name, here))
            say(f"{name}: {parts[-1].status}" + f" ({parts[-1].why})" * bool(parts[-1].why))
        else:
            parts.append(Part(name, _what(name), "not run", "it was left out by parts=", 0.0, []))
        write_atomically(path, json.dumps(_content(here, parts), indent=1))
        if name == "lengths" and parts[-1].rows:
            table = pd.DataFrame(parts[-1].rows)
            figure = principle1.draw({principle1.STEM: table})
            figure.savefig(path.with_name(f"{path.stem}_lengths.png"), dpi=200)
    return path, parts


def _run(name: str, here: Machine) -> Part:
    started, rows = time.perf_counter(), []
    status, why = "done", None
    try:
        for row in PARTS[name](here):
            rows.append(row)
    except NotHereError as reason:
        status, why = "not run", str(reason)
    except Exception as error:  # the other parts go on
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        status, why = "failed", f"{type(error).__name__} in {place}: {' '.join(str(error).split())}"
    return Part(name, _what(name), status, why, time.perf_counter() - started, rows)


def _what(name: str) -> str:
    return (PARTS[name].__doc__ or "").split("\n")[0]


def _content(here: Machine, parts: list[Part]) -> dict[str, Any]:
    known = provenance(here.device)
    return {
        "schema": SCHEMA,
        "device": here.name,
        "gpu": here.has_gpu,
        "date": datetime.now(UTC).date().isoformat(),
        "overrides": here.overrides,
        "versions": known["versions"],
        "git": known["git"],
        "parts": [asdict(part) for part in parts],
    }


def _file_name(device: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", device).strip("_").lower()
