"""The page's section "measured on": what `coefdyn doctor full=true` found on GPUs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

COLUMNS = {  # of a step, by backend
    "preset": "preset",
    "backend": "backend",
    "tokens_per_second": "tokens/s",
    "milliseconds": "ms",
    "launches": "launches",
    "megabytes": "MB",
}


def section(results: Path) -> str:
    """HTML; empty if no GPU was checked. A check on a CPU only tries the check itself."""
    devices = [json.loads(path.read_text()) for path in sorted((results / "gpu").glob("*.json"))]
    measured = "".join(_device(device) for device in devices if device["gpu"])
    if not measured:
        return ""
    return f'<section id="measured"><h2>Measured on</h2>{measured}</section>'


def _device(device: Mapping[str, Any]) -> str:
    parts = {part["name"]: part for part in device["parts"]}
    versions = ", ".join(f"{name} {device['versions'][name]}" for name in ("coefdyn", "torch"))
    lines = "".join(f"<li>{line}</li>" for line in _summary(parts))
    rows = [row for row in parts["throughput"]["rows"] if "milliseconds" in row]
    return (
        f"<h3>{escape(device['device'])}</h3><p>{escape(device['date'])}, {escape(versions)}</p>"
        f"<ul>{lines}</ul>" + (_table(rows) if rows else "")
    )


def _summary(parts: Mapping[str, Any]) -> Iterator[str]:
    for part in parts.values():
        if part["status"] != "done":
            yield escape(f"{part['name']}: {part['status']}, {part['why']}")
    trials = parts["trials"]["rows"]
    wrong = [row for row in trials if row.get("wrong")]
    yield f"{len(trials)} trials of kernels, {len(wrong)} of them wrong"
    yield from (escape(f"{row['what']}: {row['wrong']}") for row in wrong)
    hours = [row for row in parts["short_runs"]["rows"] if "hours_of_all" in row]
    if hours:
        words = (f"{row['experiment']} {row['hours_of_all']:.3g}" for row in hours)
        yield escape(f"hours of each experiment at paper scale, projected: {', '.join(words)}")


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS.values())
    lines = ["".join(f"<td>{_cell(row.get(key))}</td>" for key in COLUMNS) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in (head, *lines))
    return f'<div class="scroll"><table>{body}</table></div>'


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else escape(str(value))
