"""`coefdyn doctor`: lists what this machine can use; with full=true, tries and measures it."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coefdyn.cli.keys import only_keys
from coefdyn.config.schema import Doctor
from coefdyn.doctor import examine


def run(arguments: Sequence[str]) -> int:
    """Exit code: 0; with full=true 1 if a part failed, or a kernel that is here is wrong."""
    keys = only_keys(Doctor, "doctor", arguments)
    if keys.full:
        return _full(keys)
    parts = list(examine())
    if keys.format == "json":
        print(json.dumps([asdict(part) for part in parts], indent=1))
        return 0
    table, kind = Table("", "name", "", "version", ""), None
    for part in parts:
        table.add_row(
            "" if part.part == kind else part.part,
            part.name,
            "[green]yes[/]" if part.usable else "[yellow]no[/]",
            part.version,
            escape(part.note),
        )
        kind = part.part
    Console().print(table)
    return 0


def _full(keys: Doctor) -> int:
    from coefdyn.acceptance.check import check_machine  # takes seconds

    path, parts = check_machine(
        Path(keys.paths.results), keys.parts, lambda line: print(line, file=sys.stderr, flush=True)
    )
    if keys.format == "json":
        print(path.read_text())
    else:
        table = Table("part", "", "rows", "went wrong", "seconds", "what it is, and why not")
        for part in parts:
            wrong = str(part.failures or "")
            why = part.what + (f" {part.status.capitalize()}: {part.why}." if part.why else "")
            table.add_row(part.name, part.status, str(len(part.rows)), wrong,
                          f"{part.seconds:.0f}", escape(why))  # fmt: skip
        Console().print(table)
        print(f"{path} has it all; please send it with any report of a problem.")
    return 1 if any(part.status == "failed" or part.failures for part in parts) else 0
