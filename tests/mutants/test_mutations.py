"""The mutants that `make mutants` plants: plausible, named for good, and drawn by seed."""

import ast
from pathlib import Path

import pytest
import yaml

from tests.mutants.__main__ import AREAS, ROOT, sample
from tests.mutants.covering import Covering
from tests.mutants.mutations import mutants_of

SOURCE = '''"""Not 1 of these + words."""
LIMIT = 3


def check(x: "int | None", log: object) -> bool:
    """x < 3 and more."""
    log.info("1 + 1", 5)
    if x is None or not x:
        raise ValueError(f"{x} + 1")
    store(x)
    x += 0.5
    return x < LIMIT and min(x, -1) == 2
'''


def changes(tmp_path: Path, name: str, text: str) -> set[str]:
    """Every mutant as "line of the original -> line of the mutant"."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    found = set()
    for mutant in mutants_of(tmp_path, name):
        pairs = zip(text.splitlines(), mutant.applied(text).splitlines(), strict=True)
        ((old, new),) = [(a.strip(), b.strip()) for a, b in pairs if a != b]
        assert old in [
            line.strip() for line in text.splitlines()[slice(mutant.lines[0] - 1, mutant.lines[1])]
        ]
        found.add(f"{old} -> {new}")
    return found


def test_python_is_changed_where_it_computes_and_nowhere_else(tmp_path: Path) -> None:
    head, last = "if x is None or not x:", "return x < LIMIT and min(x, -1) == 2"
    assert changes(tmp_path, "a.py", SOURCE) == {
        "LIMIT = 3 -> LIMIT = 4",
        f"{head} -> if False:",
        f"{head} -> if x is not None or not x:",
        f"{head} -> if x is None and not x:",
        f"{head} -> if x is None or x:",
        f"{head} -> if x is None:",
        f"{head} -> if not x:",
        "store(x) -> pass",
        "x += 0.5 -> x = 0.5",
        "x += 0.5 -> x += 0.75",
        f"{last} -> return x <= LIMIT and min(x, -1) == 2",
        f"{last} -> return x < LIMIT or min(x, -1) == 2",
        f"{last} -> return x < LIMIT and max(x, -1) == 2",
        f"{last} -> return x < LIMIT and min(x, 1) == 2",
        f"{last} -> return x < LIMIT and min(x, -2) == 2",
        f"{last} -> return x < LIMIT and min(x, -1) != 2",
        f"{last} -> return x < LIMIT and min(x, -1) == 3",
        f"{last} -> return min(x, -1) == 2",
        f"{last} -> return x < LIMIT",
    }


def test_yaml_is_changed_in_its_values(tmp_path: Path) -> None:
    for name in ("gla", "mamba2"):
        (tmp_path / f"conf/model/{name}.yaml").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"conf/model/{name}.yaml").write_text("")
    text = (
        "# 3 words\ndefaults:\n  - override /model: gla\nn_heads: 4 # of 8\nforce: false\n"
        "lr: 1e-4,5e-4\nrate: ${scale.lr2}\nmodel/readout: exp,relu\n_target_: a.b2\n"
    )
    assert changes(tmp_path, "conf/experiment/mine.yaml", text) == {
        "- override /model: gla -> - override /model: mamba2",
        "n_heads: 4 # of 8 -> n_heads: 5 # of 8",
        "force: false -> force: true",
        "lr: 1e-4,5e-4 -> lr: 0.00015,5e-4",
        "lr: 1e-4,5e-4 -> lr: 1e-4,0.00075",
        "model/readout: exp,relu -> model/readout: exp",
    }


def test_a_sample_is_drawn_by_its_seed_from_every_area() -> None:
    first = sample(100, 0)
    assert {area: [m.name for m in ms] for area, ms in sample(100, 0).items()} == {
        area: [m.name for m in ms] for area, ms in first.items()
    }
    assert {area: len(mutants) for area, mutants in first.items()} == {
        area: share for area, (share, _) in AREAS.items()
    }
    names = [mutant.name for mutants in first.values() for mutant in mutants]
    assert len(set(names)) == 100
    assert names != [mutant.name for mutants in sample(100, 1).values() for mutant in mutants]
    for mutant in (mutant for mutants in first.values() for mutant in mutants):
        text = (ROOT / mutant.path).read_text()
        assert mutant.applied(text) != text
        (ast.parse if mutant.path.endswith(".py") else yaml.safe_load)(mutant.applied(text))


@pytest.fixture
def covering() -> Covering:
    lines = {"src/coefdyn/runs/a.py": {1: set(), 5: {"tests/b.py::slow", "tests/b.py::fast"},
                                       6: {"tests/b.py::other"}}}  # fmt: skip
    seconds = {"tests/b.py::slow": 50.0, "tests/b.py::fast": 0.1, "tests/b.py::other": 1.0,
               "tests/config/c.py::values": 2.0, "tests/runs/d.py::whole": 3.0}  # fmt: skip
    return Covering(lines, seconds)


@pytest.mark.parametrize(
    ("path", "line", "budget", "tests"),
    [
        ("src/coefdyn/runs/a.py", 5, 60.0, ["b.py::fast", "b.py::slow"]),
        ("src/coefdyn/runs/a.py", 5, 50.0, ["b.py::fast"]),
        ("src/coefdyn/runs/a.py", 5, 0.0, ["b.py::fast"]),
        (
            "src/coefdyn/runs/a.py",
            1,
            60.0,
            ["b.py::fast", "b.py::other", "runs/d.py::whole", "b.py::slow"],
        ),
        ("src/coefdyn/runs/new.py", 1, 60.0, ["runs/d.py::whole"]),
        ("conf/task/x.yaml", 1, 60.0, ["config/c.py::values", "runs/d.py::whole"]),
    ],
)
def test_the_fastest_tests_that_run_a_line_come_first(
    covering: Covering, path: str, line: int, budget: float, tests: list[str]
) -> None:
    assert covering.tests_of(path, line, line, budget) == [f"tests/{test}" for test in tests]
