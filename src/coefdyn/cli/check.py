"""The command line of scripts/check_design.py."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from coefdyn.config.build import build
from coefdyn.config.compose import compose, options, settings
from coefdyn.errors import ConfigError
from coefdyn.principles.check import Report, check

OWN_KEYS = ("models", "format", "strict", "out", "tokens")
COLOURS = {"pass": "green", "warn": "yellow", "break": "red"}


def main(arguments: Sequence[str]) -> int:
    """Exit code: 1 if a principle is broken and strict=true, else 0."""
    own = [a for a in arguments if a.partition("=")[0] in OWN_KEYS]
    keys = settings(compose(own, "check"))
    rest = [a for a in arguments if a not in own]
    if keys["format"] not in ("table", "json"):
        raise ConfigError(f"format={keys['format']} is not known; choose from table, json")
    if keys["strict"] not in (True, False):
        raise ConfigError(f"strict={keys['strict']} must be true or false")
    names = keys["models"]
    if names is not None and (not isinstance(names, list) or not names):
        raise ConfigError(f"models={names} must be a list such as [gla,mamba2]")
    if names is not None and keys["out"] is not None:
        raise ConfigError("out draws one design; leave out models, or out")
    reports = {}
    for name in names or [None]:
        if name is not None and name not in options("model"):
            raise ConfigError(f"models has {name}; choose from {', '.join(options('model'))}")
        config = compose([*rest, *([f"model={name}"] if name else [])])
        build(config)  # what cannot be built fails here, in its own words
        reports[name or config.choices["model"]] = check(config)
    if keys["out"] is not None:
        from coefdyn.principles.picture import picture

        try:
            picture(config, next(iter(reports.values())), keys["tokens"]).savefig(
                Path(keys["out"]), dpi=160
            )
        except ConfigError:
            raise
        except (OSError, ValueError) as error:
            raise ConfigError(f"out={keys['out']} cannot be written: {error}") from error
        print(keys["out"], file=sys.stderr)
    _print(reports, keys["format"], side_by_side=names is not None)
    broken = any(report.broken for report in reports.values())
    return 1 if keys["strict"] and broken else 0


def _print(reports: dict[str, Report], style: str, side_by_side: bool) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    if style == "json":
        found = {
            name: {"principles": [line.as_dict() for line in report.lines], "facts": report.facts}
            for name, report in reports.items()
        }
        print(json.dumps(found if side_by_side else next(iter(found.values()))))
    elif side_by_side:
        console.print(_comparison(reports))
    else:
        (report,) = reports.values()
        console.print(_details(report))
        for name, fact in report.facts.items():
            console.print(f"{name}: {fact}", markup=False, highlight=False)


def _details(report: Report) -> Table:
    table = Table("principle", "verdict", "number", "reason", "what to change")
    for line in report.lines:
        verdict = f"[{COLOURS[line.verdict]}]{line.verdict}[/]"
        cells = (line.number, line.reason, line.change)
        table.add_row(line.principle, verdict, *(cell.replace("[", r"\[") for cell in cells))
    return table


def _comparison(reports: dict[str, Report]) -> Table:
    table = Table("principle", *(name.replace("_", " ") for name in reports))
    for rows in zip(*(report.lines for report in reports.values()), strict=True):
        cells = [
            f"[{COLOURS[line.verdict]}]{line.verdict}[/]\n" + line.number.replace("[", r"\[")
            for line in rows
        ]
        table.add_row(rows[0].principle, *cells)
    for fact in next(iter(reports.values())).facts:
        table.add_row(fact, *(report.facts[fact] for report in reports.values()))
    return table
