"""The progress of a run, its learning rate schedules, and the sums that make its test scores.

They are the same for a run alone and for a member of a population.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.runs.lock import LostLockError
from coefdyn.runs.record import Row

# A larger loss is a divergence: the mean probability of the targets is then zero even in double
# precision. Waiting for a NaN is not enough, because norms can hide a model that has blown up.
LARGEST_LOSS = 745.0
KEPT = ("history", "losses", "seconds", "sessions", "initial")  # in checkpoints


def cosine(total: int, warmup: int, step: int) -> float:
    """The share of the peak learning rate at a step: a linear rise, then a cosine down to 0."""
    if step < warmup:
        return constant(total, warmup, step)
    done = (step - warmup) / max(1, total - warmup)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def constant(total: int, warmup: int, step: int) -> float:
    """The same for a constant rate: a linear rise, then the peak to the end."""
    del total
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


SCHEDULES = {"cosine": cosine, "constant": constant}


@dataclass
class Progress:
    """The state of a run besides its weights."""

    name: str
    sessions: list[dict[str, Any]]  # code and machine of each session; the present one is last
    history: list[Row] = field(default_factory=list)  # a row per epoch
    losses: list[float] = field(default_factory=list)  # of the steps of an unfinished epoch
    seconds: dict[str, float] = field(default_factory=lambda: {"training": 0.0, "testing": 0.0})
    initial: dict[str, Any] | None = None  # statistics of the coefficients before the first step
    diverged_at: int | None = None  # a step, counted from 1
    taken_over: LostLockError | None = None  # by another process

    def kept(self) -> dict[str, Any]:
        """The part that goes into a checkpoint."""
        return {name: getattr(self, name) for name in KEPT}

    def restore(self, kept: dict[str, Any]) -> None:
        """Take over the state of a checkpoint. The present session comes after earlier ones."""
        sessions = [*kept["sessions"], self.sessions[-1]]
        for name in KEPT:
            setattr(self, name, kept[name])
        self.sessions = sessions

    def reached(self, accuracy: float | None, split: str) -> bool:
        """Whether the last test on `split` has at least this accuracy; None is never reached."""
        name = f"{split}/accuracy"
        tests = [row[name] for row in self.history if name in row]
        return accuracy is not None and bool(tests) and tests[-1] >= accuracy


class Scores:
    """Sums over test batches: the loss, and per token how often it was the target (`wanted`) and
    how often it was then predicted (`right`).

    torchmetrics would count pairs of tokens, which are vocab_size^2 numbers.
    """

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.wanted = torch.zeros(vocab_size, dtype=torch.int64, device=device)
        self.right = torch.zeros_like(self.wanted)

    def add(self, logits: Tensor, wanted: Tensor) -> None:
        size = len(self.wanted)
        self.loss += F.cross_entropy(logits, wanted, reduction="sum")
        self.wanted += wanted.bincount(minlength=size)
        self.right += wanted[logits.argmax(-1) == wanted].bincount(minlength=size)

    def row(self, split: str) -> Row:
        occurs, right = self.wanted > 0, self.right.double()
        return {
            f"{split}/loss": (self.loss / self.wanted.sum()).item(),
            f"{split}/accuracy": (right.sum() / self.wanted.sum()).item(),
            f"{split}/accuracy_macro": (right / self.wanted)[occurs].mean().item(),
        }
