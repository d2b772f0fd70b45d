"""constraints.txt: one version of everything that the tests import, and nothing of one machine."""

import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINES = (ROOT / "constraints.txt").read_text().splitlines()
PINS = [line for line in LINES if not line.startswith("#")]
PINNED = {canonicalize_name(line.partition("==")[0]) for line in PINS}


def test_every_line_is_a_name_and_a_version() -> None:
    """No address, no path, no local version as +cpu, nothing twice."""
    assert [line for line in PINS if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert len(PINNED) == len(PINS)
    assert "torch==2.13.0" in PINS
    assert "coefdyn" not in PINNED


def needs_of(*extras: str) -> list[Requirement]:
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][e] for e in extras)]
    return [Requirement(line) for lines in lists for line in lines]


def test_pins_are_versions_that_the_project_allows() -> None:
    versions = {canonicalize_name(name): version
                for name, _, version in (line.partition("==") for line in PINS)}  # fmt: skip
    for need in needs_of("dev", "cuda"):
        assert need.specifier.contains(versions[canonicalize_name(need.name)]), str(need)


def tree_of(needs: Iterable[Requirement], seen: set[str]) -> Iterator[str]:
    """What is installed of these and of what they need. torch's own needs are those of its build,
    which differ between a CPU and CUDA."""
    for need in needs:
        name = canonicalize_name(need.name)
        for extra in need.extras or {""}:
            if f"{name}[{extra}]" in seen:
                continue
            seen.add(f"{name}[{extra}]")
            try:
                lines = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:  # an extra that is not installed
                continue
            yield name
            own = [Requirement(line) for line in lines]
            wanted = [n for n in own if n.marker is None or n.marker.evaluate({"extra": extra})]
            yield from tree_of(wanted, seen) if name != "torch" else ()


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the pins are those of Python 3.11")
def test_the_whole_tree_is_pinned() -> None:
    tree = set(tree_of(needs_of("dev"), set()))
    assert {"hydra-core", "antlr4-python3-runtime", "tokenizers", "urllib3"} <= tree
    assert tree - PINNED == set()
