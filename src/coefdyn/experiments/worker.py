"""Doing runs one after the other: what a process of the local pool and a SLURM task both do."""

import contextlib
import traceback
from dataclasses import dataclass
from typing import Literal

from coefdyn.experiments.grid import Run
from coefdyn.experiments.store import write_error
from coefdyn.training.claim import ClaimedError, LostClaimError

End = Literal["done", "diverged", "failed", "elsewhere"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `text` is its accuracy, or why it failed, or who else has it."""

    end: End
    text: str


def attempt(run: Run) -> Outcome:
    """Do a run, whatever comes of it: one that fails leaves error.txt, and never stops others."""
    from coefdyn.training.run import run_one  # takes seconds

    try:
        record = run_one(run.config)
    except (ClaimedError, LostClaimError) as error:
        return Outcome("elsewhere", str(error))
    except Exception as error:
        with contextlib.suppress(OSError):
            write_error(run.results, run.run_id, traceback.format_exc())
        return Outcome("failed", f"{type(error).__name__}: {' '.join(str(error).split())}")
    if record["status"] == "diverged":
        return Outcome("diverged", f"diverged at step {record['diverged_at_step']}")
    return Outcome("done", f"accuracy {record['metrics']['test/accuracy']:.4f}")
