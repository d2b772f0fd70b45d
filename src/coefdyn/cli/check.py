"""`coefdyn check`: tests a design against the six principles."""

import json
import sys
from collections.abc import Sequence

from rich.table import Table

from coefdyn.cli.keys import choose, console, own_keys
from coefdyn.config.build import build_model
from coefdyn.config.compose import compose, plugins_of
from coefdyn.config.pattern import designs_of
from coefdyn.config.plugins import options
from coefdyn.config.schema import Check
from coefdyn.errors import ConfigError
from coefdyn.principles.check import Report, check

COLOURS = {"pass": "green", "warn": "yellow", "break": "red"}


def run(arguments: Sequence[str]) -> int:
    """Exit code: 1 if a principle is broken and strict=true, else 0."""
    overrides = [a for a in arguments if a.partition("=")[0] != "check"]
    keys, rest = own_keys(Check, "check", overrides)
    if keys.models == []:
        raise ConfigError("models=[] must be a list such as [gla,mamba2]")
    if keys.models is not None and keys.out is not None:
        raise ConfigError("out draws one design; leave out models, or out")
    reports = {}
    names: list[str | None] = [*keys.models] if keys.models else [None]
    for name in names:
        if name is not None:
            choose("models", name, options("model", plugins_of(rest)))
        config = compose([*rest, *([f"model={name}"] if name else [])])
        build_model(config)  # reports a design that cannot be built
        designs = designs_of(config)
        if len(designs) == 1:
            reports[name or config.choices["model"]] = check(config)
        else:
            reports |= {design: check(of_layer) for design, of_layer in designs.items()}
    if keys.out is not None:
        from coefdyn.principles.picture import picture

        figure = picture(config, reports, keys.tokens)
        try:
            figure.savefig(keys.out, dpi=160)
        except (OSError, ValueError) as error:
            raise ConfigError(f"out={keys.out} cannot be written: {error}") from error
        print(keys.out, file=sys.stderr)
    _print(reports, keys.format, side_by_side=keys.models is not None or len(reports) > 1)
    broken = any(report.broken for report in reports.values())
    return 1 if keys.strict and broken else 0


def _print(reports: dict[str, Report], style: str, side_by_side: bool) -> None:
    if style == "json":
        plain = {
            name: {"principles": [line.as_dict() for line in report.lines], "facts": report.facts}
            for name, report in reports.items()
        }
        print(json.dumps(plain if side_by_side else next(iter(plain.values()))))
    elif side_by_side:
        console().print(_comparison(reports))
    else:
        (report,) = reports.values()
        console().print(_details(report))
        for name, fact in report.facts.items():
            console().print(f"{name}: {fact}", markup=False, highlight=False)


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
