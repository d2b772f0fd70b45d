"""The command lines of scripts/figure.py and scripts/report.py."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from coefdyn.config.compose import compose, options, settings
from coefdyn.config.grid import plan
from coefdyn.errors import ConfigError
from coefdyn.paper.figures import STEMS, drawing
from coefdyn.paper.report import judge, page
from coefdyn.results.files import LENGTHS, Shelf
from coefdyn.runs.record import read_record
from coefdyn.sweeps.state import folder

SOURCES = ("auto", "records", "tables")


def figure(arguments: Sequence[str]) -> int:
    # experiment and scale are groups of conf/ to Hydra; here they are only names
    names = {"experiment": "", "scale": "lite"}
    names |= dict(a.split("=", 1) for a in arguments if a.startswith(("experiment=", "scale=")))
    own = [a for a in arguments if a.startswith(("source=", "paths.results="))]
    keys = names | settings(compose(own, "figure"))
    for name, choices in (
        ("experiment", (*STEMS, "all")),
        ("scale", tuple(options("scale"))),
        ("source", SOURCES),
    ):
        if keys[name] not in choices:
            raise ConfigError(f"{name}={keys[name]} is not known; choose from {', '.join(choices)}")
    narrower = [a for a in arguments if a not in own and a.partition("=")[0] not in names]
    if narrower and keys["source"] == "tables":
        raise ConfigError(
            f"source=tables draws tables as they are: {' '.join(narrower)} would change nothing; "
            "leave it out, or take source=records"
        )
    shelf = Shelf(_directory(keys), keys["scale"])
    everything = keys["experiment"] == "all"
    stems = [s for s in STEMS if shelf.has(s)] if everything else [keys["experiment"]]
    if not stems:
        raise ConfigError(f"there are no tables in {shelf.tables}; name one experiment to make its")
    if keys["source"] != "tables":
        for stem in stems:
            _make_tables(shelf, stem, keys["source"], narrower)
    for stem in stems:
        absent = [name for name in drawing(stem).needs if name != stem and not shelf.has(name)]
        if absent:
            print(f"{stem}: not drawn, for want of {', '.join(absent)}", file=sys.stderr)
        else:
            print(shelf.save(stem, shelf.draw(stem)[1]))
    return 0


def _directory(keys: Mapping[str, Any]) -> Path:
    paths = keys["paths"]  # which may have been overridden itself
    results = paths["results"] if isinstance(paths, Mapping) else paths
    if not isinstance(paths, Mapping) or not isinstance(results, str):
        raise ConfigError(f"paths.results={results} must be a directory")
    return Path(results)


def _make_tables(shelf: Shelf, stem: str, source: str, narrower: list[str]) -> None:
    if stem == LENGTHS:  # scripts/benchmark.py suite=lengths makes it
        return
    grid = [f"experiment={stem}", f"scale={shelf.scale}", *narrower]
    runs = plan(grid)
    records = {r.run_id: read_record(folder(shelf.results, r.run_id) / "record.json") for r in runs}
    missing = sum(record is None for record in records.values())
    if missing < len(runs) and (not missing or source == "records"):
        # Where runs lie says nothing about which they are.
        narrowed = [a for a in narrower if not a.startswith("paths.")]
        if narrowed and shelf.has(stem) and not shelf.narrowed(stem):
            raise ConfigError(
                f"{shelf.path(stem)} is of the whole experiment and would be lost to "
                f"one with {' '.join(narrowed)}; delete it first, or leave that out"
            )
        shelf.write(stem, runs, records, narrowed)
        if missing:
            print(f"{stem}: {missing} of {len(runs)} runs are missing", file=sys.stderr)
        return
    if source == "records" or not shelf.has(stem):
        raise ConfigError(
            f"{missing} of {len(runs)} runs of {stem} are not recorded; "
            f"python scripts/sweep.py {' '.join(grid)} paths.results={shelf.results} action=run"
        )
    print(f"{stem}: {missing} of {len(runs)} runs are not recorded; drawn from its table as it is",
          file=sys.stderr)  # fmt: skip


def report(arguments: Sequence[str]) -> int:
    """Exit code 0: a claim that is not reproduced is a result."""
    keys = settings(compose(arguments, "report"))
    if keys["format"] not in ("page", "json", "table"):
        raise ConfigError(f"format={keys['format']} is not known; choose from page, json, table")
    results = _directory(keys)
    shelves = [
        shelf for name in ("lite", "paper", "smoke") if (shelf := Shelf(results, name)).stems()
    ]
    if not shelves:
        raise ConfigError(f"there are no tables in {results}/tables; scripts/figure.py makes them")
    if keys["format"] == "page":
        path = results / "report" / "index.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(shelves))
        print(path)
        return 0
    verdicts = [row for shelf in shelves for row in judge(shelf)]
    if keys["format"] == "json":
        print(json.dumps(verdicts))
        return 0
    table = Table("scale", "claim", "verdict", "statistic")
    for row in verdicts:
        table.add_row(*(row[name] for name in ("scale", "claim", "verdict", "statistic")))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 0
