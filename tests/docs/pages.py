"""The documentation as data: its pages, their blocks of code, links and names of files."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
NOTEBOOK = ROOT / "docs" / "first_ablation.ipynb"
BLOCK = re.compile(r"^```(\w+)(?: \{\.(\w+)\})?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:src|tests|conf|scripts|docs|results)/[\w./-]+)`")


@dataclass(frozen=True)
class Block:
    """`mark` says what it needs that a test has not: processor, cluster, network or hours."""

    language: str
    mark: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    if page.suffix == ".ipynb":
        cells = json.loads(page.read_text())["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        return [Block("python", "", text) for text in code]
    found = BLOCK.findall(page.read_text())
    return [Block(language, mark, text) for language, mark, text in found]


def anchors_of(page: Path) -> set[str]:
    """Headings as mkdocs and GitHub write them in addresses."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", title.lower()).strip() for title in titles]
    return {re.sub(r"\s+", "-", title) for title in plain}
