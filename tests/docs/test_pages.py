"""Documentation is true: what it shows runs, what it links to exists."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import yaml

from coefdyn.cli import COMMANDS, main
from coefdyn.paper.looks import TABLE_1
from tests.docs.pages import LINK, NAMED, NOTEBOOK, PAGES, ROOT, Block, anchors_of, blocks_of
from tests.docs.quoted import COST, HEADERS, NUMBER, refreshed, with_cost

PLUGIN = ROOT / "tests" / "assets" / "plugin" / "my_package"
SHELL_ONLY = ("make ", ". .venv", "pip install")
MARKS = {"": "runs", "gpu": "planned", "cluster": "planned", "network": "parsed", "long": "parsed",
         "amd": "parsed"}  # fmt: skip


def small(line: str) -> str:
    """The same command at a size for tests, with what a cluster would do only planned."""
    line = re.sub(r"scale=(lite|paper)", "scale=smoke", line.partition("  #")[0].strip())
    line = line.replace("trainer=cuda", "trainer=cpu").replace("machine=one_gpu", "machine=laptop")
    return line.replace("action=submit", "action=plan")


def arguments_of(line: str) -> list[str]:
    words = shlex.split(small(line))
    return [part for word in words for part in (_matches(word) or [word])]


def _matches(word: str) -> list[str]:
    return sorted(map(str, Path().glob(word))) if "*" in word else []


def run_shell(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    one_line_a_command = re.sub(r"\\\n\s*", "", block.text.strip())
    for line in one_line_a_command.splitlines():
        if line.startswith(SHELL_ONLY):
            check_make(line)
            continue
        name, command, *rest = arguments_of(line)
        if name != "coefdyn":
            assert block.mark, f"{line}: a test runs coefdyn only"
            continue
        assert command in COMMANDS, line
        if MARKS[block.mark] == "parsed":
            continue
        if MARKS[block.mark] == "planned":
            rest = [word for word in rest if not word.startswith("action=")]
        code = main([command, *rest])
        said = capsys.readouterr()
        assert code == 0, f"{line}: exit code {code}\n{said.out}\n{said.err}"


def check_make(line: str) -> None:
    if line.startswith("make "):
        targets = line.partition("#")[0].split()[1:]
        subprocess.run(["make", "-n", *targets], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.docs
@pytest.mark.parametrize("page", [*PAGES, NOTEBOOK], ids=lambda path: path.name)
def test_everything_that_a_page_shows_runs(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In its order, in one directory, as a reader would; Python blocks share their names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    mpl.use("Agg")
    shutil.copytree(PLUGIN, tmp_path / "my_package")
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks_of(page):
        assert block.mark in MARKS, f"{block.mark} is no mark; choose from {', '.join(MARKS)}"
        if block.language == "bash":
            run_shell(block, capsys)
        elif block.language == "python":
            exec(compile(block.text, f"{page.name}: {block.text[:40]}", "exec"), names)
        elif block.language == "yaml":
            assert isinstance(yaml.safe_load(block.text), dict)
        else:
            raise AssertionError(f"{page.name} has a block of {block.language}")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_and_names_of_files_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for address in LINK.findall(text):
        if address.startswith("http"):
            continue
        path, _, anchor = address.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {address}"
        if anchor:
            assert anchor in anchors_of(target), f"{page.name}: {address}"
    for name in NAMED.findall(text):
        known = (ROOT / name).exists() or list(ROOT.glob(name)) or "<" in name
        assert known or name.startswith(("results/runs", "results/demo")), f"{page.name}: {name}"


def test_the_readme_is_short_and_has_the_equation_and_every_architecture() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert max(map(len, text.splitlines())) <= 120
    for line in ("h_ij = A_i A_{i-1} ... A_{j+1} b_j k_j", "alpha_ij = phi(q_i . h_ij)",
                 "y_i = sum over j <= i of (alpha_ij / eta_i) v_j"):  # fmt: skip
        assert line in text
    for name in TABLE_1.values():
        assert f"\n| {name} |" in text


def test_the_notebook_is_the_tutorial() -> None:
    """Its Python is that of the page."""
    page = [
        b.text for b in blocks_of(ROOT / "docs" / "first_ablation.md") if b.language == "python"
    ]
    notebook = "\n".join(block.text for block in blocks_of(NOTEBOOK))
    for text in page:
        assert text.strip() in notebook


def test_there_are_numbers_that_name_their_table() -> None:
    assert sum(len(NUMBER.findall(page.read_text())) for page in PAGES) >= 15


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_numbers_and_verdicts_are_those_of_the_tables(page: Path) -> None:
    """`make quoted` writes them."""
    assert refreshed(page) == page.read_text()


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.stem)
def test_headers_state_the_cost_that_was_measured(header: Path) -> None:
    assert COST.search(header.read_text())
    assert with_cost(header) == header.read_text()


def test_verdicts_are_as_the_command_prints_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["report", "format=markdown"]) == 0
    assert capsys.readouterr().out.strip() in (ROOT / "docs" / "results.md").read_text()
