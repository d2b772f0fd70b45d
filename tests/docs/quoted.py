"""What README, docs and headers of experiments take from the tables: verdicts, numbers, costs.

`python -m tests.docs.quoted` writes them anew after runs; a test wants them to be as written.
"""

import re
from pathlib import Path

import pandas as pd

from coefdyn.paper.sections import SECTIONS
from coefdyn.paper.summary import in_short, markdown
from coefdyn.paper.verdicts import judge
from coefdyn.results.files import TableFolder
from tests.docs.pages import PAGES, ROOT

# A number names its table, its point and its column.
NUMBER = re.compile(r'<span data-of="(\w+)/(\w+)\?([^#"]*)#([\w/]+)">([^<]+)</span>')
COST = re.compile(r"(Cost: lite )(?:[^;.\n]|\.(?=\d))+")
HEADERS = sorted((ROOT / "conf" / "experiment").glob("*.yaml"))
BEGIN, END = "<!-- begin: coefdyn report format=markdown -->\n", "\n<!-- end -->"


def number(match: re.Match[str]) -> str:
    """The same place with the table's number, to as many digits as are shown; a mean where rows
    differ in their seed only."""
    scale, stem, point, column, shown = match.groups()
    table = pd.read_csv(ROOT / "results" / "tables" / scale / f"{stem}.csv")
    for part in point.split("&"):
        name, _, value = part.partition("=")
        table = table[table[name].astype(str) == value]
    alike = table.drop(columns=["seed", column], errors="ignore").drop_duplicates()
    assert len(alike) == 1, point
    digits = len(shown.partition(".")[2])
    return match.group().replace(f">{shown}<", f">{table[column].mean():.{digits}f}<")


def refreshed(page: Path) -> str:
    """The page with numbers and verdicts of the present tables."""
    text = NUMBER.sub(number, page.read_text())
    if BEGIN in text:
        folders = [TableFolder(ROOT / "results", scale) for scale in ("lite", "paper")]
        tables = (f"### scale={f.scale}\n\n{markdown(judge(f))}" for f in folders)
        before, after = text.partition(BEGIN)[0], text.partition(END)[2]
        text = before + BEGIN + "\n\n".join(tables) + END + after
    return in_readme(text) if page.name == "README.md" else text


def with_cost(header: Path) -> str:
    """The experiment's YAML with the hours of its runs at lite: by the clock, so at most those."""
    hours = TableFolder(ROOT / "results", "lite").provenance(header.stem).get("hours")
    cost = "not measured yet" if hours is None else f"at most {hours:.1f} hours of one core"
    return COST.sub(rf"\g<1>{cost}", header.read_text())


def in_readme(text: str) -> str:
    """The last cell of each principle's row: its verdicts at lite, in short."""
    rows = judge(TableFolder(ROOT / "results", "lite"))
    for principle in range(1, 7):
        stems = [s.stems for s in SECTIONS if re.match(rf"p{principle}(-|$)", s.key)]
        short = in_short(rows, [stem for part in stems for stem in part])
        row = re.compile(rf"^(\| {principle} \|.*\| )[^|]+( \|)$", re.MULTILINE)
        text, count = row.subn(rf"\g<1>{short}\g<2>", text)
        assert count == 1, f"README has {count} rows of principle {principle}"
    return text


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(refreshed(path))
    for path in HEADERS:
        path.write_text(with_cost(path))
