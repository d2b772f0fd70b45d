"""Adds seeds until claims are decided: looks at 3, 5, 8 and 12 seeds of the points they read.

A look reads the seeds below its number and no others, at all points alike. Its result is therefore
the same however often the work was interrupted. A verdict that a look reaches is frozen.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from coefdyn.config.grid import PlannedRun, Planner
from coefdyn.errors import ConfigError
from coefdyn.paper import experiments
from coefdyn.results.claim import Claim, Judgement
from coefdyn.results.files import TableFolder
from coefdyn.results.rounds import (
    LOOKS,
    PILOT,
    Known,
    Point,
    is_pilot,
    known_runs,
    point_of,
    recorded_too,
)
from coefdyn.results.tables import axes_of_run
from coefdyn.runs.archive import record_of
from coefdyn.runs.record import Record
from coefdyn.sweeps.state import unfinished

OPEN = ("inconclusive", "not enough runs")
# Overrides that change neither design nor task.
OF_THE_RUNS = ("scale=", "seed=", "grid.", "paths.", "trainer", "optimizer.", "population.",
               "logger", "plugins=", "check=", "machine=")  # fmt: skip

Work = Callable[[list[PlannedRun]], bool]  # does these runs; False if they are not done yet


@dataclass(frozen=True)
class Ending:
    """Why the work ended, and the judgement of each claim."""

    words: str
    verdicts: dict[str, Judgement]
    looks: dict[str, int]  # at how many seeds each verdict was reached
    hours: float


class Decision:
    """The claims of one experiment, and the grids whose runs they read."""

    def __init__(self, grid: Sequence[str], results: Path, scale: str) -> None:
        name = next((p.partition("=")[2] for p in grid if p.startswith("experiment=")), "")
        known = [stem for stem, e in experiments().items() if e.claims and not e.columns]
        if name not in known:
            raise ConfigError(
                f"action=decide needs experiment=<one with claims>, not {name or 'none'}; choose "
                f"from {', '.join(known)}"
            )
        self.experiment, self.folder = experiments()[name], TableFolder(results, scale)
        self.claims = {claim.name: claim for claim in self.experiment.claims}
        stems = dict.fromkeys(stem for claim in self.claims.values() for stem in claim.needs)
        overrides = [part for part in grid if not part.startswith("experiment=")]
        if changes := [part for part in overrides if not part.lstrip("+").startswith(OF_THE_RUNS)]:
            raise ConfigError(
                f"action=decide judges {name} as its file has it, not with {' '.join(changes)}; "
                "leave that out, or use action=run and figure"
            )
        self.grids = {stem: Planner([f"experiment={stem}", *overrides]) for stem in stems}
        for stem, planner in self.grids.items():
            if not any(is_pilot(run) for run in planner.declared):
                raise ConfigError(
                    f"experiment={stem} has no pilots at scale={scale}, so that seeds cannot be "
                    f"added; give seed={PILOT} +grid.{scale}.seeds={LOOKS[0]}"
                )

    def run(self, work: Work, budget: float | None) -> Ending:
        """Take looks until all claims are decided, runs are missing or the budget is spent.

        `budget`: core hours for all runs of these grids, including those done before.
        """
        judgements: dict[str, Judgement] = {}
        looks: dict[str, int] = {}
        for look in LOOKS:
            undecided = [c for name, c in self.claims.items() if name not in looks]
            reason = self._fill(undecided, look, work, budget)
            tables = self._tables(look)
            for claim in undecided:
                judgements[claim.name] = judgement = claim.judge(tables)
                if judgement.verdict not in OPEN:
                    looks[claim.name] = look
            self._keep(judgements, looks)
            if len(looks) == len(self.claims):
                return Ending("all claims are decided", judgements, looks, self._hours())
            if reason:
                return Ending(reason, judgements, looks, self._hours())
        return Ending(f"{LOOKS[-1]} seeds are the most", judgements, looks, self._hours())

    def _fill(self, undecided: Sequence[Claim], look: int, work: Work, budget: float | None) -> str:
        """Do the runs that a look needs. Returns why some are missing, or "" if none is."""
        tried: set[str] = set()
        while True:
            known = {stem: self._known(stem, undecided, look) for stem in self.grids}
            todo = unfinished({r.run_id: r for k in known.values() for r in k.runs}.values())
            todo = [run for run in todo if run.run_id not in tried]
            if not todo:
                missing = sum(len(unfinished(k.runs)) + k.waiting for k in known.values())
                return f"{missing} runs failed or wait for others" if missing else ""
            if budget is not None and (reason := self._too_much(todo, look, budget)):
                return reason
            tried |= {run.run_id for run in todo}
            if not work(todo):
                return f"{len(todo)} runs are under way; the same command goes on"

    def _known(self, stem: str, undecided: Sequence[Claim], look: int) -> Known:
        seeds: dict[Point, int] = {}
        for run in self.grids[stem].declared:
            axes = axes_of_run(run)
            if any(
                all(axes.get(column) == value for column, value in where.items())
                for claim in undecided
                if stem in claim.needs
                for where in claim.reads
            ):
                seeds[point_of(run)] = look
        return self._grown(stem, seeds)

    def _grown(self, stem: str, seeds: dict[Point, int]) -> Known:
        return known_runs(self.grids[stem], seeds)

    def _tables(self, look: int) -> dict[str, pd.DataFrame]:
        """Write the tables with all runs; return them up to the seeds of this look."""
        tables: dict[str, pd.DataFrame] = {}
        for stem in self.grids:
            runs = list(self._all_runs(stem).values())
            records = {run.run_id: record_of(run.folder) for run in runs}
            if any(record is not None for record in records.values()):
                self.folder.write(experiments()[stem], runs, records)
                tables |= self.folder.tables_of(experiments()[stem])
        for name, table in tables.items():
            if name.endswith("_runs"):
                tables[name] = table[(table["seed"] < look) | (table["seed"] >= PILOT)]
        return tables

    def _all_runs(self, stem: str) -> dict[str, PlannedRun]:
        return {run.run_id: run for run in recorded_too(self.grids[stem]).runs}

    def _records(self) -> list[Record]:
        runs = {name: run for stem in self.grids for name, run in self._all_runs(stem).items()}
        records = (record_of(run.folder) for run in runs.values())
        return [record for record in records if record is not None]

    def _hours(self) -> float:
        return sum(record.seconds["session"] for record in self._records()) / 3600

    def _too_much(self, todo: Sequence[PlannedRun], look: int, budget: float) -> str:
        """Why these runs would exceed the budget, or "" if they would not.

        Each is expected to take as long as the recorded runs did on average. Before any is recorded
        the cost is unknown and counts as nothing.
        """
        spent, count = self._hours(), len(self._records())
        cost = len(todo) * spent / count if count else 0.0
        if spent + cost <= budget:
            return ""
        return (
            f"the look at {look} seeds needs about {cost:.2g} core hours besides the {spent:.2g} "
            f"spent, over budget={budget:g}"
        )

    def _keep(self, judgements: dict[str, Judgement], looks: dict[str, int]) -> None:
        decisions = {
            name: {
                "verdict": judgements[name].verdict,
                "statistic": judgements[name].statistic,
                "seeds": n,
            }
            for name, n in looks.items()
        }
        self.folder.write_decisions(self.experiment.stem, decisions)


def as_json(ending: Ending) -> str:
    claims = {
        name: {"verdict": j.verdict, "statistic": j.statistic, "seeds": ending.looks.get(name)}
        for name, j in ending.verdicts.items()
    }
    return json.dumps({"ended": ending.words, "hours": ending.hours, "claims": claims})
