"""`make mutants`: plant plausible bugs one at a time, and see which test catches each.

    python -m tests.mutants [--count 100] [--seed 0] [--jobs 2] [--only sweeps] [--fresh]

A seeded sample over the areas below. Outcomes are kept in .mutants/, so a killed run goes on; what
survived is tried again by the next one, since a test may have been written for it. A mutant that
changes nothing anybody could see is named, with the reason, in equivalent.yaml.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from queue import Queue
from typing import Any

import yaml

from tests.mutants.covering import Covering, measure
from tests.mutants.mutations import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
SCRATCH = ROOT / ".mutants"
EQUIVALENT = Path(__file__).parent / "equivalent.yaml"
AREAS = {  # area -> (its share of the sample, its files)
    "mixer": (20, ("src/coefdyn/mixer/**/*.py",)),
    "model": (10, ("src/coefdyn/model/*.py",)),
    "tasks": (13, ("src/coefdyn/tasks/**/*.py",)),
    "training": (15, ("src/coefdyn/runs/**/*.py", "src/coefdyn/config/*.py")),
    "sweeps": (12, ("src/coefdyn/sweeps/*.py",)),
    "analysis": (10, ("src/coefdyn/results/*.py", "src/coefdyn/principles/*.py",
                      "src/coefdyn/plot/*.py")),
    "claims": (10, ("src/coefdyn/paper/*.py",)),
    "conf": (10, ("conf/scale/*.yaml", "conf/task/*.yaml", "conf/model/**/*.yaml",
                  "conf/experiment/*.yaml", "conf/optimizer/*.yaml", "conf/trainer/*.yaml",
                  "conf/train.yaml")),
}  # fmt: skip
# Seconds of tests for a mutant, as they take without one: the fast ones, and then all that fit.
BUDGETS = (30.0, 300.0)
SLOWER = 4.0  # times as long, and STARTUP more, ends a mutant that hangs
STARTUP = 60.0


def sample(count: int, seed: int) -> dict[str, list[Mutant]]:
    """The same mutants for the same seed, wherever other code has moved."""
    total = sum(share for share, _ in AREAS.values())
    chosen = {}
    for area, (share, patterns) in AREAS.items():
        files = sorted({str(p.relative_to(ROOT)) for g in patterns for p in ROOT.glob(g)})
        mutants = [mutant for file in files for mutant in mutants_of(ROOT, file)]
        mutants.sort(key=lambda m: hashlib.sha256(f"{seed} {m.name}".encode()).digest())
        chosen[area] = list(islice(filter(runs, mutants), round(count * share / total)))
    return chosen


def runs(mutant: Mutant) -> bool:
    """Whether it is a program at all."""
    if mutant.path.endswith(".py"):
        try:
            ast.parse(mutant.applied((ROOT / mutant.path).read_text()))
        except SyntaxError:
            return False
    return True


def tree(place: Path) -> Path:
    """A copy of the repo's files there: mutants never touch the work tree."""
    shutil.rmtree(place, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in listed.splitlines():
        if (ROOT / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name, follow_symlinks=False)
    return place


def run(place: Path, tests: Sequence[str], limit: float) -> tuple[str, str, float]:
    """caught, survived or hung; the test that failed; seconds. The first failure ends it."""
    started = time.monotonic()
    # No bytecode is written: that of a mutant could outlive it.
    environment = os.environ | {
        "PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "300",
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-x", "--tb=no", "-rfE", "-p", "no:cacheprovider",
               "-p", "no:xdist", *tests]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=place, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "caught", "hangs", time.monotonic() - started
    seconds = time.monotonic() - started
    if process.returncode == 0:
        return "survived", "", seconds
    first = re.search(r"^(?:FAILED|ERROR) (.+)$", output, re.MULTILINE)
    return "caught", first[1][:200] if first else output.strip()[-200:], seconds


def plant(mutant: Mutant, place: Path, covering: Covering) -> dict[str, Any]:
    outcome: dict[str, Any] = {"name": mutant.name, "lines": mutant.lines, "tests": 0}
    outcome |= {"end": "survived", "by": "", "seconds": 0.0}
    file = place / mutant.path
    before = file.read_bytes(), file.stat()
    file.write_text(mutant.applied(before[0].decode()))
    tried: list[str] = []
    try:
        for budget in BUDGETS:
            chosen = covering.tests_of(mutant.path, *mutant.lines, budget)
            tests = [test for test in chosen if test not in tried]
            if outcome["end"] == "caught" or not tests:
                break
            usual = sum(covering.seconds.get(test, 0.0) for test in tests)
            outcome["end"], outcome["by"], seconds = run(place, tests, STARTUP + SLOWER * usual)
            tried += tests
            outcome["seconds"] = round(outcome["seconds"] + seconds, 1)
    finally:
        file.write_bytes(before[0])
        os.utime(file, ns=(before[1].st_atime_ns, before[1].st_mtime_ns))
    return outcome | {"tests": len(tried)}


def outcomes(todo: Sequence[Mutant], covering: Covering, jobs: int) -> Iterator[dict[str, Any]]:
    """Of each mutant, as they come; each is written before the next begins."""
    trees: Queue[Path] = Queue()
    for number in range(jobs):
        trees.put(tree(SCRATCH / f"tree{number}"))

    def one(mutant: Mutant) -> dict[str, Any]:
        place = trees.get()
        try:
            return plant(mutant, place, covering)
        finally:
            trees.put(place)

    with ThreadPoolExecutor(jobs) as pool, (SCRATCH / "outcomes.jsonl").open("a") as file:
        for outcome in pool.map(one, todo):
            file.write(json.dumps(outcome) + "\n")
            file.flush()
            yield outcome


def known() -> dict[str, dict[str, Any]]:
    path = SCRATCH / "outcomes.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {row["name"]: row for row in rows}


def report(chosen: dict[str, list[Mutant]]) -> int:
    reasons, found = yaml.safe_load(EQUIVALENT.read_text()) or {}, known()
    total: Counter[str] = Counter()
    for area, mutants in chosen.items():
        ends = Counter("equivalent" if m.name in reasons else found[m.name]["end"] for m in mutants)
        total += ends
        print(f"{area:10}", ", ".join(f"{n} {end}" for end, n in sorted(ends.items())))
    print(f"{'all':10}", ", ".join(f"{n} {end}" for end, n in sorted(total.items())))
    for mutants in chosen.values():
        for mutant in mutants:
            row = found[mutant.name]
            end = "equivalent" if mutant.name in reasons else row["end"]
            why = reasons.get(mutant.name) or row["by"]
            print(f"  {end:10} {mutant.name} (line {mutant.lines[0]}): {why}")
    return int(total["survived"] > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", choices=AREAS, help="one area")
    parser.add_argument("--fresh", action="store_true", help="measure coverage and plant all anew")
    asked = parser.parse_args(arguments)
    if asked.fresh:
        shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(exist_ok=True)
    measure(ROOT, SCRATCH, asked.jobs)
    covering = Covering.read(ROOT, SCRATCH)
    chosen = sample(asked.count, asked.seed)
    if asked.only:
        chosen = {asked.only: chosen[asked.only]}
    caught = {name for name, row in known().items() if row["end"] == "caught"}
    reasons = yaml.safe_load(EQUIVALENT.read_text()) or {}
    todo = [
        m for ms in chosen.values() for m in ms if m.name not in caught and m.name not in reasons
    ]
    for number, row in enumerate(outcomes(todo, covering, asked.jobs), 1):
        line = (
            f"{number}/{len(todo)} {row['end']} in {row['seconds']} s: {row['name']}: {row['by']}"
        )
        print(line, file=sys.stderr)
    for mutants in chosen.values():  # named in the file before they were ever planted
        for mutant in mutants:
            known_as = {"name": mutant.name, "end": "equivalent", "by": "", "seconds": 0.0}
            if mutant.name not in known():
                with (SCRATCH / "outcomes.jsonl").open("a") as file:
                    file.write(json.dumps(known_as) + "\n")
    return report(chosen)


if __name__ == "__main__":
    sys.exit(main())
