"""Which tests run a line, and how long each takes: measured once, by coverage contexts."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from coverage import CoverageData

MARKS = "not slow and not gpu and not wheel and not slurm"
_DURATION = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +(\S.*)$", re.MULTILINE)
# Every test reads conf/, so these stand for it: they know its values, and what they compute.
READS_CONF = (
    "tests/config/",
    "tests/model/",
    "tests/mixer/test_members.py",
    "tests/mixer/test_initial_values.py",
    "tests/test_golden.py",
    "tests/runs/",
)


def measure(root: Path, scratch: Path, jobs: int) -> None:
    """Run the default tests of a tree under coverage; later, those in files that have changed."""
    data, log = scratch / "coverage", scratch / "tests.log"
    since = data.stat().st_mtime if data.exists() else 0.0
    files = [str(p) for p in root.glob("tests/**/test_*.py") if p.stat().st_mtime > since]
    if not files:
        return
    print(f"running the tests of {len(files)} files under coverage", file=sys.stderr)
    environment = os.environ | {"COVERAGE_FILE": str(data), "PYTHONPATH": str(root / "src")}
    command = [sys.executable, "-m", "pytest", "-n", str(jobs), "--dist", "loadfile", "-m", MARKS,
               "--cov=coefdyn", "--cov-context=test", "--cov-report=", "--cov-append",
               "--durations=0", "--durations-min=0", "-vv", *files]  # fmt: skip
    with log.open("a") as output:
        code = subprocess.run(
            command, cwd=root, env=environment, stdout=output, stderr=output, check=False
        ).returncode
    if code:
        data.unlink(missing_ok=True)
        raise SystemExit(f"tests fail without any mutant: see {log}")


@dataclass(frozen=True)
class Covering:
    """`lines`: file -> line -> tests. `seconds`: of each test."""

    lines: dict[str, dict[int, set[str]]]
    seconds: dict[str, float]

    @classmethod
    def read(cls, root: Path, scratch: Path) -> "Covering":
        data = CoverageData(str(scratch / "coverage"))
        data.read()
        lines = {}
        for file in data.measured_files():
            if not Path(file).is_relative_to(root):  # what a test has written
                continue
            contexts = data.contexts_by_lineno(file)
            lines[str(Path(file).relative_to(root))] = {
                line: {_test(name) for name in names if name} for line, names in contexts.items()
            }
        seconds: dict[str, float] = {}
        for taken, test in _DURATION.findall((scratch / "tests.log").read_text()):
            seconds[test.strip()] = max(float(taken), seconds.get(test.strip(), 0.0))
        return cls(lines, seconds)

    def tests_of(self, path: str, first: int, last: int, budget: float) -> list[str]:
        """The fastest that run one of these lines, or else the file, within `budget` seconds."""
        if path.startswith("conf/"):
            chosen = {test for test in self.seconds if test.startswith(READS_CONF)}
        else:
            file = self.lines.get(path, {})
            chosen = set().union(*(file.get(line, set()) for line in range(first, last + 1)))
            # what runs at import, and what only other processes run, has no test of its own
            chosen = chosen or set().union(*file.values(), self._of_the_folder(path))
        tests, spent = [], 0.0
        for test in sorted(chosen, key=lambda test: (self.seconds.get(test, 0.0), test)):
            spent += self.seconds.get(test, 0.0)
            if tests and spent > budget:
                break
            tests.append(test)
        return tests

    def _of_the_folder(self, path: str) -> set[str]:
        folder = "tests/" + path.removeprefix("src/coefdyn/").split("/")[0]
        return {test for test in self.seconds if test.startswith(folder)}


def _test(context: str) -> str:
    return context.rsplit("|", 1)[0]
