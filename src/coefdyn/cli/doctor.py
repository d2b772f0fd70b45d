"""`coefdyn doctor`: lists what this machine can use, and why it cannot use the rest."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coefdyn.cli.keys import only_keys
from coefdyn.config.schema import Doctor
from coefdyn.doctor import examine


def run(arguments: Sequence[str]) -> int:
    keys = only_keys(Doctor, "doctor", arguments)
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
