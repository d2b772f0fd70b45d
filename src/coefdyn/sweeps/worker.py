"""What a worker does: train the runs it is given, and report how each ended."""

import contextlib
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from coefdyn.config.grid import PlannedRun
from coefdyn.runs.lock import LockedError, LostLockError
from coefdyn.runs.population.fusing import MEMBERS, family, is_fused
from coefdyn.runs.record import Record
from coefdyn.sweeps.state import write_error

End = Literal["done", "diverged", "failed", "elsewhere"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `text` is its accuracy, why it failed, or which process has it."""

    end: End
    text: str


def shares(runs: Sequence[PlannedRun]) -> list[tuple[PlannedRun, ...]]:
    """Group runs that are trained together: populations where asked for, else one run each."""
    groups: dict[str, list[PlannedRun]] = {}
    for run in runs:
        fused = is_fused(run.config)
        groups.setdefault(family(run.config) if fused else run.run_id, []).append(run)
    return [
        tuple(group[start : start + MEMBERS])
        for group in groups.values()
        for start in range(0, len(group), MEMBERS)
    ]


def attempt(runs: Sequence[PlannedRun]) -> list[Outcome]:
    """Train one run, or several as a population.

    A run that fails leaves error.txt and does not stop the others.
    """
    from coefdyn.runs.population.training import train_population  # takes seconds
    from coefdyn.runs.run import run_one

    endings: Sequence[Record | Exception]
    try:
        if len(runs) == 1:
            endings = [run_one(runs[0].config)]
        else:
            endings = train_population([run.config for run in runs])
    except Exception as error:
        endings = [error] * len(runs)
    return [_outcome(run, ending) for run, ending in zip(runs, endings, strict=True)]


def _outcome(run: PlannedRun, ending: Record | Exception) -> Outcome:
    if isinstance(ending, LockedError | LostLockError):
        return Outcome("elsewhere", str(ending))
    if isinstance(ending, Exception):
        with contextlib.suppress(OSError):
            write_error(run.folder, "".join(traceback.format_exception(ending)))
        return Outcome("failed", f"{type(ending).__name__}: {' '.join(str(ending).split())}")
    if ending.status == "diverged":
        return Outcome("diverged", f"diverged at step {ending.diverged_at_step}")
    return Outcome("done", f"accuracy {ending.metrics['test/accuracy']:.4f}")
