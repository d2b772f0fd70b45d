"""`coefdyn report`: prints verdicts on the paper's claims, or writes the page with all results."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from coefdyn.cli.keys import console, only_keys
from coefdyn.config.schema import Report
from coefdyn.errors import ConfigError
from coefdyn.paper.report import page
from coefdyn.paper.summary import markdown
from coefdyn.paper.verdicts import judge
from coefdyn.results.files import TableFolder


def run(arguments: Sequence[str]) -> int:
    """Exit code: always 0. A claim that is not reproduced is a result too."""
    keys = only_keys(Report, "report", arguments)
    results = Path(keys.paths.results)
    places = sorted(path.name for path in (results / "tables").glob("*") if path.is_dir())
    order = [name for name in ("lite", "paper", "smoke") if name in places]
    folders = [TableFolder(results, name) for name in dict.fromkeys([*order, *places])]
    folders = [folder for folder in folders if any(folder.tables.glob("*.csv"))]
    if not folders:
        raise ConfigError(f"there are no tables in {results}/tables; coefdyn figure makes them")
    if keys.format == "page":
        path = results / "report" / "index.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(folders))
        print(path)
        return 0
    if keys.format == "markdown":
        print("\n\n".join(f"### scale={f.scale}\n\n{markdown(judge(f))}" for f in folders))
        return 0
    verdicts = [row for folder in folders for row in (judged.row() for judged in judge(folder))]
    if keys.format == "json":
        print(json.dumps(verdicts))
        return 0
    table = Table("scale", "claim", "verdict", "statistic")
    for row in verdicts:
        table.add_row(*(row[name] for name in ("scale", "claim", "verdict", "statistic")))
    console().print(table)
    return 0
