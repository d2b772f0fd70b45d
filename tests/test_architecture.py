"""The tree is the architecture: layers, small files, one place for each thing."""

import ast
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "coefdyn").rglob("*.py"))


def lint_imports(place: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {"PYTHONPATH": str(place / "src"), "PATH": ""}
    return subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("mixer/shapes.py", "import coefdyn.config.compose"),
        ("runs/record.py", "from coefdyn.results import load"),
        ("tasks/task.py", "from coefdyn.model import blocks"),
        ("sweeps/state.py", "import omegaconf"),
    ],
)
def test_a_lower_package_may_not_import_a_higher_one(
    tmp_path: Path, module: str, line: str
) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    ignored = shutil.ignore_patterns("__pycache__", "conf", "*.egg-info")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignored)
    if module == "mixer/shapes.py":
        assert lint_imports(tmp_path).returncode == 0
    file = tmp_path / "src" / "coefdyn" / module
    file.write_text(f"{file.read_text()}\n\ndef later():\n    {line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert "broken" in done.stdout


def test_files_are_small() -> None:
    lines = [len(path.read_text().splitlines()) for path in SOURCES]
    assert statistics.median(lines) < 120
    assert max(lines) <= 300


def test_modules_classes_and_public_functions_say_what_they_are() -> None:
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree) or not tree.body, f"{path} has no docstring"
